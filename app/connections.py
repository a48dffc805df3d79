"""Limits on what all connections of an API process use together: file descriptors and memory for bodies."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

import structlog

from app.problems import ProblemError
from app.settings import Settings

RESERVED_FILES = 144
"""File descriptors left for Redis, the database, stores, fetched images, logs and the spare connections."""
SPARE = 16
"""Connections above the limit that are read, so that they get an answer and `/livez` stays reachable."""
SLOW_S = 10.0
"""A body that is incomplete for so long is given up when there is no room for another one."""
LOG_EVERY_S = 10.0

log = structlog.get_logger("pointbox.http")


class Connections:
    """One per API process; every protocol object registers here. Not thread-safe: one event loop uses it.

    A connection is *idle* until the head of a request is complete, and again after the answer; in between it
    is *busy*. Above the limit the connection that has been idle longest is closed. Where all are busy, a new
    one gets a 503.
    """

    def __init__(self, settings: Settings) -> None:
        """Logs a warning where the settings allow more connections than there are file descriptors."""
        self.open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limit = _limit(settings.connections, self.open_files)
        self.bodies_bytes = settings.bodies_bytes
        self.body_timeout_s = settings.body_timeout_s
        self.unread_timeout_s = settings.unread_timeout_s
        self._body_limit = settings.body_limit_bytes
        self.held = 0
        """Bytes of bodies whose requests are not answered yet."""
        self._idle: dict[object, Callable[[], None]] = {}
        self._busy: set[object] = set()
        self._coming: dict[object, tuple[float, Callable[[], None]]] = {}
        """Connections with an incomplete body: since when, and how to give it up; oldest first."""
        self._closed, self._refused, self._full = 0, 0, 0
        self._log_after = 0.0
        if self.limit < settings.connections:
            log.warning(
                "fewer connections than POINTBOX_CONNECTIONS says: raise the limit of open files (ulimit -n)",
                limit=self.limit,
                open_files=self.open_files,
            )

    @property
    def over(self) -> bool:
        """Whether there are more connections than the limit."""
        return len(self._idle) + len(self._busy) > self.limit

    @property
    def beyond_spare(self) -> bool:
        """Whether not even the spare connections are left."""
        return len(self._idle) + len(self._busy) > self.limit + SPARE

    def opened(self, connection: object, close: Callable[[], None]) -> None:
        """A new connection; those that have been idle longest are closed for it where there are too many.

        Args:
            close: ends this connection at once.
        """
        self._idle[connection] = close
        self._close_idle(keep=connection)

    def began(self, connection: object) -> None:
        """The head of a request is complete."""
        self._idle.pop(connection, None)
        self._busy.add(connection)
        self._close_idle(keep=connection)

    def rested(self, connection: object, close: Callable[[], None]) -> None:
        """The last answer of a connection is sent."""
        self._busy.discard(connection)
        self._idle[connection] = close

    def lost(self, connection: object) -> None:
        """A connection has ended."""
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def no_connection(self) -> ProblemError:
        """The answer to a request on a connection above the limit."""
        self._refused += 1
        self._tell()
        detail = "This server has as many open connections as it takes (POINTBOX_CONNECTIONS); try again."
        return ProblemError("unavailable", detail, retry_after_s=1)

    def fits(self, connection: object, more: int) -> bool:
        """Whether so many bytes of a body may come beside those that are here.

        For lack of room the bodies of other connections that have been incomplete longest, and for SLOW_S at
        least, are given up, so that clients which stop half-way do not shut out the others.
        """
        while self.held + more > self.bodies_bytes:
            slowest = next((one for one in self._coming if one is not connection), None)
            if slowest is None or self._coming[slowest][0] + SLOW_S > time.monotonic():
                return False
            self._coming.pop(slowest)[1]()
        return True

    def fits_whole(self, connection: object, length: int) -> bool:
        """The same of a body that was announced; one that is too long in itself gets its own answer later."""
        return length > self._body_limit or self.fits(connection, length)

    def body_comes(self, connection: object, size: int, give_up: Callable[[], None]) -> None:
        """More bytes of a body are here.

        Args:
            give_up: refuses the rest of the body, and calls `body_gone`.
        """
        self.held += size
        self._coming.setdefault(connection, (time.monotonic(), give_up))

    def body_whole(self, connection: object) -> None:
        """Nothing more comes of it."""
        self._coming.pop(connection, None)

    def body_gone(self, connection: object, size: int) -> None:
        """Its bytes are not needed any more."""
        self.held -= size
        self._coming.pop(connection, None)

    def no_memory(self) -> ProblemError:
        """The answer to a request whose body does not fit."""
        self._full += 1
        self._tell()
        detail = (
            f"The bodies of unanswered requests fill the {self.bodies_bytes:,} bytes that this server holds "
            "for them (POINTBOX_BODIES_BYTES); try again."
        )
        return ProblemError("unavailable", detail, retry_after_s=1)

    def _close_idle(self, keep: object) -> None:
        while self.over and (oldest := next((one for one in self._idle if one is not keep), None)):
            self._idle.pop(oldest)()
            self._closed += 1
            self._tell()

    def _tell(self) -> None:
        """In the log, at most every `LOG_EVERY_S`, with the counts since the process began."""
        now = time.monotonic()
        if now < self._log_after:
            return
        self._log_after = now + LOG_EVERY_S
        log.warning(
            "connections or their bodies are at a limit: POINTBOX_CONNECTIONS (below ulimit -n), "
            "POINTBOX_BODIES_BYTES",
            connections_limit=self.limit,
            open_files=self.open_files,
            idle=len(self._idle),
            busy=len(self._busy),
            idle_closed_total=self._closed,
            refused_total=self._refused,
            body_bytes=self.held,
            bodies_bytes=self.bodies_bytes,
            bodies_refused_total=self._full,
        )


def _limit(wanted: int, open_files: int) -> int:
    """Of connections, so that file descriptors for everything else are left; `wanted` is 0 for all."""
    if open_files == resource.RLIM_INFINITY:
        return wanted or sys.maxsize
    possible = max(open_files - RESERVED_FILES, open_files // 4, 1)
    return min(wanted or possible, possible)
