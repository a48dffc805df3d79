"""A job from plan to summary; running it again goes on where it stopped, and mends what was damaged."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.jobs.errors import Damaged, JobError, NoSuchKey, ShardsDamaged
from app.jobs.exports import make_export
from app.jobs.lines import decoded, read_file
from app.jobs.planning import check_same, make_plan, mend_plan, read_items, read_plan
from app.jobs.records import (
    JobSpec,
    Plan,
    Result,
    ShardCount,
    ShardEntry,
    Summary,
    Trouble,
    digest,
    length_of,
    to_document,
    to_lines,
)
from app.jobs.seals import counted, is_of, read_seal, seal, seal_name
from app.jobs.shards import errors_name, results_name
from app.jobs.stores import Store
from app.jobs.threads import call_each

INDEX, SUMMARY, ERRORS = "index.json", "summary.json", "errors.jsonl"
ROUNDS = 3
"""How often the shards of a job are answered before it is given up because results are damaged again."""
LOOKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Shard:
    """What the files of a shard hold."""

    results: list[Result]
    troubles: list[Trouble]
    count: ShardCount


def open_plan(job: str, spec: JobSpec, source: Store, target: Store) -> Plan:
    """The plan of a job: the one beside its results, or a new one.  Raises JobError, StoreAway."""
    plan = read_plan(target)
    if plan is not None:
        check_same(plan, spec)
        mend_plan(plan, source, target)
        return plan
    for name in _lengths(target, "results"):  # of a plan that was lost
        shard = name.removeprefix("results/").removesuffix(".jsonl")
        if shard.isdecimal() and read_seal(target, int(shard)) is None:
            lost = f"the plan in {target.url} is lost, and {name} does not say what it answers"
            raise JobError(f"{lost}: start another job")
    return make_plan(job, spec, source, target)


def shards_done(plan: Plan, target: Store) -> dict[int, ShardCount]:
    """What each shard holds whose files are there, as long as they were when they were written."""
    results, errors = _lengths(target, "results"), _lengths(target, "errors")

    def look(number: int) -> ShardCount | None:
        found = read_seal(target, number)
        if found is None:
            return _sealed_now(plan, target, number)
        lengths = results[results_name(number)], errors.get(errors_name(number))
        whole = (length_of(found.results_digest), length_of(found.errors_digest))
        return counted(found) if is_of(found, plan, number) and lengths == whole else None

    there = [number for number in range(plan.shards) if results_name(number) in results]
    counts = dict(zip(there, call_each(look, there, LOOKS_AT_ONCE), strict=True))
    return {number: count for number, count in counts.items() if count is not None}


def shards_left(plan: Plan, target: Store) -> list[int]:
    """Numbers of the shards that have no results yet, or none that are whole."""
    done = shards_done(plan, target)
    return [number for number in range(plan.shards) if number not in done]


def read_summary(target: Store) -> Summary | None:
    """What a job that is over has to say; None for one that is not there, or not to its end."""
    try:
        return msgspec.json.decode(target.get(SUMMARY)[0], type=Summary)
    except (NoSuchKey, msgspec.DecodeError):
        return None


def read_end(plan: Plan, target: Store) -> Summary | None:
    """The summary of this plan, if it and the files that it is about are there in their full length."""
    summary = read_summary(target)
    if summary is None or (summary.job, summary.spec, summary.images) != (plan.job, plan.spec, plan.images):
        return None
    try:
        whole = all(target.size(name) == length_of(known) for name, known in summary.files.items())
    except NoSuchKey:
        return None
    return summary if whole else None


def count_shard(target: Store, number: int) -> ShardCount:
    """Of a shard with results.  Raises Damaged for one without, StoreAway."""
    return _shard(target, number).count


def whole_shard(plan: Plan, target: Store, number: int) -> Shard:
    """A shard whose files hold what was written; without a seal, each image of the plan once.

    Raises Damaged, StoreAway.
    """
    shard = _shard(target, number)
    found = read_seal(target, number)
    if found is not None:
        whole = is_of(found, plan, number) and counted(found) == shard.count
    else:
        planned = Counter(item.key for item in read_items(target, number))
        whole = planned == Counter(record.key for record in (*shard.results, *shard.troubles))
    if not whole:
        raise Damaged(f"{results_name(number)} in {target.url} does not hold what was written there")
    return shard


def _shard(target: Store, number: int) -> Shard:
    """Raises Damaged, StoreAway."""
    names = results_name(number), errors_name(number)
    files = read_file(target, names[0]), read_file(target, names[1])
    results = list(decoded(target, names[0], files[0], Result))
    troubles = list(decoded(target, names[1], files[1], Trouble))
    count = ShardCount(
        images=len(results) + len(troubles),
        errors=len(troubles),
        objects=sum(len(result.objects or result.points or ()) for result in results),
        results_digest=digest(files[0]),
        errors_digest=digest(files[1]),
    )
    return Shard(results, troubles, count)


def _sealed_now(plan: Plan, target: Store, number: int) -> ShardCount | None:
    """For a shard whose seal is lost, or that an earlier version wrote: None if it is not whole."""
    try:
        count = whole_shard(plan, target, number).count
    except Damaged:
        return None
    target.put(seal_name(number), seal(count, plan.spec, plan.parts[number] if plan.parts else ""))
    return count


def _lengths(target: Store, folder: str) -> dict[str, int]:
    return {f"{folder}/{entry.key}": entry.size for entry in target.within(folder).list()}


def finish(plan: Plan, target: Store) -> Summary:
    """Gather errors and exports, write index and summary.

    Raises ShardsDamaged for shards without whole results, StoreAway.
    """
    entries: list[ShardEntry] = []
    damaged: list[int] = []
    files: dict[str, str] = {}
    found: Counter[str] = Counter(dict.fromkeys(plan.spec.phrases, 0))
    reasons: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pointbox-") as scratch:
        export = make_export(plan.spec, Path(scratch))
        errors = Path(scratch, ERRORS)
        with errors.open("wb") as file:
            for number in range(plan.shards):
                try:
                    shard = whole_shard(plan, target, number)
                except Damaged:
                    damaged.append(number)
                    continue
                file.write(to_lines(shard.troubles))
                reasons.update(f"{trouble.stage}: {trouble.reason}" for trouble in shard.troubles)
                for result in shard.results:
                    found.update(item.label for item in result.objects or result.points or ())
                    if export is not None:
                        export.add(result)
                for trouble in shard.troubles if export is not None else ():
                    export.missing(trouble)
                entries.append(_entry(number, shard.count))
        if damaged:
            raise ShardsDamaged(target.url, damaged)
        for name, path in [(ERRORS, errors), *(export.files() if export is not None else ())]:
            target.put(name, path)
            files[name] = digest(path)
        notes = export.notes() if export is not None else []
    index = to_document(entries)
    summary = Summary(
        job=plan.job,
        spec=plan.spec,
        images=sum(entry.images for entry in entries),
        errors=sum(entry.errors for entry in entries),
        objects=sum(entry.objects for entry in entries),
        objects_by_phrase=dict(found),
        errors_by_reason=dict(reasons.most_common(100)),
        notes=notes,
        files=files | {INDEX: digest(index)},
    )
    target.put(INDEX, index)
    target.put(SUMMARY, to_document(summary))
    return summary


def _entry(number: int, count: ShardCount) -> ShardEntry:
    fields = msgspec.structs.asdict(count)
    return ShardEntry(results=results_name(number), errors_file=errors_name(number), **fields)
