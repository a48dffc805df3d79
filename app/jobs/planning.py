"""Which images a job has, in shards: written beside the results before the first is read."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from app.jobs.errors import Damaged, JobError, NoSuchKey
from app.jobs.lines import AGAIN, decoded, read_file
from app.jobs.records import Item, JobSpec, Plan, digest, length_of, to_document, to_lines
from app.jobs.stores import Store
from app.problems import ProblemError
from app.spatial.phrases import check_phrases

PLAN = "plan.json"
_PLANS = msgspec.json.Decoder(Plan)


def job_name(spec: JobSpec) -> str:
    """The same for the same question, so that the same command goes on with its job.

    The revision is left out: that it changed is for `check_same` to say.
    """
    asked = msgspec.structs.replace(spec, revision="")
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:12]


def make_plan(job: str, spec: JobSpec, source: Store, target: Store) -> Plan:
    """List the source and write the plan. Raises JobError, StoreAway."""
    images, parts = 0, []
    for number, shard in enumerate(_shards(spec, source)):
        data = to_lines(shard)
        target.put(items_name(number), data)
        parts.append(digest(data))
        images += len(shard)
    if not images:
        raise JobError(f"there is no image in {spec.source}")
    plan = Plan(job=job, spec=spec, images=images, shards=len(parts), parts=parts)
    target.put(PLAN, to_document(plan))
    return plan


def read_plan(target: Store) -> Plan | None:
    """The plan beside the results; None for one that is not there, or not to its end.

    Raises JobError for a file of another kind.
    """
    try:
        return _PLANS.decode(target.get(PLAN)[0])
    except NoSuchKey:
        return None
    except msgspec.ValidationError as error:
        raise JobError(f"{target.url} holds a {PLAN} that is not a job's plan: {error}") from error
    except msgspec.DecodeError:  # cut, or emptied
        return None


def lost_lists(plan: Plan, target: Store) -> set[int]:
    """Shards whose list of images is gone or cut."""
    there = {f"plan/{entry.key}": entry.size for entry in target.within("plan").list()}
    parts = enumerate(plan.parts)
    return {number for number, part in parts if there.get(items_name(number)) != length_of(part)}


def mend_plan(plan: Plan, source: Store, target: Store) -> None:
    """Write lists of images again that are gone or cut, where the source still gives the same ones.

    The others are missed only where they are needed: results that are whole do not need theirs.
    """
    bad = lost_lists(plan, target)
    if not bad:
        return
    with suppress(JobError):  # the source is gone, or cannot be read as it was
        for number, shard in enumerate(_shards(plan.spec, source)):
            data = to_lines(shard)
            if number in bad and digest(data) == plan.parts[number]:
                target.put(items_name(number), data)


def check_same(plan: Plan, spec: JobSpec) -> None:
    """Raises JobError unless a job may go on with this spec."""
    for field in msgspec.structs.fields(JobSpec):
        planned, now = getattr(plan.spec, field.name), getattr(spec, field.name)
        if planned != now:
            raise JobError(
                f"job {plan.job} was planned with {field.name} {planned!r} and not {now!r}: its results "
                "would not fit together; start another job with --job NAME"
            )


def items_name(shard: int) -> str:
    return f"plan/{shard:05}.jsonl"


def read_items(target: Store, shard: int) -> list[Item]:
    """The images of a shard.  Raises Damaged, StoreAway."""
    return read_part(target, shard, "")[0]


def read_part(target: Store, shard: int, part: str) -> tuple[list[Item], str]:
    """The images of a shard, and the digest of their list, which must be `part` unless that is empty.

    Raises Damaged, StoreAway.
    """
    data = read_file(target, items_name(shard))
    if part and digest(data) != part:
        raise Damaged(f"{items_name(shard)} in {target.url} is damaged: {AGAIN}")
    return list(decoded(target, items_name(shard), data, Item)), digest(data)


def _shards(spec: JobSpec, source: Store) -> Iterator[list[Item]]:
    """The images of each shard, the same as long as the source is the same."""
    seen = _manifest(source, spec.manifest, spec.phrases) if spec.manifest else _listed(source)
    while shard := list(islice(seen, spec.shard_size)):
        yield shard


def _listed(source: Store) -> Iterator[Item]:
    for entry in source.list():
        yield Item(key=entry.key, etag=entry.etag, size=entry.size)


def _manifest(source: Store, name: str, asked: list[str]) -> Iterator[Item]:
    """Each image once, with all the phrases that its lines name; `asked` where they name none."""
    try:
        text = source.get(name)[0].decode("utf-8-sig")
    except NoSuchKey as error:
        raise JobError(f"manifest {name} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise JobError(f"manifest {name} is not UTF-8: {error}") from error
    rows = _csv_rows(name, text) if name.lower().endswith(".csv") else _json_rows(name, text)
    phrases: dict[str, list[str]] = {}
    for line, key, named in rows:
        known = phrases.setdefault(key, [])
        known += [phrase for phrase in named if phrase not in known]
        if not (known or asked):
            raise JobError(f"{name}, line {line}: {key} has no phrase, and the job has none for it")
        try:
            check_phrases(known or asked, field="phrases")
        except ProblemError as problem:
            raise JobError(f"{name}, line {line}: {problem.detail}") from problem
    for key, named in phrases.items():
        yield Item(key=key, phrases=named or None)


def _json_rows(name: str, text: str) -> Iterable[tuple[int, str, list[str]]]:
    for line, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            entry = msgspec.json.decode(row, type=_ManifestLine)
        except msgspec.DecodeError as error:
            raise JobError(
                f'{name}, line {line}: {error}: write {{"image": "a.jpg", "phrases": ["dog"]}}'
            ) from error
        yield line, entry.image, entry.phrases


def _csv_rows(name: str, text: str) -> Iterable[tuple[int, str, list[str]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if "image" not in (reader.fieldnames or ()):
        raise JobError(f"{name} has no column image: its first line must be image or image,phrase")
    for row in reader:
        key, phrase = row["image"], row.get("phrase")
        if None in row:  # what the first line has no name for
            raise JobError(
                f"{name}, line {reader.line_num}: there are more values than the first line names; a text "
                "with a comma must stand in quotes"
            )
        if not key:
            raise JobError(f"{name}, line {reader.line_num}: the image has no name")
        yield reader.line_num, key, [phrase] if phrase else []


class _ManifestLine(msgspec.Struct, forbid_unknown_fields=True):
    image: str
    phrases: list[str] = []
