"""Many images at once: how results are kept in order, counted, and never pile up."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic

from pointbox.arguments import whole
from pointbox.calls import R
from pointbox.pictures import ImageSource, is_one_picture

AHEAD = 4
"""How many calls may be done or running, in multiples of the concurrency, while the first is awaited."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """What became of one image: a result or an error."""

    index: int
    image: ImageSource
    result: R | None = None
    error: Exception | None = None

    def unwrap(self) -> R:
        """The result.

        Raises:
            Exception: `error`, if that is what became of it.
        """
        if self.result is None:
            assert self.error is not None
            raise self.error
        return self.result


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a `map` is. `total` is None when the images have no length."""

    done: int
    failed: int
    total: int | None


class Counter:
    """Tells a callback, if there is one, each time that an image is done."""

    def __init__(self, images: object, callback: Callable[[Progress], object] | None) -> None:
        self._callback = callback
        self._total = len(images) if hasattr(images, "__len__") else None
        self._done = 0
        self._failed = 0

    def count(self, outcome: Outcome[R]) -> None:
        """One more is done."""
        self._done += 1
        self._failed += outcome.error is not None
        if self._callback is not None:
            self._callback(Progress(self._done, self._failed, self._total))


def check_map(images: object, task: str, concurrency: int, progress: object) -> None:
    """Raises TypeError or ValueError for what no `map` can mean, before the first image is read."""
    whole("concurrency", concurrency, 1)
    if task not in ("detect", "point"):
        raise ValueError(f"task must be detect or point, not {task!r}.")
    if is_one_picture(images) or not isinstance(images, Iterable | AsyncIterable):
        raise TypeError("images must be a list or an iterator of pictures, not one picture.")
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function, not {progress!r}.")


def map_threads(
    ask: Callable[[ImageSource], R], images: Iterable[ImageSource], concurrency: int, counter: Counter
) -> Iterator[Outcome[R]]:
    """Outcomes in the order of `images`, which is read only a little ahead."""

    def one(index: int, image: ImageSource) -> Outcome[R]:
        try:
            return Outcome(index, image, result=ask(image))
        except Exception as error:
            return Outcome(index, image, error=error)

    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="pointbox-map")
    window: deque[Future[Outcome[R]]] = deque()
    uncounted: set[Future[Outcome[R]]] = set()

    def first() -> Outcome[R]:
        while window[0] in uncounted:
            done, _ = wait(uncounted, return_when=FIRST_COMPLETED)
            for future in done:
                uncounted.discard(future)
                counter.count(future.result())
        return window.popleft().result()

    try:
        for index, image in enumerate(images):
            future = pool.submit(one, index, image)
            window.append(future)
            uncounted.add(future)
            if len(window) >= concurrency * AHEAD:
                yield first()
        while window:
            yield first()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


async def map_tasks(
    ask: Callable[[ImageSource], Awaitable[R]],
    images: Iterable[ImageSource] | AsyncIterable[ImageSource],
    concurrency: int,
    counter: Counter,
) -> AsyncIterator[Outcome[R]]:
    """`map_threads` for asyncio."""
    gate = asyncio.Semaphore(concurrency)

    async def one(index: int, image: ImageSource) -> Outcome[R]:
        async with gate:
            try:
                outcome = Outcome(index, image, result=await ask(image))
            except Exception as error:
                outcome = Outcome(index, image, error=error)
        counter.count(outcome)
        return outcome

    window: deque[asyncio.Task[Outcome[R]]] = deque()
    try:
        index = 0
        async for image in _each(images):
            window.append(asyncio.create_task(one(index, image)))
            index += 1
            if len(window) >= concurrency * AHEAD:
                yield await window[0]
                window.popleft()
        while window:
            yield await window[0]
            window.popleft()
    finally:
        for task in window:
            task.cancel()
        await asyncio.gather(*window, return_exceptions=True)


async def _each(images: Iterable[ImageSource] | AsyncIterable[ImageSource]) -> AsyncIterator[ImageSource]:
    if isinstance(images, AsyncIterable):
        async for image in images:
            yield image
    else:
        for image in images:
            yield image
