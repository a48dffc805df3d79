"""What the service adds to a request: its wall time minus intake minus engine."""

from __future__ import annotations

import base64
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from bench.workloads import Question, questions

SERVE = (sys.executable, "-m", "app.cli", "serve", "--port", "0")
WARM_UP = 10
READY = "Pointbox is ready at "


@dataclass(frozen=True, slots=True)
class Overhead:
    """Milliseconds of requests sent one after the other: whole, and what is neither intake nor engine."""

    requests: int
    wall_p50_ms: float
    wall_p99_ms: float
    overhead_p50_ms: float
    overhead_p99_ms: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(requests: int) -> Overhead:
    """Start the service, ask it one request after the other, stop it."""
    bodies = [_body(question) for question in questions(WARM_UP + requests)]
    with _service() as url:
        connection = HTTPConnection(urlsplit(url).netloc)
        times = [_ask(connection, body) for body in bodies][WARM_UP:]
        connection.close()
    wall, overhead = np.array(times).T
    (wall_p50, wall_p99), (p50, p99) = (np.percentile(x, (50, 99)).tolist() for x in (wall, overhead))
    return Overhead(requests, wall_p50, wall_p99, p50, p99)


def _body(question: Question) -> bytes:
    file = io.BytesIO()
    Image.fromarray(question.image).save(file, "JPEG", quality=90)
    image = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    return json.dumps({"image_url": image, "object": question.phrase}).encode()


def _ask(connection: HTTPConnection, body: bytes) -> tuple[float, float]:
    """Milliseconds of a request, and of them those that neither intake nor engine report."""
    begin = time.perf_counter()
    connection.request("POST", "/v1/detect", body, {"content-type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    wall = 1e3 * (time.perf_counter() - begin)
    if response.status != 200:
        raise RuntimeError(f"the service answered {response.status}: {text.decode(errors='replace')}")
    metrics = json.loads(text)["metrics"]
    return wall, wall - metrics["intake_ms"] - metrics["prefill_ms"] - metrics["decode_ms"]


@contextmanager
def _service() -> Iterator[str]:
    """The whole service on a free port; its address."""
    with subprocess.Popen(SERVE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            for line in service.stdout:
                if line.startswith(READY):
                    yield line.removeprefix(READY).split()[0]
                    return
            raise RuntimeError("the service did not start")
        finally:
            service.send_signal(signal.SIGTERM)
            service.communicate()
