"""The CPU as a device: a compute thread and a copy thread with the order of CUDA streams.

Host work and forwards share the cores, so a pipeline has little to hide here.  What counts is that no core
waits for another: small work stays on one thread, and images are divided among threads that each compute
whole ones, since threads that share an operator wait for each other after every one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import torch

from engine.device.base import Event

SMALL = 8_000_000
"""Multiply-adds of a layer, about 0.1 ms of a core, below which further threads cost more than they give."""
PART = 4
"""Items that a thread takes at a time: more do not make it quicker, fewer leave no core idle at the end."""


class CpuEvent:
    """Set when its work is done; keeps what the work raised for whoever waits."""

    __slots__ = ("_done", "error", "ran")

    def __init__(self) -> None:
        self._done = threading.Event()
        self.error: BaseException | None = None
        self.ran = (0.0, 0.0)

    def wait(self) -> None:
        self._done.wait()
        if self.error is not None:
            raise self.error

    def run(self, work: Callable[[], None], after: Event | None) -> None:
        begin = time.perf_counter()
        try:
            if after is not None:
                after.wait()
                begin = time.perf_counter()
            work()
        except BaseException as error:  # the waiter decides
            self.error = error
        finally:
            self.ran = begin, time.perf_counter()
            self._done.set()


class _Stream:
    """A thread that runs work in the order given."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], None], CpuEvent, Event | None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def enqueue(self, work: Callable[[], None], after: Event | None = None) -> CpuEvent:
        event = CpuEvent()
        self._queue.put((work, event, after))
        return event

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        with torch.inference_mode():
            while (entry := self._queue.get()) is not None:
                work, event, after = entry
                event.run(work, after)
                del entry, work, event, after  # or the last step's tensors live until the next one


class CpuDevice:
    """See the module's docstring.  Uses as many threads as torch would where it is made."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self.fixed_shapes = False
        self._threads = torch.get_num_threads()
        self._parts = ThreadPoolExecutor(self._threads, "pointbox-part")
        started = threading.Barrier(self._threads)  # all threads now, or their number depends on the load
        list(self._parts.map(lambda _: started.wait(), range(self._threads)))
        self._compute = _Stream("pointbox-compute")
        self._copy = _Stream("pointbox-copy")

    def compute(self, work: Callable[[], None], key: Hashable = None) -> CpuEvent:
        return self._compute.enqueue(partial(_run_on, 1, work))

    def divide(self, items: int, size: int, work: Callable[[slice], None]) -> None:
        if self._threads == 1 or items * size < SMALL:
            work(slice(0, items))
        elif items < self._threads and size >= SMALL:
            _run_on(self._threads, lambda: work(slice(0, items)))
        else:
            each = min(PART, -(-items // self._threads))
            parts = [slice(first, min(first + each, items)) for first in range(0, items, each)]
            running = [self._parts.submit(_part, work, part) for part in parts]
            wait(running)  # all of them, or a part would still write after the step has failed
            for done in running:
                done.result()

    def copy(self, work: Callable[[], None], after: Event) -> CpuEvent:
        return self._copy.enqueue(work, after)

    def close(self) -> None:
        self._compute.close()
        self._copy.close()
        self._parts.shutdown()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """How many threads an operator takes that this thread calls.

    Some of torch's libraries know but one number for all threads of the process, so it is put back.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_on(count: int, work: Callable[[], None]) -> None:
    with threads(count):
        work()


@torch.inference_mode()
def _part(work: Callable[[slice], None], part: slice) -> None:
    torch.set_num_threads(1)
    work(part)
