"""The real scheduler, cursors, loop and executor on an emulated device, run tick by tick."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import torch

from bench.emulated import TOKENS_PER_OBJECT, EmulatedModel, ScriptedExecutor
from engine.attention import KvCache
from engine.device.emulated import Durations, EmulatedDevice, EmulatedEvent
from engine.engine import PAGE_SIZE
from engine.events import Event
from engine.loop import EngineLoop, Mode
from engine.models.base import Pixels
from engine.pages import PagePool
from engine.request import Request
from engine.scheduler import Limits, Scheduler
from engine.sequence import Ask, Sequence
from grammars.cursors import Cursors

T = TypeVar("T")
PAGES_PER_ROW = 32
MAX_TOKENS = 400
BACKLOG_PER_ROW = 4
"""Sequences that wait for a row, so that rows never lie idle within a window."""
SETTLING_TICKS = 4
SECTIONS = ("schedule", "launch", "commit", "mask", "finalize")


@dataclass(frozen=True, slots=True)
class Window:
    """Some ticks of one mode in a steady state.

    log: the compute stream's work.  cpu_s: of every thread, without what emulating took.
    """

    mode: Mode
    ticks: int
    log: list[EmulatedEvent]
    cpu_s: float


class Rig:
    """A context manager around an engine thread that ticks when it is told to.

    objects: how many objects each further sequence answers.
    """

    def __init__(
        self, model: EmulatedModel, durations: Durations, streams: int, objects: Iterator[int]
    ) -> None:
        torch.set_num_threads(1)
        gc.collect()
        gc.freeze()  # or collections walk everything that torch ever made
        self.device, self._objects, self._streams = EmulatedDevice(durations), objects, streams
        pool = PagePool(1 + PAGES_PER_ROW * streams)
        limits = Limits(streams, PAGE_SIZE, True, 1024, 0.5)
        cursors = Cursors(model.grammar, streams + 1)
        scheduler = Scheduler(pool, limits, cursors, model.grammar.has_runs)
        kv, where = model.kv, self.device.torch_device
        cache = KvCache(kv.layers, pool.total + 1, PAGE_SIZE, kv.kv_heads, kv.head_dim, kv.dtype, where)
        executor = ScriptedExecutor(model, self.device, cache, streams)
        self.loop = EngineLoop(scheduler, executor, pool, cursors, "pipelined", "host", None)
        self._model, self._scripts = model, executor.scripted.scripts
        self.fed: list[Sequence] = []

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.close()
        self.device.close()
        gc.unfreeze()

    def window(self, mode: Mode, ticks: int) -> Window:
        """Run `ticks` ticks after some that settle."""
        return self._on_engine_thread(lambda: self._window(mode, ticks))

    def sections(self, mode: Mode, ticks: int) -> dict[str, float]:
        """CPU seconds of each section of the loop over `ticks` ticks."""
        return self._on_engine_thread(lambda: self._sections(mode, ticks))

    def zombie_share(self) -> float:
        """Rows computed for sequences that had ended, per row that gave a token, over those that are over."""
        over = [s for s in self.fed if s.ask.over and s.inflight_refs == 0]
        useful = sum(s.ask.output_tokens for s in over)
        return (sum(s.launched for s in over) - useful) / useful

    def _window(self, mode: Mode, ticks: int) -> Window:
        self._settle(mode, ticks)
        log: list[EmulatedEvent] = []
        self.device.log = log
        before = self._cpu_s()
        for _ in range(ticks):
            self.loop.turn()
        spent = self._cpu_s() - before
        self.device.log = None
        return Window(mode, ticks, log, spent)

    def _sections(self, mode: Mode, ticks: int) -> dict[str, float]:
        self._settle(mode, ticks)
        probes = _Probes(self.loop, self.device)
        for _ in range(ticks):
            self.loop.turn()
        return probes.remove()

    def _settle(self, mode: Mode, ticks: int) -> None:
        """Change the mode while nothing is in flight, and have enough sequences for the ticks to come."""
        self.loop.drain()
        self.loop.mode = mode
        scheduler, backlog = self.loop.scheduler, self._streams * BACKLOG_PER_ROW
        tokens, need = 0, self._streams * (ticks + SETTLING_TICKS)
        while scheduler.waiting < backlog or tokens < need:
            tokens += self._feed()
        for _ in range(SETTLING_TICKS):
            self.loop.turn()

    def _feed(self) -> int:
        """One more request on an image of its own; roughly its tokens."""
        number, objects = len(self.fed), next(self._objects)
        prompt = [objects, number]
        self._scripts[tuple(prompt)] = self._model.script(*prompt)
        arriving: SimpleQueue[Event] = SimpleQueue()
        request = Request("detect", np.zeros((1, 1, 3), np.uint8), ("",), max_objects=MAX_TOKENS)
        ask = Ask(request, arriving.put, open_sequences=1)
        sequence = Sequence(
            ask=ask,
            phrase_index=0,
            prompt=prompt,
            label=[],
            image_key=number.to_bytes(8, "little"),
            pixels=Pixels(torch.zeros(1), self._model.image_tokens),
            image_tokens=self._model.image_tokens,
            shift=0,
            frame=None,
            max_tokens=MAX_TOKENS,
            seed=number,
        )
        self.fed.append(sequence)
        self.loop.admit(ask, [sequence])
        return TOKENS_PER_OBJECT * objects + 1

    def _cpu_s(self) -> float:
        """CPU time of every thread there is, without what emulating took."""
        threads = [t.ident for t in threading.enumerate() if t.ident is not None]
        clocks = [time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in threads]
        return sum(clocks) - self.device.cpu_s

    def _on_engine_thread(self, work: Callable[[], T]) -> T:
        answer: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

        def run() -> None:
            try:
                answer.put((work(), None))
            except BaseException as error:
                answer.put((None, error))

        self.loop.post(run)
        result, error = answer.get()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]


class _Probes:
    """Clocks around parts of the loop; what has a clock of its own is not counted twice."""

    def __init__(self, loop: EngineLoop, device: EmulatedDevice) -> None:
        self._device = device
        self._spent = dict.fromkeys(SECTIONS, 0.0)
        self._calls = dict.fromkeys(SECTIONS, 0)
        self._inner = 0.0
        parts: tuple[tuple[Any, str, str], ...] = (
            (loop.scheduler, "next_step", "schedule"),
            (loop, "launch", "launch"),
            (loop, "commit", "commit"),
            (loop.executor, "choose", "mask"),
            (loop, "finalize", "finalize"),
        )
        self._placed = [(owner, method) for owner, method, _ in parts]
        for owner, method, section in parts:
            setattr(owner, method, self._clocked(getattr(owner, method), section))

    def remove(self) -> dict[str, float]:
        """Seconds by section, without what the clocks themselves took."""
        for owner, method in self._placed:
            delattr(owner, method)
        spent, calls = dict(self._spent), dict(self._calls)
        clock = min(self._clock_s() for _ in range(20))
        return {section: spent[section] - clock * calls[section] for section in SECTIONS}

    def _clock_s(self) -> float:
        """What a clock adds to what it measures."""
        empty = self._clocked(lambda: None, SECTIONS[0])
        before = self._spent[SECTIONS[0]]
        for _ in range(20):
            empty()
        return (self._spent[SECTIONS[0]] - before) / 20

    def _clocked(self, function: Callable[..., Any], section: str) -> Callable[..., Any]:
        device, thread_time = self._device, time.thread_time

        def run(*arguments: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            before = thread_time() - device.cpu_s
            result = function(*arguments)
            spent = thread_time() - device.cpu_s - before
            self._spent[section] += spent - self._inner
            self._calls[section] += 1
            self._inner = outer + spent
            return result

        return run
