"""Sends calls and waits: connections, tries and pauses of the client without asyncio."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeVar
from weakref import WeakValueDictionary

import httpx

from pointbox.calls import Call
from pointbox.config import Config
from pointbox.errors import PointboxError
from pointbox.refusals import refusal
from pointbox.tries import SILENCE_S, Tries

T = TypeVar("T")

LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30)
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")
"""Reached without the proxy that HTTP_PROXY may name."""


class Pieces:
    """The body of a response as it comes in. Keeps the connection until `close`."""

    def __init__(self, response: httpx.Response, tries: Tries, held: ExitStack) -> None:
        self._response = response
        self._pieces = response.iter_bytes()
        self._tries = tries
        self._held = held
        self._process = os.getpid()
        self._cut_off = False

    def next(self) -> bytes:
        """The next piece; none is empty but the last.

        Raises:
            PointboxError: the connection broke, the service was silent too long, or the client was closed.
        """
        try:
            if not self._cut_off:
                with self._tries.named(), self._tries.waiting():
                    return next(self._pieces, b"")
        except Exception:
            if not self._cut_off:  # else this is how a read ends whose connection is closed under it
                raise
        raise self._tries.client_closed()

    def cut_off(self) -> None:
        """Hang up because the client is closed; a thread that waits for the next piece gets an error."""
        if self._process != os.getpid():
            return  # the connection is the parent's
        self._cut_off = True
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if connection is not None:
            with suppress(OSError):  # not connected any more
                connection.shutdown(socket.SHUT_RDWR)
        self.close()

    def close(self) -> None:
        """Hang up, if the body has not ended. May be called more than once."""
        self._held.close()


class Sender:
    """One per client. Any thread may use it; a process that was forked off gets connections of its own."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pools: dict[int, httpx.Client] = {}
        """By process: a child must not read from the connections of its parent. No lock: one that another
        thread held at the fork would stay locked in the child for ever."""
        self._streams: WeakValueDictionary[int, Pieces] = WeakValueDictionary()

    def __reduce__(self) -> tuple[type[Sender], tuple[Config]]:
        """Processes that are spawned, not forked, get a client by pickling: without its connections."""
        return type(self), (self._config,)

    def send(self, call: Call[T]) -> T:
        """The answer, after as many tries as it takes.

        Raises:
            PointboxError: there is none.
        """
        tries = Tries(call.id, self._config, call.limit_s)
        while True:
            try:
                with self._answered(call, tries) as response:
                    body = _read(response, tries)
                return call.read(body)
            except PointboxError as error:
                pause_s = tries.pause_s(error)
            time.sleep(pause_s)

    def stream(self, call: Call[T]) -> Pieces:
        """The pieces of an answer as they come, once the service has begun to answer.

        Raises:
            PointboxError: it does not begin to.
        """
        tries = Tries(call.id, self._config, call.limit_s)
        while True:
            with ExitStack() as held:
                try:
                    response = held.enter_context(self._answered(call, tries, read_s=SILENCE_S))
                except PointboxError as error:
                    pause_s = tries.pause_s(error)
                else:
                    pieces = Pieces(response, tries, held.pop_all())
                    self._streams[id(pieces)] = pieces
                    return pieces
            time.sleep(pause_s)

    def close(self) -> None:
        """Close the connections of this process; streams that are open end with ConnectionFailed."""
        for reference in self._streams.valuerefs():
            pieces = reference()
            if pieces is not None:
                pieces.cut_off()
        self._pool().close()

    @contextmanager
    def _answered(
        self, call: Call[T], tries: Tries, *, read_s: float | None = None
    ) -> Iterator[httpx.Response]:
        """A response that says that all is well; its body is not read yet."""
        with (
            tries.named(),
            self._pool().stream(
                call.method,
                call.path,
                headers=call.headers(),
                files=call.files,
                data=call.fields,
                json=call.json,
                timeout=tries.timeout(read_s=read_s),
            ) as response,
        ):
            if not response.is_success:
                body = _read(response, tries)
                raise refusal(response.status_code, response.headers, body, call.id)
            yield response

    def _pool(self) -> httpx.Client:
        process = os.getpid()
        pool = self._pools.get(process)
        if pool is None:
            config = self._config
            new = httpx.Client(
                base_url=config.url, headers=config.headers(), limits=LIMITS, mounts=dict.fromkeys(LOOPBACK)
            )
            pool = self._pools.setdefault(process, new)
        return pool


def _read(response: httpx.Response, tries: Tries) -> bytes:
    """The whole body, also when it trickles: httpx has a limit for each read, none for all of them."""
    pieces = []
    for piece in response.iter_bytes():
        pieces.append(piece)
        tries.check()
    return b"".join(pieces)
