"""The CPU as a device: a compute thread and a copy thread with the order of CUDA streams.

It proves ordering, not speed: host work and forwards share the same cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from queue import SimpleQueue

import torch

from engine.device.base import Event


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
    """See the module's docstring."""

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")
        self.fixed_shapes = False
        self._compute = _Stream("pointbox-compute")
        self._copy = _Stream("pointbox-copy")

    def compute(self, work: Callable[[], None], key: Hashable = None) -> CpuEvent:
        return self._compute.enqueue(work)

    def copy(self, work: Callable[[], None], after: Event) -> CpuEvent:
        return self._copy.enqueue(work, after)

    def close(self) -> None:
        self._compute.close()
        self._copy.close()
