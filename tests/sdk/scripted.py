"""A real HTTP server that answers as its script says: what a healthy service seldom does."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER: dict[str, Any] = {
    "request_id": "r1",
    "model": "tiny",
    "image": {"width": 640, "height": 480, "id": None},
    "objects": [
        {
            "x_min": 0.1,
            "y_min": 0.2,
            "x_max": 0.3,
            "y_max": 0.4,
            "label": "cat",
            "phrase_index": 0,
            "score": 0.9,
        }
    ],
    "phrases": [{"object": "cat", "finish_reason": "stop", "truncated": False}],
    "finish_reason": "stop",
    "truncated": False,
    "metrics": {"queue_ms": 1.0},
    "a_field_of_tomorrow": True,
}


@dataclass
class Asked:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Exchange(BaseHTTPRequestHandler):
    """One request and what a step of the script does with it."""

    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def answer(self, status: int, body: bytes | dict[str, Any], **headers: str) -> None:
        """A whole answer; underscores in the names of headers become hyphens."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/json" if status < 300 else "application/problem+json"
        self.begin(status, **{"content_type": kind, "content_length": str(len(content)), **headers})
        self.wfile.write(content)

    def begin(self, status: int, **headers: str) -> None:
        """The status and the headers; whatever is written next is the body."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def piece(self, content: bytes) -> None:
        """One chunk of a chunked body; an empty one ends it."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def drop(self) -> None:
        """Break the connection in the middle of whatever there was."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def gone(self) -> bool:
        """Wait until the caller hangs up."""
        return self.connection.recv(1) == b""

    def _run(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.step(Asked(self.command, self.path, headers, body))(self)

    do_GET = do_POST = do_DELETE = _run

    def log_message(self, format: str, *args: Any) -> None:
        pass


Step = Callable[[Exchange], None]


@dataclass
class Script:
    """What was asked, and what is done about it: the steps in their order, the last one for ever."""

    url: str = ""
    steps: list[Step] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    connections: set[Any] = field(default_factory=set)


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.script = Script(f"http://127.0.0.1:{self.server_address[1]}", [ok])
        self._lock = threading.Lock()

    def step(self, asked: Asked) -> Step:
        """The next step of the script."""
        with self._lock:
            self.script.asked.append(asked)
            return self.script.steps.pop(0) if len(self.script.steps) > 1 else self.script.steps[0]

    def process_request(self, request: Any, client_address: Any) -> None:
        self.script.connections.add(client_address)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that hung up is no news."""


@contextmanager
def scripted() -> Iterator[Script]:
    """A running server; change its `steps` at will."""
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ok(exchange: Exchange) -> None:
    exchange.answer(200, ANSWER)


def drop(exchange: Exchange) -> None:
    exchange.drop()


def half(exchange: Exchange) -> None:
    """The beginning of an answer, then nothing any more."""
    exchange.begin(200, content_type="application/json", content_length="1000")
    exchange.wfile.write(b'{"request_id": ')
    exchange.wfile.flush()
    exchange.drop()


def problem(slug: str, status: int, **headers: str) -> Step:
    """A step that refuses with a problem document."""
    document = {
        "type": f"/problems/{slug}",
        "title": "No",
        "status": status,
        "detail": f"It is {slug}.",
        "request_id": "r2",
    }
    return lambda exchange: exchange.answer(status, document, **headers)


def event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), json.dumps(data).encode())


def events(*pieces: bytes, ended: bool = True) -> Step:
    """A step that streams; without an end it breaks the connection after the last piece."""

    def step(exchange: Exchange) -> None:
        exchange.begin(200, content_type="text/event-stream", transfer_encoding="chunked")
        for piece in pieces:
            exchange.piece(piece)
        if ended:
            exchange.piece(b"")
        else:
            exchange.drop()

    return step
