"""How far a job is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0


class Meter:
    """Counts images.

    done: starts with those of an earlier run.
    show: called after each image.
    """

    def __init__(self, total: int, done: int) -> None:
        self.total, self.done, self.errors = total, done, 0
        self.show: Callable[[], None] = lambda: None
        self._before, self._began = done, time.monotonic()

    def image(self, good: bool) -> None:
        self.done += 1
        self.errors += not good
        self.show()

    def at(self, done: int, errors: int) -> None:
        """What somebody else has counted."""
        self.done, self.errors = done, errors
        self.show()

    @property
    def rate(self) -> float:
        """Images per second of this run."""
        return (self.done - self._before) / max(1e-9, time.monotonic() - self._began)

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.done > self._before else None

    def line(self) -> str:
        left = self.seconds_left
        eta = "" if left is None else f", {left:.0f} s left"
        return f"{self.done} of {self.total} images, {self.rate:.1f} images/s, {self.errors} errors{eta}"


@contextmanager
def shown(meter: Meter) -> Iterator[None]:
    """Show the meter on stderr while the block runs."""
    console = Console(stderr=True)
    if console.is_terminal:
        with _bar(console) as bar:
            task = bar.add_task("", total=meter.total, completed=meter.done, rate=0.0, errors=0)
            meter.show = lambda: bar.update(task, completed=meter.done, rate=meter.rate, errors=meter.errors)
            yield
    else:
        meter.show = _now_and_then(lambda: print(meter.line(), file=sys.stderr, flush=True))
        yield
        print(meter.line(), file=sys.stderr, flush=True)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("images"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:.1f}/s  {task.fields[errors]} errors"),
        TimeRemainingColumn(),
        console=console,
    )


def _now_and_then(say: Callable[[], None]) -> Callable[[], None]:
    last = time.monotonic()

    def show() -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            say()

    return show
