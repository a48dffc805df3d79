"""Start and stop `pointbox serve`, and judge its answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.child import die_with

TRUTH = Path("examples/truth.json")
CORNERS = ("x_min", "y_min", "x_max", "y_max")


@dataclass(frozen=True)
class Service:
    url: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def serving(log: Path, part: str = "serve", **environ: str) -> Iterator[Service]:
    """A service, or a part of one, on a free port, ready for requests; ended by SIGTERM."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("wb") as out:
        command = [sys.executable, "-m", "app.cli", part, "--port", str(port)]
        parent = os.getpid()
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env={**os.environ, **environ},
            preexec_fn=lambda: die_with(parent),
        )
    service = Service(f"http://127.0.0.1:{port}", process, log)
    try:
        wait_until_ready(service)
        yield service
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(service: Service, within_s: float = 180) -> None:
    until = time.monotonic() + within_s
    while time.monotonic() < until and service.process.poll() is None:
        try:
            if httpx.get(f"{service.url}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not ready: {service.log.read_text()[-2000:]}")


def truth(picture: str, label: str) -> list[list[float]]:
    """The true boxes of one label on an example picture, in [0,1]."""
    return [
        [thing[corner] for corner in CORNERS]
        for thing in json.loads(TRUTH.read_text())[picture]
        if thing["label"] == label
    ]


def boxes(answer: dict[str, Any], phrase_index: int = 0) -> list[list[float]]:
    found = [thing for thing in answer["objects"] if thing["phrase_index"] == phrase_index]
    return [[thing[corner] for corner in CORNERS] for thing in found]


def iou(one: list[float], other: list[float]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    overlap = max(width, 0) * max(height, 0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return overlap / (areas - overlap)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Equal answers: the same objects in the same order, coordinates and scores within rounding."""
    for kind in ("objects", "points"):
        found, others = one.get(kind, []), other.get(kind, [])
        if len(found) != len(others):
            return False
        for a, b in zip(found, others, strict=True):
            if any(abs(a[k] - b[k]) > 1e-3 if isinstance(a[k], float) else a[k] != b[k] for k in a):
                return False
    return one["phrases"] == other["phrases"] and one["image"] == other["image"]
