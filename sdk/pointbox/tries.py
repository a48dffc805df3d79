"""How often and how long one call is tried. Pure: it neither sleeps nor sends."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from pointbox.config import Config
from pointbox.errors import CallTimeout, ConnectionFailed, PointboxError

CONNECT_S = 10.0
SILENCE_S = 45.0
"""A stream that says nothing for so long is dead: the service sends a comment every 15 seconds."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0


class Tries:
    """One call from its first try to its last. All together, with the pauses, they take at most `limit_s`."""

    def __init__(self, request_id: str, config: Config, limit_s: float) -> None:
        self._request_id = request_id
        self._url = config.url
        self._retries = config.retries
        self._limit_s = limit_s
        self._until = time.monotonic() + limit_s
        self._failed = 0
        self._waited_s = 0.0

    @property
    def remaining_s(self) -> float:
        """Until the limit; never quite 0, which some would take for no limit at all."""
        return max(self._until - time.monotonic(), 0.001)

    def timeout(self, *, read_s: float | None = None) -> httpx.Timeout:
        """The limits of the next try."""
        left = self.remaining_s
        read_s = left if read_s is None else min(left, read_s)
        return httpx.Timeout(left, connect=min(left, CONNECT_S), read=read_s)

    def check(self) -> None:
        """Called while something is slow.

        Raises:
            CallTimeout: the limit is over.
        """
        if time.monotonic() >= self._until:
            raise self.timed_out()

    def timed_out(self) -> CallTimeout:
        """The exception for a call that took too long."""
        return CallTimeout(
            f"No complete answer from {self._url} in time: the call may take {self._limit_s:g} seconds, and "
            f"a stream may be silent for {SILENCE_S:g}.",
            self._request_id,
        )

    def client_closed(self) -> ConnectionFailed:
        """The exception for a stream whose client was closed."""
        return ConnectionFailed("The client was closed before the answer was complete.", self._request_id)

    def pause_s(self, error: PointboxError) -> float:
        """How long to wait before the next try.

        Raises:
            PointboxError: `error` itself, when another try makes no sense or would come too late.
        """
        if not error.retriable or self._failed >= self._retries:
            raise error
        pause = _pause_s(self._failed, error.retry_after)
        if pause >= self.remaining_s:
            raise error
        self._failed += 1
        return pause

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around each wait for a piece of a stream. What the caller does in between does not count.

        Raises:
            CallTimeout: all waits together have taken more than the limit.
        """
        began = time.monotonic()
        yield
        self._waited_s += time.monotonic() - began
        if self._waited_s > self._limit_s:
            raise self.timed_out()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Whatever httpx raises inside becomes an exception of ours."""
        try:
            yield
        except (httpx.ConnectTimeout, httpx.ConnectError) as error:
            self.check()
            reason = str(error) or "no answer to the connection"
            raise ConnectionFailed(
                f"There is no service at {self._url}: {reason}. Set POINTBOX_URL to where it is.",
                self._request_id,
            ) from error
        except httpx.TimeoutException as error:
            raise self.timed_out() from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            reason = str(error) or type(error).__name__
            raise ConnectionFailed(
                f"The connection to {self._url} broke: {reason}.", self._request_id
            ) from error


def _pause_s(failed: int, retry_after: float | None) -> float:
    """Exponential with full jitter, so that callers who failed together do not come back together.

    What the service asked for is never undercut; the jitter comes on top.
    """
    backoff = random.uniform(0.0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failed))
    return backoff if retry_after is None else retry_after + min(backoff, 0.25 * retry_after + 0.05)
