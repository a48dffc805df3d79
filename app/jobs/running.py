"""A job from plan to summary; running it again goes on where it stopped."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from app.jobs.errors import NoSuchKey
from app.jobs.exports import make_export
from app.jobs.lines import read_lines
from app.jobs.planning import check_same, make_plan, read_plan
from app.jobs.records import (
    JobSpec,
    Plan,
    Result,
    ShardCount,
    ShardEntry,
    Summary,
    Trouble,
    to_document,
    to_lines,
)
from app.jobs.shards import errors_name, results_name
from app.jobs.stores import Store

INDEX, SUMMARY, ERRORS = "index.json", "summary.json", "errors.jsonl"


def open_plan(job: str, spec: JobSpec, source: Store, target: Store) -> Plan:
    """The plan of a job: the one beside its results, or a new one.  Raises JobError, StoreAway."""
    plan = read_plan(target)
    if plan is None:
        return make_plan(job, spec, source, target)
    check_same(plan, spec)
    return plan


def shards_left(plan: Plan, target: Store) -> list[int]:
    """Numbers of the shards that have no results yet."""
    done = {entry.key for entry in target.within("results").list()}
    return [n for n in range(plan.shards) if results_name(n).partition("/")[2] not in done]


def read_summary(target: Store) -> Summary | None:
    """What a job that is over has to say."""
    try:
        return msgspec.json.decode(target.get(SUMMARY)[0], type=Summary)
    except NoSuchKey:
        return None


def count_shard(target: Store, number: int) -> ShardCount:
    """Of a shard with results.  Raises JobError for one without, StoreAway."""
    results = list(read_lines(target, results_name(number), Result))
    errors = sum(1 for _ in read_lines(target, errors_name(number), Trouble))
    objects = sum(len(result.objects or result.points or ()) for result in results)
    return ShardCount(images=len(results) + errors, errors=errors, objects=objects)


def finish(plan: Plan, target: Store) -> Summary:
    """Gather errors and exports, write index and summary.

    Raises JobError for a shard without results, StoreAway.
    """
    entries: list[ShardEntry] = []
    found: Counter[str] = Counter(dict.fromkeys(plan.spec.phrases, 0))
    reasons: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pointbox-") as scratch:
        export = make_export(plan.spec, Path(scratch))
        errors = Path(scratch, ERRORS)
        with errors.open("wb") as file:
            for number in range(plan.shards):
                troubles = list(read_lines(target, errors_name(number), Trouble))
                file.write(to_lines(troubles))
                reasons.update(f"{trouble.stage}: {trouble.reason}" for trouble in troubles)
                images = objects = 0
                for trouble in troubles if export is not None else ():
                    export.missing(trouble)
                for result in read_lines(target, results_name(number), Result):
                    items = result.objects or result.points or ()
                    found.update(item.label for item in items)
                    images, objects = images + 1, objects + len(items)
                    if export is not None:
                        export.add(result)
                entries.append(_entry(number, images, len(troubles), objects))
        target.put(ERRORS, errors)
        for name, path in export.files() if export is not None else ():
            target.put(name, path)
        notes = export.notes() if export is not None else []
    summary = Summary(
        job=plan.job,
        spec=plan.spec,
        images=sum(entry.images for entry in entries),
        errors=sum(entry.errors for entry in entries),
        objects=sum(entry.objects for entry in entries),
        objects_by_phrase=dict(found),
        errors_by_reason=dict(reasons.most_common(100)),
        notes=notes,
    )
    target.put(INDEX, to_document(entries))
    target.put(SUMMARY, to_document(summary))
    return summary


def _entry(number: int, results: int, errors: int, objects: int) -> ShardEntry:
    return ShardEntry(
        results=results_name(number),
        errors_file=errors_name(number),
        images=results + errors,
        errors=errors,
        objects=objects,
    )
