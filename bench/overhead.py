"""What the service adds to a request: its wall time minus intake minus engine."""

from __future__ import annotations

import io
import json
import re
import socket
import time
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlsplit

import numpy as np
import numpy.typing as npt
from PIL import Image

from bench.serving import service
from bench.workloads import Question, questions

WARM_UP = 10
IMAGE_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Overhead:
    """Milliseconds of requests sent one after the other.

    intake: fetching and decoding the image.  engine: from its submission to the last token.
    overhead: of the whole request, what is neither.
    """

    requests: int
    image_kb: float
    wall_p50_ms: float
    wall_p99_ms: float
    intake_p50_ms: float
    engine_p50_ms: float
    overhead_p50_ms: float
    overhead_p99_ms: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(requests: int) -> Overhead:
    """Start the service, ask it one request after the other, stop it."""
    asked = questions(WARM_UP + requests)
    images = [heavy_jpeg(question, seed) for seed, question in enumerate(asked)]
    with service() as running:
        place = urlsplit(running.url)
        with socket.create_connection((place.hostname, place.port)) as connection:
            pairs = zip(asked, images, strict=True)
            times = [_ask(connection, question.phrase, image) for question, image in pairs][WARM_UP:]
    wall, intake, engine = np.array(times).T
    (wall_p50, wall_p99), (p50, p99) = (
        np.percentile(x, (50, 99)).tolist() for x in (wall, wall - intake - engine)
    )
    kb = float(np.mean([len(image) for image in images])) / 1000
    return Overhead(
        requests, kb, wall_p50, wall_p99, float(np.median(intake)), float(np.median(engine)), p50, p99
    )


def heavy_jpeg(question: Question, seed: int) -> bytes:
    """The picture with as much noise as makes a JPEG of about IMAGE_BYTES."""
    noise = np.random.default_rng(seed).normal(0, 24, question.image.shape)
    noisy = (question.image + noise).clip(0, 255).astype(np.uint8)
    return next(data for quality in range(95, 0, -3) if len(data := jpeg(noisy, quality)) <= IMAGE_BYTES)


def jpeg(image: npt.NDArray[np.uint8], quality: int) -> bytes:
    """image: [H, W, 3] RGB."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _ask(connection: socket.socket, phrase: str, image: bytes) -> tuple[float, float, float]:
    """Milliseconds of a request, of its intake and of the engine.

    From the first byte sent to the last one read: what a client makes of either is not the service's.
    """
    head = (
        f"POST /v1/detect?object={quote(phrase)} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: image/jpeg\r\nContent-Length: {len(image)}\r\n\r\n"
    )
    request = head.encode() + image
    begin = time.perf_counter()
    connection.sendall(request)
    answer = connection.recv(65536)
    while len(answer) < _length(answer):
        answer += connection.recv(65536)
    wall = 1e3 * (time.perf_counter() - begin)
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"the service answered {answer.decode(errors='replace')}")
    metrics = json.loads(answer.partition(b"\r\n\r\n")[2])["metrics"]
    until_first = metrics["ttft_ms"] - metrics["queue_ms"] - metrics["intake_ms"]
    return wall, metrics["intake_ms"], until_first + metrics["decode_ms"]


def _length(answer: bytes) -> int:
    """Of the whole answer, as far as its head tells."""
    head, end, _ = answer.partition(b"\r\n\r\n")
    if not end:
        return len(answer) + 1
    named = re.search(rb"content-length: (\d+)", head.lower())
    assert named, head
    return len(head) + len(end) + int(named[1])
