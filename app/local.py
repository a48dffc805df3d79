"""detect and point on this machine: the engine in this very process, no service, no queue."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec
from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.admission.translate import failure
from app.draw import draw_answer
from app.intake.decode import Decoded, decode
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.answers import build_answer
from app.spatial.from_engine import completed
from app.spatial.phrases import check_phrases
from app.spatial.schemas import MAX_OBJECTS, DetectAnswer, PointAnswer, Task
from engine.answer import Answer
from engine.errors import EngineError

if TYPE_CHECKING:
    from app.cli import Options


def run(task: Task, image: Path, phrases: Sequence[str], options: Options) -> int:
    """Answer on stdout, and on the picture `options.draw` when it is given; the exit status.

    Raises:
        ProblemError: everything that can be wrong with what was asked.
    """
    check_phrases(phrases, field="object")
    if not 1 <= options.max_objects <= MAX_OBJECTS:
        raise ProblemError("invalid-request", f"--max-objects must be between 1 and {MAX_OBJECTS}.")
    if options.draw is not None:
        _check_drawable(options.draw)
    started = perf_counter()
    decoded = decode(_read(image))
    intake_ms = (perf_counter() - started) * 1000
    answer = build_answer(
        task,
        completed(_ask(task, decoded, phrases, options), decoded.notes, intake_ms),
        request_id=uuid.uuid4().hex,
        phrases=phrases,
        units="pixels" if options.pixels else "normalized",
    )
    if options.draw is not None:
        drawn = draw_answer(Image.fromarray(decoded.image), answer, pixels=options.pixels)
        _save(drawn, options.draw)
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        _print_table(answer, image.name, digits=1 if options.pixels else 3)
    return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        detail = f"There is no file {path}."
    except OSError as error:
        detail = f"{path} cannot be read: {error.strerror or error}."
    raise ProblemError("invalid-request", detail, field="image")


def _check_drawable(path: Path) -> None:
    """Before the work and not after it."""
    reason = ""
    if path.suffix.lower() not in Image.registered_extensions():
        reason = "use a name that ends in .png"
    elif not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    if reason:
        raise ProblemError("invalid-request", f"--draw cannot write {path}: {reason}.")


def _save(picture: Image.Image, path: Path) -> None:
    try:
        picture.save(path)
    except (OSError, ValueError) as error:
        raise ProblemError("invalid-request", f"--draw cannot write {path}: {error}.") from None


def _ask(task: Task, decoded: Decoded, phrases: Sequence[str], options: Options) -> Answer:
    """The engine's answer. Torch is imported here, when it is known that there is work for it."""
    from engine.engine import Engine

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
        with Engine.load(settings.model, **settings.engine_options) as engine:
            ask = engine.detect if task == "detect" else engine.point
            return ask(
                decoded.image,
                list(phrases),
                max_objects=options.max_objects,
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
