"""Real parts with one thing wrong: devices that are late or fail, a model that can be held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from engine.device.base import Event
from engine.device.cpu import CpuDevice
from engine.models.base import Encoded, Model, Pixels
from tests.engine.asking import PATIENCE_S

Work = Callable[[], None]


class DeviceBroke(RuntimeError):
    """What a broken device raises here."""


class Wrapped:
    """The CPU device; see `engine.device.base.Device`."""

    def __init__(self) -> None:
        self._real = CpuDevice()
        self.torch_device = self._real.torch_device
        self.fixed_shapes = self._real.fixed_shapes

    def compute(self, work: Work, key: Hashable = None) -> Event:
        return self._real.compute(work, key)

    def divide(self, items: int, size: int, work: Callable[[slice], None]) -> None:
        self._real.divide(items, size, work)

    def copy(self, work: Work, after: Event) -> Event:
        return self._real.copy(work, after)

    def close(self) -> None:
        self._real.close()


class FailsOnce(Wrapped):
    """The k-th piece of work on the compute stream, from 0, is not done but raises."""

    def __init__(self, fails: int, error: Exception | None = None) -> None:
        super().__init__()
        self._left, self._error = fails, error or DeviceBroke("the device broke")
        self.failed = False

    def compute(self, work: Work, key: Hashable = None) -> Event:
        self._left -= 1
        if self._left == -1:
            return super().compute(self._raise, key)
        return super().compute(work, key)

    def _raise(self) -> None:
        self.failed = True
        raise self._error


class LateCopies(Wrapped):
    """Every copy to the host takes its time, so that much could happen to what it reads."""

    def __init__(self, delay_s: float) -> None:
        super().__init__()
        self._delay_s = delay_s

    def copy(self, work: Work, after: Event) -> Event:
        def late() -> None:
            time.sleep(self._delay_s)
            work()

        return super().copy(late, after)


class Held(Wrapped):
    """The compute stream stands still from `hold` to `go`, after `more` pieces of work at most."""

    def __init__(self) -> None:
        super().__init__()
        self._open = threading.Event()
        self._open.set()
        self._more = 0
        self.still = threading.Event()

    def hold(self, more: int = 0) -> None:
        self._more = more
        self.still.clear()
        self._open.clear()

    def go(self) -> None:
        self._open.set()

    def compute(self, work: Work, key: Hashable = None) -> Event:
        def when_open() -> None:
            self._more -= 1
            if self._more < 0 and not self._open.is_set():
                self.still.set()
                assert self._open.wait(PATIENCE_S)
            work()

        return super().compute(when_open, key)

    def close(self) -> None:
        self.go()
        super().close()


class Watched:
    """A model whose preparation can be held, whose parts can fail, and that counts the images it encodes."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.prepare = threading.Event()
        self.prepare.set()
        self.preparing = 0
        self.images = 0
        self.image_error: Exception | None = None
        self.decode_error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def preprocess(self, image: Any) -> Pixels:
        self.preparing += 1
        assert self.prepare.wait(PATIENCE_S)
        return self._model.preprocess(image)

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        if self.image_error is not None:
            error, self.image_error = self.image_error, None
            raise error
        self.images += len(pixels)
        return self._model.encode_images(pixels)

    def forward(self, embeds: torch.Tensor, paged: Any, images: Any = None) -> torch.Tensor:
        if embeds.shape[1] == 1 and self.decode_error is not None:
            error, self.decode_error = self.decode_error, None
            raise error
        return self._model.forward(embeds, paged, images)
