"""`pointbox batch`; what it needs is imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from app.problems import ProblemError
from app.spatial.schemas import MAX_OBJECTS, Task

Phrases = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Flag = Annotated[bool, Parameter(negative="")]
FormatName = Literal["jsonl", "coco", "yolo", "labelstudio"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFlags:
    """What `pointbox batch` is told beside the source.

    Parameters
    ----------
    out
        s3://bucket/prefix or a folder; results go to a folder in it that is named after the job.
    detect
        Phrases to find boxes for: all words up to the next option, so SOURCE goes before.
    point
        Phrases to find points for, likewise.
    model
        A model's name, or the folder of a checkpoint.
    endpoint
        The URL of a running service that answers instead of an engine in this process. POINTBOX_API_KEY is
        the key, if it wants one.
    ray
        The address of a Ray whose machines share the work, auto for the one that runs here, or local for a
        new one on this machine.
    ray_actors
        Engines on the machines of the Ray; by default one for each.
    format
        coco, yolo or labelstudio write a file of that kind beside the results, which are JSON lines.
    max_objects
        For each phrase.
    min_score
        Objects below it are left out.
    dedupe
        Leave out an object that repeats an earlier one of its phrase.
    job
        A name for the job; by default it follows from what is asked, so the same command goes on.
    shard_size
        Images whose results are written at once: what a kill costs at most.
    s3_endpoint
        Of servers other than AWS; keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile.
    s3_path_style
        The server takes the bucket in the path.
    s3_allow_http
        The server is reached without TLS.
    """

    out: str
    detect: Phrases = None
    point: Phrases = None
    model: str | None = None
    endpoint: str | None = None
    ray: str | None = None
    ray_actors: int = 0
    format: FormatName = "jsonl"
    max_objects: int = 50
    min_score: float = 0.0
    dedupe: Literal["on", "off"] = "on"
    job: str | None = None
    shard_size: int = 500
    s3_endpoint: str | None = None
    s3_path_style: Flag = False
    s3_allow_http: Flag = False

    @property
    def task(self) -> Task:
        return task_of(self.detect, self.point)

    @property
    def phrases(self) -> list[str]:
        return self.point or self.detect or []

    def check(self) -> None:
        """Raises ProblemError for numbers out of range and for flags that exclude each other."""
        task_of(self.detect, self.point)
        if self.endpoint is not None and self.ray is not None:
            raise ProblemError("invalid-request", "Use --endpoint or --ray, not both.")
        if not 1 <= self.max_objects <= MAX_OBJECTS:
            raise ProblemError("invalid-request", f"--max-objects must be between 1 and {MAX_OBJECTS}.")
        if self.shard_size < 1:
            raise ProblemError("invalid-request", "--shard-size must be 1 or more.")
        if self.ray_actors < 0:
            raise ProblemError("invalid-request", "--ray-actors must not be negative.")
        if not 0 <= self.min_score <= 1:
            raise ProblemError("invalid-request", "--min-score must be between 0 and 1.")


def batch(source: str, /, *, flags: BatchFlags) -> int:
    """Ask the same about every image of a bucket, a folder or a manifest; run it again to go on.

    Parameters
    ----------
    source
        s3://bucket/prefix, a folder, or a manifest (.jsonl, .csv) in either.
    """
    flags.check()
    from app.jobs.command import run_batch

    return run_batch(source, flags)


def task_of(detect: list[str] | None, point: list[str] | None) -> Task:
    """Which of the two was asked for.  Raises ProblemError."""
    if detect and point:
        raise ProblemError("invalid-request", "Ask for --detect or for --point, not for both in one job.")
    return "point" if point else "detect"
