"""`pointbox jobs`: the jobs of a running service, through its client, which is imported when it is needed."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from app.jobs.cli import FormatName, Phrases, task_of
from app.problems import ProblemError

if TYPE_CHECKING:
    import pointbox

jobs = App(
    name="jobs",
    help="Submit jobs to a service and follow them. POINTBOX_API_KEY is the key, if it wants one.",
)

Endpoint = Annotated[str | None, Parameter(help="Where the service is; POINTBOX_URL by default.")]
JobId = Annotated[str, Parameter(help="As submit and list show it.")]
POLL_S = 1.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class JobFlags:
    """What `submit` is told beside the source.

    Parameters
    ----------
    out
        A store of the service, as store or store/prefix; results get a folder in it, named after the job.
    detect
        Phrases to find boxes for: all words up to the next option, so SOURCE goes before.
    point
        Phrases to find points for, likewise.
    manifest
        A .jsonl or .csv file below the source that names the images, and perhaps their phrases.
    model
        A model of the service.
    format
        coco, yolo or labelstudio write a file of that kind beside the results, which are JSON lines.
    max_objects
        For each phrase, 50 by default.
    min_score
        Objects below it are left out.
    dedupe
        Leave out an object that repeats an earlier one of its phrase.
    shard_size
        Images whose results are written at once, 500 by default.
    webhook
        A URL that gets the job when it has ended.
    """

    out: str
    detect: Phrases = None
    point: Phrases = None
    manifest: str | None = None
    model: str | None = None
    format: FormatName = "jsonl"
    max_objects: int | None = None
    min_score: float | None = None
    dedupe: Literal["on", "off"] = "on"
    shard_size: int | None = None
    webhook: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """As the client takes them."""
        given = asdict(self)
        for name in ("out", "detect", "point"):
            del given[name]
        return given | {"task": task_of(self.detect, self.point), "dedupe": self.dedupe == "on"}


@jobs.command
def submit(source: str, /, *, flags: JobFlags, endpoint: Endpoint = None) -> int:
    """Leave a job with a service; its id is printed alone on standard output.

    Parameters
    ----------
    source
        A store of the service, as store or store/prefix.
    """
    options = flags.options
    from app.jobs.endpoint import client_of

    with client_of(endpoint) as client:
        job = client.jobs.submit(source, flags.out, flags.point or flags.detect or (), **options)
    print(job.id)
    where = f" --endpoint {endpoint}" if endpoint else ""
    print(f"Follow it with: pointbox jobs watch {job.id}{where}", file=sys.stderr)
    return 0


@jobs.command(name="list")
def listed(*, limit: int = 20, endpoint: Endpoint = None) -> int:
    """List the jobs, newest first.

    Parameters
    ----------
    limit
        How many.
    """
    if limit < 1:
        raise ProblemError("invalid-request", f"--limit must be 1 or more, not {limit}.")
    from itertools import islice

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from app.jobs.endpoint import client_of

    table = Table("id", "state", "images", "errors", "objects", "submitted", "phrases")
    with client_of(endpoint) as client:
        for job in islice(client.jobs.list(), limit):
            so_far = job.progress
            of = "?" if so_far.images is None else so_far.images
            numbers = (f"{so_far.done} of {of}", str(so_far.errors), str(so_far.objects))
            when = f"{job.created_at:%Y-%m-%d %H:%M}"
            table.add_row(job.id, job.state, *numbers, when, Text(", ".join(job.request.objects)))
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    return 0


@jobs.command
def show(job: JobId, /, *, endpoint: Endpoint = None) -> int:
    """Print all that is known of a job, as JSON."""
    import msgspec

    from app.jobs.endpoint import client_of

    with client_of(endpoint) as client:
        print(msgspec.json.format(msgspec.json.encode(client.jobs.get(job)), indent=2).decode())
    return 0


@jobs.command
def watch(job: JobId, /, *, endpoint: Endpoint = None) -> int:
    """Follow a job to its end; exit code 0 when it is completed, 1 when it failed or was cancelled.

    Ctrl-C ends the watching and not the job.
    """
    from app.jobs.endpoint import client_of

    with client_of(endpoint) as client:
        now = _planned(client, job)
        if not now.ended:
            now = _followed(client, now)
    print(_line(now))
    for note in now.notes:
        print(f"Note: {note}")
    return 0 if now.state == "completed" else 1


@jobs.command
def cancel(job: JobId, /, *, endpoint: Endpoint = None) -> int:
    """Stop a job; what is done stays."""
    from app.jobs.endpoint import client_of

    with client_of(endpoint) as client:
        print(_line(client.jobs.cancel(job)))
    return 0


@jobs.command
def resume(job: JobId, /, *, endpoint: Endpoint = None) -> int:
    """Go on with a job that failed or was cancelled."""
    from app.jobs.endpoint import client_of

    with client_of(endpoint) as client:
        print(_line(client.jobs.resume(job)))
    return 0


@jobs.command
def results(
    job: JobId,
    /,
    *,
    errors: Annotated[bool, Parameter(negative="")] = False,
    endpoint: Endpoint = None,
) -> int:
    """Print the results so far as JSON lines.

    Parameters
    ----------
    errors
        The images without a result instead.
    """
    import msgspec

    from app.jobs.endpoint import client_of

    with client_of(endpoint) as client, suppress(BrokenPipeError):
        if errors:
            for failure in client.jobs.errors(job):
                print(msgspec.json.encode(failure).decode())
        else:
            for result in client.jobs.results(job):
                print(result.to_json())
    return 0


def _planned(client: pointbox.Client, job: str) -> pointbox.Job:
    """Waits until the job has a plan, so that its number of images is known, or has ended."""
    said = ""
    while (now := client.jobs.get(job)).progress.images is None and not now.ended:
        if (line := _line(now)) != said:
            print(line, file=sys.stderr, flush=True)
        said = line
        time.sleep(POLL_S)
    return now


def _followed(client: pointbox.Client, job: pointbox.Job) -> pointbox.Job:
    from app.jobs.progress import Meter, shown

    meter = Meter(job.progress.images or 0, job.progress.done)
    with shown(meter):
        return client.jobs.wait(job, progress=lambda now: meter.at(now.progress.done, now.progress.errors))


def _line(job: pointbox.Job) -> str:
    so_far = job.progress
    images = "" if so_far.images is None else f" {so_far.done} of {so_far.images} images,"
    why = f" ({job.reason})" if job.reason else ""
    return f"Job {job.id}: {job.state},{images} {so_far.errors} errors, {so_far.objects} objects{why}"
