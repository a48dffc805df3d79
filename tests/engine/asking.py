"""Ways to ask an engine and to see that it is at rest; shared by the engine's and the models' tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from engine.adapters.bank import AdapterBank
from engine.answer import Answer, collect
from engine.device.base import Device
from engine.device.cpu import CpuDevice
from engine.engine import Engine, Handle
from engine.events import Event, Failed, Finished, Found
from engine.executor import Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from engine.trace import Trace
from grammars.types import Box, Item, Point, Task

PATIENCE_S = 120.0
"""After this a test says that something hangs; no test measures time."""
SCHEDULES: tuple[tuple[Mode, Placement], ...] = (
    ("pipelined", "host"),
    ("pipelined", "device"),
    ("blocking", "host"),
)

Image = npt.NDArray[np.uint8]


def picture(seed: int, height: int = 96, width: int = 128) -> Image:
    """Noise; no two seeds look alike."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def engine_on(
    model: Model,
    *,
    device: Device | None = None,
    mode: Mode = "pipelined",
    placement: Placement = "host",
    max_batch: int = 32,
    pages: int | None = None,
    prefill_tokens: int = 1024,
    max_tokens: int | None = None,
    batch_share: float = 0.5,
    trace: Trace | None = None,
    adapters: AdapterBank | None = None,
) -> Engine:
    """An engine on a model that several tests share."""
    return Engine(
        model,
        device or CpuDevice(),
        mode=mode,
        placement=placement,
        max_batch=max_batch,
        pages=pages,
        prefill_tokens=prefill_tokens,
        max_tokens=max_tokens,
        batch_share=batch_share,
        trace=trace,
        adapters=adapters,
    )


class Listener:
    """Keeps the events of one request; may be told to do something when one comes.

    late: what came after the last event, which nothing may.
    """

    def __init__(self, then: Callable[[Event], None] | None = None) -> None:
        self.events: list[Event] = []
        self.late: list[Event] = []
        self._then, self._over = then, threading.Event()

    def __call__(self, event: Event) -> None:
        (self.late if self.over else self.events).append(event)
        if self._then is not None:
            self._then(event)
        if isinstance(event, Finished | Failed):
            self._over.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def wait(self) -> list[Event]:
        assert self._over.wait(PATIENCE_S), f"no last event after {self.events}"
        return self.events

    @property
    def error(self) -> str | None:
        """The kind of a failure, None for a request that finished."""
        last = self.wait()[-1]
        return last.error.kind if isinstance(last, Failed) else None

    @property
    def found_at_end(self) -> list[Item]:
        assert self.error is None
        return self.found

    @property
    def found(self) -> list[Item]:
        return [e.item for e in self.events if isinstance(e, Found)]


def submit(
    engine: Engine, request: Request, then: Callable[[Event], None] | None = None
) -> tuple[Listener, Handle]:
    listener = Listener(then)
    return listener, engine.submit(request, listener)


def ask_together(engine: Engine, requests: Iterable[Request]) -> list[Answer]:
    """All at once; in the order asked."""
    asked = [(request, submit(engine, request)[0]) for request in requests]
    return [collect(engine.model_info, request, listener.wait()) for request, listener in asked]


def until(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up, f"never happened: {what}"
        time.sleep(0.002)


def idle(engine: Engine) -> bool:
    stats = engine.stats()
    return stats.rows_active == stats.waiting == 0


def holdings(engine: Engine) -> dict[str, int]:
    """Counts of rows and pages, without those of what was done since the start."""
    stats = asdict(engine.stats())
    return {name: count for name, count in stats.items() if name.startswith(("rows", "pages", "waiting"))}


def assert_at_rest(engine: Engine) -> None:
    """Idle, nothing held, and every page free once the cache is dropped."""
    until(partial(idle, engine), "the engine is idle")
    engine.check_integrity()
    stats = engine.stats()
    assert stats.pages_held == 0
    assert stats.pages_free + stats.pages_cached == stats.pages_total
    engine.clear_cache()
    engine.check_integrity()
    stats = engine.stats()
    assert stats.pages_cached == 0
    assert stats.pages_free == stats.pages_total


def valid(item: Item) -> bool:
    if isinstance(item, Box):
        inside = 0 <= item.x_min < item.x_max <= 1 and 0 <= item.y_min < item.y_max <= 1
    else:
        inside = 0 <= item.x <= 1 and 0 <= item.y <= 1
    return inside and 0 <= item.score <= 1


@dataclass(frozen=True)
class Said:
    """What decides whether two answers are the same: places, labels and reasons; scores may differ in the
    last bits between shapes."""

    places: tuple[tuple[float, ...], ...]
    reasons: tuple[str, ...]
    output_tokens: int


def said(answer: Answer) -> Said:
    boxes = tuple((o.phrase_index, o.x_min, o.y_min, o.x_max, o.y_max) for o in answer.objects)
    points = tuple((p.phrase_index, p.x, p.y) for p in answer.points)
    reasons = tuple(p.finish_reason for p in answer.phrases)
    return Said(boxes + points, reasons, answer.metrics.output_tokens)


def items_of(answer: Answer) -> list[Item]:
    boxes = [Box(o.x_min, o.y_min, o.x_max, o.y_max, o.score) for o in answer.objects]
    return [*boxes, *(Point(p.x, p.y, p.score) for p in answer.points)]


def places_of(items: Sequence[Item]) -> list[tuple[float, ...]]:
    return [(i.x_min, i.y_min, i.x_max, i.y_max) if isinstance(i, Box) else (i.x, i.y) for i in items]


def tokens_of(model: Model, task: Task, answer: Answer) -> list[int]:
    """The tokens of an answer in the default dialect that ended by itself, or those of its whole objects.

    Bins are exact: a coordinate is a bin over 1024.
    """
    alphabet = model.grammar.alphabet.tolist()
    first = alphabet[model.grammar.first_coordinate]
    end, start = sorted(set(alphabet) - set(range(first, first + 1024)))
    tokens: list[int] = []
    for item in items_of(answer):
        if isinstance(item, Box):
            values = (item.y_min, item.x_min, item.y_max, item.x_max)
        else:
            values = (item.y, item.x)
        tokens += [start, *(first + int(v * 1024) for v in values)]
    if answer.phrases[0].finish_reason == "stop":
        tokens.append(end)
    return tokens
