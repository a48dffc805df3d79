"""Preprocessed images that were asked about a moment ago."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt

from engine.models.base import Pixels


class PixelCache:
    """Least recently used first out; any thread.  An image that several ask for at once is computed once.

    capacity: bytes.
    """

    def __init__(self, preprocess: Callable[[npt.NDArray[np.uint8]], Pixels], capacity: int) -> None:
        self._preprocess, self._capacity = preprocess, capacity
        self._known: OrderedDict[bytes, Future[Pixels]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def of(self, key: bytes, image: npt.NDArray[np.uint8]) -> Pixels:
        """What `preprocess` makes of an image; raises what it raises, and tries anew the next time."""
        with self._lock:
            known = self._known.get(key)
            if known is None:
                ours = self._known[key] = Future()
            else:
                self._known.move_to_end(key)
        if known is not None:
            return known.result()
        try:
            pixels = self._preprocess(image)
        except BaseException as error:
            with self._lock:
                del self._known[key]
            ours.set_exception(error)
            raise
        with self._lock:
            ours.set_result(pixels)
            self._bytes += pixels.data.nbytes
            self._shrink(self._capacity)
        return pixels

    def clear(self) -> None:
        """Drop every image that is computed."""
        with self._lock:
            self._shrink(0)

    def _shrink(self, most: int) -> None:
        for key, known in list(self._known.items()):
            if self._bytes <= most:
                return
            if known.done():
                self._bytes -= known.result().data.nbytes
                del self._known[key]
