"""The command line of jobs; what it needs is imported when it is called."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from app.problems import ProblemError
from app.spatial.schemas import Task

Phrases = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Flag = Annotated[bool, Parameter(negative="")]


def batch(
    source: str,
    /,
    *,
    out: str,
    detect: Phrases = None,
    point: Phrases = None,
    model: str | None = None,
    endpoint: str | None = None,
    ray: str | None = None,
    ray_actors: int = 0,
    format: Literal["jsonl", "coco", "yolo", "labelstudio"] = "jsonl",
    max_objects: int = 50,
    min_score: float = 0.0,
    dedupe: Literal["on", "off"] = "on",
    job: str | None = None,
    shard_size: int = 500,
    s3_endpoint: str | None = None,
    s3_path_style: Flag = False,
    s3_allow_http: Flag = False,
) -> int:
    """Ask the same about every image of a bucket, a folder or a manifest; run it again to go on.

    Parameters
    ----------
    source
        s3://bucket/prefix, a folder, or a manifest (.jsonl, .csv) in either.
    out
        s3://bucket/prefix or a folder; results go to a folder in it that is named after the job.
    detect
        Phrases to find boxes for.
    point
        Phrases to find points for.
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
    task = task_of(detect, point)
    if endpoint is not None and ray is not None:
        raise ProblemError("invalid-request", "Use --endpoint or --ray, not both.")
    if max_objects < 1 or shard_size < 1 or not 0 <= min_score <= 1:
        raise ProblemError(
            "invalid-request", "--max-objects and --shard-size start at 1, --min-score is between 0 and 1."
        )
    from app.jobs.command import BatchOptions, run_batch
    from app.jobs.places import S3Options

    options = BatchOptions(
        task=task,
        phrases=point or detect or [],
        out=out,
        job=job,
        format=format,
        max_objects=max_objects,
        min_score=min_score,
        dedupe=dedupe == "on",
        shard_size=shard_size,
        s3=S3Options(s3_endpoint, s3_path_style, s3_allow_http),
        ray=ray,
        ray_actors=ray_actors,
    )
    return run_batch(source, options, model, endpoint)


def task_of(detect: list[str] | None, point: list[str] | None) -> Task:
    """Which of the two was asked for.  Raises ProblemError."""
    if detect and point:
        raise ProblemError("invalid-request", "Ask for --detect or for --point, not for both in one job.")
    return "point" if point else "detect"
