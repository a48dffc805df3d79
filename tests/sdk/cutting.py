"""A wire between a client and a service that loses what it should carry."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Cut = Literal["answer", "request"]


@dataclass
class Wire:
    """`cuts` are used up by connections in their order: the answer is lost, or the connection breaks once the
    request has gone through. Later connections work. `answers` is all that the service ever said.
    """

    url: str
    target: tuple[str, int]
    cuts: list[Cut] = field(default_factory=list)
    answers: bytearray = field(default_factory=bytearray)

    def carry(self, near: socket.socket) -> None:
        """Serve one connection."""
        cut = self.cuts.pop(0) if self.cuts else None
        with near, socket.create_connection(self.target) as far:
            back = threading.Thread(target=self._back, args=(far, near, cut), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while data := near.recv(65536):
                    far.sendall(data)
                    if cut == "request" and data.endswith(b"--\r\n"):  # the end of a form
                        near.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
            back.join()

    def _back(self, far: socket.socket, near: socket.socket, cut: Cut | None) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                self.answers += data
                if cut is not None:
                    near.shutdown(socket.SHUT_RDWR)
                near.sendall(data)
            near.shutdown(socket.SHUT_RDWR)


@contextmanager
def wire(url: str) -> Iterator[Wire]:
    """A wire to the service at `url`."""
    target = urlsplit(url)
    assert target.hostname is not None
    assert target.port is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        laid = Wire(f"http://127.0.0.1:{listening.getsockname()[1]}", (target.hostname, target.port))

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = listening.accept()
                    threading.Thread(target=laid.carry, args=(near,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield laid
        listening.shutdown(socket.SHUT_RDWR)
