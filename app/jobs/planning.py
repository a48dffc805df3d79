"""Which images a job has, in shards: written beside the results before the first is read."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from app.jobs.errors import JobError, NoSuchKey
from app.jobs.lines import read_lines
from app.jobs.records import Item, JobSpec, Plan, to_document, to_lines
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
    images = shards = 0
    seen = _manifest(source, spec.manifest, spec.phrases) if spec.manifest else _listed(source)
    while shard := list(islice(seen, spec.shard_size)):
        target.put(items_name(shards), to_lines(shard))
        images += len(shard)
        shards += 1
    if not images:
        raise JobError(f"there is no image in {spec.source}")
    plan = Plan(job=job, spec=spec, images=images, shards=shards)
    target.put(PLAN, to_document(plan))
    return plan


def read_plan(target: Store) -> Plan | None:
    """The plan beside the results, if it was written to its end.  Raises JobError for a damaged one."""
    try:
        return _PLANS.decode(target.get(PLAN)[0])
    except NoSuchKey:
        return None
    except msgspec.DecodeError as error:
        raise JobError(f"{target.url} holds a {PLAN} that is not a job's plan: {error}") from error


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
    """The images of a shard.  Raises JobError, StoreAway."""
    return list(read_lines(target, items_name(shard), Item))


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
