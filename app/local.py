"""detect and point on this machine: the engine in this very process, no service, no queue."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.admission.translate import failure
from app.intake.decode import Decoded, decode
from app.loading import load_engine
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.answers import build_answer
from app.spatial.from_engine import completed
from app.spatial.phrases import check_phrases
from app.spatial.regions import Region, in_fractions
from app.spatial.schemas import MAX_OBJECTS, DetectAnswer, PointAnswer, Task, Units
from engine.answer import Answer
from engine.errors import EngineError

if TYPE_CHECKING:
    from app.cli import Options

_ELSEWHERE = re.compile(r"(https?|s3|data|ftp|file):")


def run(task: Task, image: Path, phrases: Sequence[str], options: Options) -> int:
    """Answer on stdout, and on the picture `options.draw` when it is given; the exit status.

    Raises:
        ProblemError: everything that can be wrong with what was asked.
    """
    check_phrases(phrases, field="object")
    region = _checked(options)
    started = perf_counter()
    decoded = decode(_read(image))
    intake_ms = (perf_counter() - started) * 1000
    units: Units = "pixels" if options.pixels else "normalized"
    if region is not None:
        region = in_fractions(region, units, decoded.image.shape[1], decoded.image.shape[0])
    found = completed(_ask(task, decoded, phrases, region, options), decoded.notes, intake_ms)
    answer_in = partial(build_answer, task, found, request_id=uuid.uuid4().hex, phrases=phrases)
    answer = answer_in(units=units)
    if options.draw is not None:
        _save(Image.fromarray(decoded.image), answer_in(units="normalized"), options.draw)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        _print_table(answer, image.name, digits=1 if options.pixels else 3)
    return 0


def _checked(options: Options) -> Region | None:
    """The region as it was given, everything else being in order.  Raises ProblemError."""
    if not 1 <= options.max_objects <= MAX_OBJECTS:
        raise ProblemError("invalid-request", f"--max-objects must be between 1 and {MAX_OBJECTS}.")
    if not 0 <= options.min_score <= 1:
        raise ProblemError("invalid-request", "--min-score must be between 0 and 1.")
    if options.draw is not None:
        _check_drawable(options.draw)
    return None if options.region is None else _numbers(options.region)


def _numbers(region: str) -> Region:
    try:
        x_min, y_min, x_max, y_max = map(float, region.split(","))
    except ValueError:
        detail = f"--region is four numbers with commas, such as 0.1,0.2,0.8,0.9, not {region!r}."
        raise ProblemError("invalid-request", detail) from None
    return x_min, y_min, x_max, y_max


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        detail = f"There is no file {path}."
        if _ELSEWHERE.match(str(path)):
            detail = "IMAGE is a file on this machine, not a URL: download it and give the name of the file."
    except IsADirectoryError:
        detail = f"{path} is a folder: `pointbox batch` asks about all images of one."
    except OSError as error:
        detail = f"{path} cannot be read: {error.strerror or error}."
    raise ProblemError("invalid-request", detail, field="image")


def _check_drawable(path: Path) -> None:
    """Before the work and not after it."""
    import_module("app.client")  # where it is missing, it says so
    reason = ""
    if Image.registered_extensions().get(path.suffix.lower()) not in Image.SAVE:
        reason = "use a name that ends in .png"
    elif not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    elif path.is_dir():
        reason = "it is a folder"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "you may not write there"
    if reason:
        raise ProblemError("invalid-request", f"--draw cannot write {path}: {reason}.")


def _save(picture: Image.Image, answer: DetectAnswer | PointAnswer, path: Path) -> None:
    from app.draw import draw_answer

    try:
        draw_answer(picture, answer).save(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProblemError("invalid-request", f"--draw cannot write {path}: {reason}.") from None


def _ask(
    task: Task, decoded: Decoded, phrases: Sequence[str], region: Region | None, options: Options
) -> Answer:
    """The engine's answer."""
    name, is_new, _ = (options.adapter or "").partition("=")
    settings = Settings.load(
        model=options.model,
        device=options.device,
        dtype=options.dtype,
        revision=options.revision,
        max_batch=options.max_batch,
        kv_memory=options.kv_memory,
        adapter=None if name and not is_new else options.adapter or "",
    )
    try:
        with load_engine(settings) as engine:
            ask = engine.detect if task == "detect" else engine.point
            return ask(
                decoded.image,
                list(phrases),
                max_objects=options.max_objects,
                min_score=options.min_score,
                region=region,
                dedupe=options.dedupe == "on",
                adapter=name.strip() or None,
            )
    except EngineError as error:
        told = failure(error)
        raise ProblemError(told.problem, told.detail, field=told.field) from None


def _print_table(answer: DetectAnswer | PointAnswer, name: str, digits: int) -> None:
    console = Console(highlight=False, markup=False)
    columns = ("x_min", "y_min", "x_max", "y_max") if isinstance(answer, DetectAnswer) else ("x", "y")
    found = answer.objects if isinstance(answer, DetectAnswer) else answer.points
    size = f"{answer.image.width} x {answer.image.height}"
    table = Table(title=Text(f"{name}, {size}"), title_justify="left")
    table.add_column("phrase")
    for column in (*columns, "score"):
        table.add_column(column, justify="right")
    for item in found:
        values = [f"{getattr(item, column):.{digits}f}" for column in columns]
        table.add_row(Text(item.label), *values, f"{item.score:.2f}")
    if found:
        console.print(table)
    for note in answer.notes or ():
        console.print(f"Note: {note}.")
    for index, phrase in enumerate(answer.phrases):
        if not any(item.phrase_index == index for item in found):
            console.print(f"Nothing found for {phrase.object!r}.")
        if phrase.truncated:
            console.print(f"The list for {phrase.object!r} was cut: {phrase.finish_reason}.")
