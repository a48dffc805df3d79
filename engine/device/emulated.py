"""A device that takes exactly the times it is given, to measure what the host adds to them.

Each piece of work begins at the later of its enqueuing and the end of the one before it on its stream, and
ends its duration later: known when it is enqueued, so no thread keeps the time.  Whoever waits sleeps until
that moment without the GIL, as in a driver's wait.

The work itself must still run, so that tokens are real.  It runs in order and just before a wait sleeps,
which hides it as long as it takes less than the wait; `cpu_s` counts it as the device's.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import torch

from engine.device.base import Event

Kind = Literal["forward", "prefill", "sample", "copy", "reset"]
SPIN_S = 60e-6
"""The end of a sleep is spun: the kernel wakes a sleeper up to this late."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds.

    forward: of a decode step.  prefill: of any other forward.  sample, copy: of every step.
    reset: of the block tables of rows given to a prefill.
    launch: of the host in the driver for each piece of work enqueued, before it can begin.
    sync: of the host in the driver after the end of a copy that it waited for.
    """

    forward: float = 0.0
    prefill: float = 0.0
    sample: float = 0.0
    copy: float = 0.0
    reset: float = 0.0
    launch: float = 0.0
    sync: float = 0.0


@dataclass(eq=False, slots=True)
class EmulatedEvent:
    """One piece of work; times in seconds of `time.perf_counter()`.

    idle: how long its stream had nothing to do before it.
    """

    device: EmulatedDevice
    kind: Kind
    work: Callable[[], None] | None
    begin: float
    end: float
    idle: float
    error: BaseException | None = None

    @property
    def ran(self) -> tuple[float, float]:
        return self.begin, self.end

    def wait(self) -> None:
        if self.work is not None or time.perf_counter() < self.end:
            self.device.wait(self)
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        work, self.work = self.work, None
        assert work is not None
        try:
            work()
        except BaseException as error:  # the waiter decides
            self.error = error


class EmulatedDevice:
    """See the module's docstring.  One thread at a time enqueues and waits.

    log: the compute stream's work, in order, once someone sets it to a list.
    cpu_s: thread CPU time that went into emulating, on whatever thread.
    """

    def __init__(self, durations: Durations) -> None:
        self.torch_device = torch.device("cpu")
        self.fixed_shapes = True
        self.durations = durations
        self.log: list[EmulatedEvent] | None = None
        self.cpu_s = 0.0
        self._pending: deque[EmulatedEvent] = deque()
        self._compute_end = self._copy_end = 0.0
        self._sleep = _Sleeper()

    def compute(self, work: Callable[[], None], key: Hashable = None) -> EmulatedEvent:
        kind: Kind = "prefill"
        if isinstance(key, tuple):
            kind = key[0]
        event = self._enqueue(kind, work, self._compute_end)
        self._compute_end = event.end
        if self.log is not None:
            self.log.append(event)
        return event

    def divide(self, items: int, size: int, work: Callable[[slice], None]) -> None:
        work(slice(0, items))

    def copy(self, work: Callable[[], None], after: Event) -> EmulatedEvent:
        assert isinstance(after, EmulatedEvent)
        event = self._enqueue("copy", work, self._copy_end, after.end)
        self._copy_end = event.end
        return event

    def wait(self, event: EmulatedEvent) -> None:
        """Until the work has run and its time is over."""
        before = time.thread_time()
        if event.work is not None:
            self._run_until(event)
        self._sleep.until(event.end)
        if event.kind == "copy" and self.durations.sync:
            self._sleep.until(time.perf_counter() + self.durations.sync)
        self.cpu_s += time.thread_time() - before

    def close(self) -> None:
        if self._pending:
            self._run_until(self._pending[-1])

    def _enqueue(
        self, kind: Kind, work: Callable[[], None], free: float, after: float = 0.0
    ) -> EmulatedEvent:
        now = time.perf_counter()
        if self.durations.launch:
            before = time.thread_time()
            now += self.durations.launch
            self._sleep.until(now)
            self.cpu_s += time.thread_time() - before
        begin = max(now, free, after)
        end = begin + getattr(self.durations, kind)
        event = EmulatedEvent(self, kind, work, begin, end, begin - free)
        self._pending.append(event)
        return event

    def _run_until(self, event: EmulatedEvent) -> None:
        """Everything enqueued up to an event, in that order: none needs what was enqueued later."""
        with torch.inference_mode():
            while event.work is not None:
                self._pending.popleft().run()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Sleeper:
    """Sleeps until moments of `time.perf_counter()`, without the GIL."""

    ABSOLUTE = 1

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._nanosleep, self._short_call = libc.clock_nanosleep, libc.getppid
        self._until = _Timespec()
        self._lock = threading.Lock()

    def until(self, moment: float) -> None:
        wake = moment - SPIN_S
        if wake > time.perf_counter():
            with self._lock:
                self._until.seconds, rest = divmod(int(wake * 1e9), 1_000_000_000)
                self._until.nanoseconds = rest
                self._nanosleep(time.CLOCK_MONOTONIC, self.ABSOLUTE, ctypes.byref(self._until), None)
        while time.perf_counter() < moment:
            self._short_call()  # any call through ctypes lets go of the GIL
