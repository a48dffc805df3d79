"""A real Valkey, an engine that does what the phrases say, and short ways to use them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from redis.asyncio import Redis

from app.admission.client import AdmissionClient, Ticket
from app.admission.connections import producer
from app.admission.embedded import Embedded
from app.admission.execution import EngineDied
from app.admission.feeder import Feeder
from app.admission.messages import SpatialParams
from app.admission.worker_queue import Delivery, WorkerQueue, handed_over
from app.problems import ProblemError
from app.settings import Settings
from engine.errors import EngineError
from engine.events import EngineMetrics, Failed, Finished, Found, PhraseEnded
from engine.stats import Stats
from grammars.types import Box

PATIENCE_S = 60.0
PAGES = 100_000
GATE = os.environ.get("FAKE_GATE", "")
"""A file; once it exists, the gate is open. Empty: there is no gate."""
METRICS = EngineMetrics(
    prepare_ms=1, wait_ms=1, prefill_ms=1, decode_ms=1, ttft_ms=1, total_ms=4,
    input_tokens=7, output_tokens=5, cached_tokens=0,
)  # fmt: skip


class Server:
    """A Valkey that can be stopped and started again on its port, empty."""

    def __init__(self) -> None:
        self.embedded = Embedded()
        self.url = self.embedded.url
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.embedded.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        self.process.stdin.write(self.embedded.config)
        self.process.stdin.close()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class FakeEngine:
    """Answers each phrase with three boxes of its own; the phrase may ask for something else.

    while: takes a while; hold: waits until `release`, or until the gate is open; slow: waits long
    after its first box; bad: fails; die: opens the gate and kills the process.
    `runs` is the order in which requests began, `together` how many ran when each began.
    """

    def __init__(self, name: str = "tiny") -> None:
        self.model_info = SimpleNamespace(
            name=name,
            family="fake",
            revision="0",
            tasks=("detect", "point"),
            adapters=(),
            notes_on=lambda task: ("fakes point well",) if task == "point" else (),
        )
        self.release = threading.Event()
        self.runs: list[tuple[str, ...]] = []
        self.together: list[int] = []
        self.cancelled: list[tuple[str, ...]] = []
        self.active = 0
        self.deadlines: list[float] = []
        self.priorities: list[str] = []
        self.died = False
        self.hangs = False
        self.stands_still = False
        self._steps = 0
        self._lock = threading.Lock()

    @property
    def steps(self) -> int:
        self._steps += not self.stands_still
        return self._steps

    def submit(self, request: Any, on_event: Callable[[Any], None]) -> Any:
        with self._lock:
            self.runs.append(request.phrases)
            self.active += 1
            self.together.append(self.active)
            self.deadlines.append(request.deadline)
            self.priorities.append(request.priority)
        stop = threading.Event()
        threading.Thread(target=self._answer, args=(request, on_event, stop), daemon=True).start()
        return SimpleNamespace(cancel=stop.set)

    def stats_soon(self) -> Any:
        """Never answered while it `hangs`."""
        counts: Future[Stats] = Future()
        if not self.hangs:
            counts.set_result(
                Stats(
                    rows_active=self.active, rows_max=8, waiting=0, pages_free=PAGES, pages_cached=0,
                    pages_held=0, pages_total=PAGES, steps=self.steps, prefill_tokens=0, decode_tokens=0,
                    idle_s=0.0, device_s=0.0,
                )
            )  # fmt: skip
        return counts

    def pages_for(self, max_objects: int) -> int:
        return -(-max_objects // 10)

    def close(self) -> None:
        self.release.set()

    def _answer(self, request: Any, on_event: Callable[[Any], None], stop: threading.Event) -> None:
        last: Any = Finished(METRICS)
        try:
            for index, phrase in enumerate(request.phrases):
                self._phrase(index, phrase, on_event, stop)
        except EngineError as error:
            last = Failed(error)
        if stop.is_set():
            self.cancelled.append(request.phrases)
            last = Failed(EngineError("cancelled", "cancelled"))
        with self._lock:
            self.active -= 1
        on_event(last)

    def _phrase(
        self, index: int, phrase: str, on_event: Callable[[Any], None], stop: threading.Event
    ) -> None:
        if "bad" in phrase:
            raise EngineError("invalid-phrase", "a bad phrase", "object")
        if self.died:
            raise EngineError("closed", "the engine has ended")
        if "die" in phrase:
            if GATE:
                Path(GATE).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        for number in range(3):
            if number == 1 and "slow" in phrase:
                stop.wait(PATIENCE_S)
            if number == 1 and "hold" in phrase:
                while not (stop.is_set() or self.release.is_set() or os.path.exists(GATE)):
                    time.sleep(0.005)
            if stop.is_set():
                return
            if "while" in phrase:
                time.sleep(0.01)
            left = 0.1 + zlib.crc32(phrase.encode()) % 1000 / 10_000
            on_event(Found(index, Box(left, 0.1 * number, 0.5, 0.1 * number + 0.05, 0.9)))
        on_event(PhraseEnded(index, "stop"))


def fake_decode(data: bytes) -> Any:
    """Anything is an image unless it says that it is not."""
    if data.startswith(b"broken"):
        raise ProblemError("invalid-image", "The image is broken.", field="image")
    image = np.zeros((4, 6, 3), np.uint8)
    return SimpleNamespace(image=image, width=6, height=4, notes=["fake"])


class Work:
    """A feeder in this process, and how to end it well or badly."""

    def __init__(
        self, settings: Settings, engine: FakeEngine, decode: Callable[[bytes], Any] = fake_decode
    ) -> None:
        self.engine = engine
        self.feeder = Feeder(settings, engine, decode)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.feeder.run(self.stop))

    async def crash(self) -> None:
        """Without a goodbye: as far as Redis can see, a kill -9."""
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, EngineDied):
            await self.task

    async def drain(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, PATIENCE_S)


class Inbox:
    """What Redis sends to one worker without being asked, read by hand."""

    def __init__(self, redis: Redis, queue: WorkerQueue) -> None:
        self.redis, self.queue, self.last = redis, queue, "0-0"

    async def read(self) -> list[Delivery]:
        """The requests that were handed over since; cancellations are passed over."""
        entries: Any = await self.redis.xrange(self.queue.inbox, f"({self.last}")
        self.last = entries[-1][0].decode() if entries else self.last
        return [delivery for _, fields in entries if (delivery := handed_over(fields))]


async def ask(client: AdmissionClient, *phrases: str, **changes: Any) -> Ticket:
    """Submits a request with sensible values."""
    values = {
        "request_id": uuid.uuid4().hex,
        "model": "tiny",
        "task": "detect",
        "params": SpatialParams(phrases=list(phrases)),
        "image": b"an image",
        "timeout_s": PATIENCE_S,
    }
    return await client.submit(**{**values, **changes})


async def answer(ticket: Ticket) -> Any:
    return await asyncio.wait_for(ticket.result(), PATIENCE_S)


async def until(condition: Callable[[], Any]) -> None:
    """Waits, at most PATIENCE_S, until `condition` (plain or awaitable) holds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            value = condition()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return
            await asyncio.sleep(0.01)


async def pings(url: str) -> bool:
    client = producer(url)
    try:
        return bool(await client.ping())
    except Exception:
        return False
    finally:
        await client.aclose()


async def leftovers(redis: Redis, settings: Settings) -> set[str]:
    """Keys that exist because of requests, by kind; results and counts may stay."""
    keys = await redis.keys(f"pb1:{{{settings.namespace}}}:*")
    kinds = {key.decode().split("}:")[1].split(":")[0] for key in keys}
    return kinds & {"q", "ring", "turn", "req", "image", "staged", "refs", "deadlines"}


async def announce(redis: Redis, settings: Settings) -> None:
    """Makes the model known, as a worker that went away a moment ago."""
    seconds, _ = await redis.time()
    await redis.zadd(f"pb1:{{{settings.namespace}}}:models", {"tiny": seconds * 1000})
