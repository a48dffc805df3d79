"""Starts the service, asks it about the example pictures over HTTP, draws the answers into demo/.

    python examples/demo.py

Ends with 0 when every answer came and the service stopped cleanly.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn
from urllib.parse import urlencode

import msgspec
from PIL import Image

from app.child import die_with
from app.draw import draw_answer
from app.spatial.schemas import DetectAnswer, PointAnswer

HERE = Path(__file__).parent
OUT = HERE.parent / "demo"
READY_WITHIN_S = 600
STOPPED_WITHIN_S = 60

PHRASES = ["red circle", "yellow star", "blue square", "green triangle"]
ASKED = [
    ("scene.jpg", "detect", PHRASES),
    ("scene.jpg", "point", PHRASES),
    ("table.jpg", "detect", PHRASES),
    ("poster.png", "detect", ["pink circle", "red star", "blue triangle", "red square"]),
]


def main() -> None:
    """Run the demonstration."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    OUT.mkdir(exist_ok=True)
    with service() as port:
        for name, task, phrases in ASKED:
            body = ask(port, task, HERE / name, phrases)
            if name == "scene.jpg":
                print(f"\nPOST /{task}  {name}  {', '.join(phrases)}")
                print(msgspec.json.format(body, indent=2).decode())
            path = OUT / f"{Path(name).stem}-{task}.png"
            answer = read(task, body)
            with Image.open(HERE / name) as picture:
                draw_answer(picture, answer).save(path)
            print(f"drawn: {path.relative_to(OUT.parent)}")


@contextmanager
def service() -> Iterator[int]:
    """A running `pointbox serve` on a free port; it is stopped on the way out, whatever happens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port)]
        parent = os.getpid()
        process = subprocess.Popen(
            command, cwd=HERE.parent, stdout=log, stderr=log, preexec_fn=lambda: die_with(parent)
        )
        try:
            wait_until_ready(process, port, log)
            yield port
        finally:
            stop(process)
        if process.returncode != 0:
            fail(f"the service ended with exit status {process.returncode}", log)


def wait_until_ready(process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    """Return when /readyz answers 200."""
    print(f"Starting the service on port {port}, which loads the model ...", flush=True)
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until:
        if process.poll() is not None:
            fail(f"the service ended with exit status {process.returncode} before it was ready", log)
        try:
            if request(port, "GET", "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    fail(f"the service was not ready within {READY_WITHIN_S} s", log)


def ask(port: int, task: str, picture: Path, phrases: list[str]) -> bytes:
    """The JSON that the service answers for one picture, sent as a raw body."""
    query = urlencode([("object", phrase) for phrase in phrases])
    status, body = request(port, "POST", f"/{task}?{query}", picture.read_bytes())
    if status != 200:
        fail(f"POST /{task} {picture.name} was answered with {status}: {body.decode()}")
    return body


def read(task: str, body: bytes) -> DetectAnswer | PointAnswer:
    """The answer, checked against its schema."""
    if task == "detect":
        return msgspec.json.decode(body, type=DetectAnswer)
    return msgspec.json.decode(body, type=PointAnswer)


def request(port: int, method: str, target: str, picture: bytes | None = None) -> tuple[int, bytes]:
    """One HTTP exchange: the status and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, target, picture, {"Content-Type": "image/*"} if picture else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, time to drain, and only then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def fail(reason: str, log: IO[bytes] | None = None) -> NoReturn:
    """End with the reason, and with the last lines that the service wrote."""
    if log is not None:
        log.seek(0)
        sys.stderr.write("\n".join(log.read().decode(errors="replace").splitlines()[-20:]) + "\n")
    sys.exit(f"demo: {reason}")


if __name__ == "__main__":
    main()
