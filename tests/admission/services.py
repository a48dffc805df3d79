"""A service in processes of its own, its process tree, and requests to it."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from tests.admission.fakes import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
START_S = 120.0


class Service:
    """Started by `service`; `url` once it is ready."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self.output = output
        self.url = ""

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    async def ready(self) -> None:
        """Waits for the line that says so."""
        async with asyncio.timeout(START_S):
            while not (found := re.search(r"Pointbox is ready at (\S+) \(model .*\)", self.text)):
                assert self.process.poll() is None, self.text
                await asyncio.sleep(0.05)
        self.url = found[1]

    def child(self, word: str) -> int:
        """The process id of the child whose command line has `word`."""
        (pid,) = [pid for pid in children(self.process.pid) if word in command_of(pid)]
        return pid

    async def new_child(self, word: str, old: int) -> int:
        """Waits until another process has taken the place of `old`."""

        def found() -> list[int]:
            return [pid for pid in children(self.process.pid) if word in command_of(pid) and pid != old]

        await until(found)
        return found()[0]

    async def end(self, number: signal.Signals) -> int:
        """Sends a signal to the service and returns its exit status."""
        self.process.send_signal(number)
        return await self.exit_status()

    async def exit_status(self) -> int:
        return await asyncio.to_thread(self.process.wait, START_S)


@contextmanager
def service(command: Sequence[str], **environ: str) -> Iterator[Service]:
    """Runs `command`; whatever is left of it in the end is killed."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output")
        with output.open("wb") as sink:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environ},
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        pids: list[int] = []
        try:
            yield Service(process, output)
        finally:
            pids = children(process.pid)
            process.kill()
            process.wait()
            wait_gone(pids)


def fake(role: str) -> list[str]:
    """The command of a service with the fake engine."""
    return [sys.executable, str(Path(__file__).with_name("fake_service.py")), role]


def children(parent: int) -> list[int]:
    """The living children of a process."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if alive(pid) and _stat(pid)[1] == str(parent)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    return _stat(pid)[0] not in "ZX"


def wait_gone(pids: Sequence[int]) -> None:
    """Waits until none of them lives."""
    end = time.monotonic() + PATIENCE_S
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < end, [command_of(pid) for pid in pids if alive(pid)]
        time.sleep(0.02)


def _stat(pid: int) -> tuple[str, str]:
    """State and parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", ""
    return fields[0], fields[1]


def picture(number: int = 0) -> bytes:
    """A PNG of its own for each number."""
    sink = io.BytesIO()
    Image.new("RGB", (48, 32), (number % 256, 90, 200)).save(sink, "PNG")
    return sink.getvalue()


async def detect(
    client: httpx.AsyncClient, phrase: str | list[str], image: bytes | None = None
) -> httpx.Response:
    """POST /v1/detect as JSON."""
    body: dict[str, Any] = {"object": phrase} if isinstance(phrase, str) else {"objects": phrase}
    body |= {"image": base64.b64encode(image or picture()).decode(), "timeout_s": PATIENCE_S}
    return await client.post("/v1/detect", json=body)


def http(service: Service) -> httpx.AsyncClient:
    """A client that waits longer than any deadline."""
    return httpx.AsyncClient(base_url=service.url, timeout=START_S, trust_env=False)
