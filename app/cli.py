"""The `pointbox` command. Whatever goes wrong is one line on stderr; exit code 2: the caller can mend it."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from app.access.commands import db, keys
from app.benchmarks import bench
from app.jobs.cli import batch
from app.jobs.commands import jobs
from app.problems import ProblemError
from app.setting_names import as_flags
from app.settings import Settings, SettingsError

UNREAD = 128 + signal.SIGPIPE
"""The status of a command whose reader went away, as a shell tells it."""

app = App(
    name="pointbox",
    help="Point at things in pictures: an image and a phrase become points and boxes.",
    version=lambda: version("pointbox-server"),
)

app.command(bench)
app.command(keys)
app.command(db)

Picture = Annotated[Path, Parameter(help="JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC or AVIF.")]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Auth = Literal["auto", "on", "off"]
Phrase = Annotated[str, Parameter(help="What to look for, such as 'red circle'.", required=True)]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Options:
    """What `detect` and `point` take alike.

    Parameters
    ----------
    model
        A model's name, or the folder of a checkpoint; tiny when POINTBOX_MODEL does not say otherwise.
    json
        Print the answer as the HTTP route words it.
    draw
        Write the picture with the answer drawn on it.
    max_objects
        Stop after this many for each phrase.
    min_score
        Leave out what is below, 0 to 1.
    region
        x_min,y_min,x_max,y_max: answers lie wholly inside; the image is not cropped. Fractions of it, or its
        pixels with --pixels.
    pixels
        Coordinates in pixels instead of fractions.
    dedupe
        Drop an object that repeats an earlier one.
    device
        cpu, cuda, or auto for a GPU where there is one.
    max_batch
        Phrases decoded at the same time.
    kv_memory
        Memory for keys and values, such as 512M or 2G.
    dtype
        Of the weights: auto, float32, bfloat16 or float16.
    revision
        Of a model of the Hugging Face hub: a branch, a tag or a commit.
    adapter
        A LoRA adapter to use, as name=folder, or the name of one in POINTBOX_ADAPTER.
    """

    model: str | None = None
    json: Annotated[bool, Parameter(negative="")] = False
    draw: Path | None = None
    max_objects: int = 50
    min_score: float = 0.0
    region: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    pixels: Annotated[bool, Parameter(negative="")] = False
    dedupe: Literal["on", "off"] = "on"
    device: str | None = None
    max_batch: int | None = None
    kv_memory: str | None = None
    dtype: Dtype | None = None
    revision: str | None = None
    adapter: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class EngineFlags:
    """How the engine of `serve` and `worker` runs; each wins over its POINTBOX_ variable.

    Parameters
    ----------
    device
        cpu, cuda, or auto for a GPU where there is one.
    max_batch
        Phrases that one worker decodes at the same time, 32 by default.
    kv_memory
        Memory for keys and values of one worker, such as 512M or 2G; by default what the rows and 256 images
        need, as far as the device has it.
    batch_share
        Part of the rows that batch requests hold at most while there are interactive ones; a sixteenth by
        default.
    decode_mb
        Megabytes that images of one worker take while they are decoded and prepared, 1024 by default.
    dtype
        Of the weights: auto, float32, bfloat16 or float16.
    revision
        Of a model of the Hugging Face hub: a branch, a tag or a commit.
    adapter
        A LoRA adapter that requests may name, as name=folder; may be given several times.
    """

    device: str | None = None
    max_batch: int | None = None
    kv_memory: str | None = None
    batch_share: float | None = None
    decode_mb: int | None = None
    dtype: Dtype | None = None
    revision: str | None = None
    adapter: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """As `Settings.load` takes them."""
        return {**asdict(self), "adapter": ",".join(self.adapter) or None}


@app.command
def detect(image: Picture, /, *phrase: Phrase, options: Options | None = None) -> int:
    """Find a box around everything that the phrases name."""
    from app.local import run

    return run("detect", image, phrase, options or Options())


@app.command
def point(image: Picture, /, *phrase: Phrase, options: Options | None = None) -> int:
    """Find a point on everything that the phrases name."""
    from app.local import run

    return run("point", image, phrase, options or Options())


app.command(batch)
app.command(jobs)


@app.command
def models(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """List the families of models that can be served, and the models that lie on this machine.

    Parameters
    ----------
    json
        Print one JSON document instead of tables.
    """
    from app.catalogue import print_catalogue

    return print_catalogue(json)


@app.command
def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    model: str | None = None,
    workers: int | None = None,
    auth: Auth | None = None,
    engine: EngineFlags | None = None,
) -> int:
    """Start the whole service: the API, engine workers and, without POINTBOX_REDIS_URL, a Valkey.

    Parameters
    ----------
    host
        The address to listen on; 127.0.0.1 when neither this nor POINTBOX_HOST is given.
    port
        The port to listen on, 8000 by default; 0 picks a free one.
    model
        A model's name, or the folder of a checkpoint; several with commas between, the first is the default.
    workers
        Engine workers for each model, 1 by default.
    auth
        Whether callers need a key; auto, the default: only where other machines can reach the host.
    """
    from app.serve import run_serve

    flags = (engine or EngineFlags()).settings
    return run_serve(Settings.load(host=host, port=port, model=model, workers=workers, auth=auth, **flags))


@app.command
def api(*, host: str | None = None, port: int | None = None, auth: Auth | None = None) -> int:
    """Start an API process only, in front of the Redis at POINTBOX_REDIS_URL."""
    from app.server import run_api

    return run_api(Settings.load(host=host, port=port, auth=auth))


@app.command
def worker(*, model: str | None = None, engine: EngineFlags | None = None) -> int:
    """Start an engine worker only, behind the Redis at POINTBOX_REDIS_URL."""
    from app.admission.worker import run_worker

    return run_worker(Settings.load(model=model, **(engine or EngineFlags()).settings))


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit: 0, 1 for what failed, 2 for what the caller can mend, `UNREAD`."""
    try:
        status = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        if sys.stdout is not None:  # it is where the shell closed it, as in `>&-`
            sys.stdout.flush()
    except ProblemError as problem:
        status = _complain(as_flags(problem.detail), 1 if problem.status >= 500 else 2)
    except MissingArgumentError as error:
        status = _complain(f"{error} {_hint(error)}", 2)
    except (SettingsError, CycloptsError) as error:
        status = _complain(str(error), 2)
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # whoever read our output has enough of it
        _end_output()
        status = UNREAD
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        status = UNREAD  # rich has seen it first, and has ended the output
    except OSError as error:  # no room left, or a disk that broke
        _end_output()
        status = _complain(error.strerror or str(error), 1)
    sys.exit(status if isinstance(status, int) else 0)


def _complain(message: str, status: int) -> int:
    print(f"pointbox: {' '.join(message.split())}", file=sys.stderr)
    return status


def _hint(error: MissingArgumentError) -> str:
    """Phrases take all words that follow, so a source behind them is not seen as one."""
    missing = error.argument and error.argument.field_info.name
    return (
        "Put it before --detect and --point, which take all words after them as phrases."
        if missing == "source"
        else ""
    )


def _end_output() -> None:
    """What is left of it goes nowhere, so that the interpreter does not fail on it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
