"""What the engine needs of a device: a compute stream, a copy stream, and events between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, runtime_checkable

import torch


class Event(Protocol):
    """A mark on a stream.

    error: what the work before the mark raised, as far as that is known without waiting.
    """

    error: BaseException | None

    def wait(self) -> None:
        """Block the host until everything before the mark is done; raises what that work raised."""
        ...


@runtime_checkable
class Timed(Protocol):
    """An event that knows when its work ran."""

    @property
    def ran(self) -> tuple[float, float]:
        """Begin and end in seconds of `time.perf_counter()`, once it was waited for."""
        ...


class Device(Protocol):
    """Work given to one stream runs in the order given.

    torch_device: where tensors live.
    fixed_shapes: whether work with a key should always have the same shapes, because it is recorded.
    """

    torch_device: torch.device
    fixed_shapes: bool

    def compute(self, work: Callable[[], None], key: Hashable = None) -> Event:
        """Enqueue work on the compute stream; returns at once.

        Work of one key does the same on the same buffers each time, so a device may record it once and
        replay it.  Work without a key runs as it is.
        """
        ...

    def divide(self, items: int, size: int, work: Callable[[slice], None]) -> None:
        """Do work for items that do not need each other, whole or in parts at the same time.

        size: multiply-adds of one item in one square layer of the model.
        Called by work on the compute stream, which goes on when all of it is done; raises what a part raises.
        """
        ...

    def copy(self, work: Callable[[], None], after: Event) -> Event:
        """Enqueue work on the copy stream, to begin when `after` has passed."""
        ...

    def close(self) -> None:
        """Finish what was enqueued and end the streams."""
        ...
