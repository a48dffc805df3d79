"""Streams: iterate over what is found while the service still looks."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self

from pointbox.calls import F, R
from pointbox.events import Answering
from pointbox.sending import Pieces
from pointbox.sending_async import AsyncPieces


class Stream(Generic[F, R]):
    """Yields boxes or points in the order of their finding; phrases may interleave. `result()` has them all.

    Ends by itself. `close()`, or leaving its `with` block, ends it early: the service stops working on it.
    """

    def __init__(self, answering: Answering[F, R], pieces: Pieces) -> None:
        self._answering = answering
        self._pieces = pieces
        self._found: Iterator[F] = iter(())
        self._closed = False
        self._error: Exception | None = None
        """What ended the stream early: asked again, it does not look like the end of the answer."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> F:
        if self._error is not None:
            raise self._error
        try:
            while not self._closed and self._answering.result is None:
                for found in self._found:
                    return found
                if self._answering.result is None:
                    self._found = self._answering.feed(self._pieces.next())
        except BaseException as error:
            self._error = error if isinstance(error, Exception) else None
            self.close()
            raise
        self.close()
        raise StopIteration

    def result(self) -> R:
        """Wait for the end; then the whole answer."""
        for _ in self:
            pass
        return self._answering.whole()

    def close(self) -> None:
        """Hang up. Unless the answer is complete, the service stops working on it."""
        self._closed = True
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncStream(Generic[F, R]):
    """`Stream` for `async for`; `await stream.result()` has everything."""

    def __init__(self, answering: Answering[F, R], pieces: AsyncPieces) -> None:
        self._answering = answering
        self._pieces = pieces
        self._found: Iterator[F] = iter(())
        self._closed = False
        self._error: Exception | None = None
        """What ended the stream early: asked again, it does not look like the end of the answer."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> F:
        if self._error is not None:
            raise self._error
        try:
            while not self._closed and self._answering.result is None:
                for found in self._found:
                    return found
                if self._answering.result is None:
                    self._found = self._answering.feed(await self._pieces.next())
        except BaseException as error:
            self._error = error if isinstance(error, Exception) else None
            await self.close()
            raise
        await self.close()
        raise StopAsyncIteration

    async def result(self) -> R:
        """Wait for the end; then the whole answer."""
        async for _ in self:
            pass
        return self._answering.whole()

    async def close(self) -> None:
        """Hang up. Unless the answer is complete, the service stops working on it."""
        self._closed = True
        await self._pieces.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
