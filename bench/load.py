"""What the service does with more requests than it can answer, and with a tenant that floods it."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from urllib.parse import quote

import numpy as np

from bench.caller import Caller, Reply
from bench.overhead import jpeg
from bench.serving import Service, make_key, service
from bench.workloads import questions

PICTURES = 1000
"""More than the default engine has pages for, so that none is found in its cache."""
BUSY = 48
"""Requests at a time that show how much the service can answer: more than its rows."""
NEIGHBOURS = 16
"""Requests that the quiet tenant has open at a time."""
Fate = str
"""answered, refused, refused without Retry-After, missed its deadline, failed with STATUS, or lost."""


@dataclass(frozen=True, slots=True)
class Load:
    """Rates are requests per second; memory is resident MB of all processes of the service.

    capacity: answers with BUSY requests at a time, before and after the overload.
    goodput: answers per second while overloaded.
    memory_mb: mean of the first and of the last third of the overload.
    quiet: p95 milliseconds of a tenant with NEIGHBOURS requests at a time, alone and beside a flood.
    """

    seconds: float
    offered: float
    capacity: tuple[float, float]
    goodput: float
    fates: dict[Fate, int]
    answered_p50_ms: float
    answered_p99_ms: float
    memory_mb: tuple[float, float]
    quiet_alone_ms: float
    quiet_beside_flood_ms: float

    @property
    def goodput_share(self) -> float:
        """Of the capacity."""
        return self.goodput / (sum(self.capacity) / 2)

    @property
    def missed_share(self) -> float:
        """Of the admitted."""
        missed = self.fates.get("missed its deadline", 0)
        return missed / max(1, missed + self.fates.get("answered", 0))

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"goodput_share": self.goodput_share, "missed_share": self.missed_share}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended, when, and how long it took."""

    fate: Fate
    at: float
    ms: float


@dataclass(frozen=True, slots=True)
class Phase:
    """All requests of a time, those too that ended after it."""

    began: float
    seconds: float
    ends: list[Ended]

    @property
    def answers_per_s(self) -> float:
        """Within the time."""
        over = self.began + self.seconds
        return sum(ended.fate == "answered" and ended.at <= over for ended in self.ends) / self.seconds

    def percentile(self, share: float) -> float:
        """Milliseconds of the answered."""
        times = [ended.ms for ended in self.ends if ended.fate == "answered"]
        return float(np.percentile(times, share)) if times else float("nan")


def run(seconds: float, factor: float, timeout_s: float, tell: Callable[[str], None]) -> Load:
    """Start the service with two tenants, measure, stop it.

    factor: requests offered, in capacities.  timeout_s: of each request.
    """
    asked = [(question.phrase, jpeg(question.image, 90)) for question in questions(PICTURES)]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"auth": "on", "data_dir": folder}
        keys = [make_key(tenant, settings) for tenant in ("flood", "quiet")]
        with service(**settings) as running:
            flood, quiet = (Client(running.url, key, timeout_s, asked) for key in keys)
            return asyncio.run(_measure(running, flood, quiet, seconds, factor, tell))


async def _measure(
    running: Service, flood: Client, quiet: Client, seconds: float, factor: float, tell: Callable[[str], None]
) -> Load:
    shorter = max(2.0, seconds / 4)
    tell("the capacity")
    await flood.closed(BUSY, shorter / 2)
    before = max(1.0, (await flood.closed(BUSY, shorter)).answers_per_s)
    tell("the overload")
    memory: list[float] = []
    watching = asyncio.create_task(watch_memory(running, memory))
    overload = await flood.open(factor * before, seconds)
    watching.cancel()
    tell("the capacity again")
    after = (await flood.closed(BUSY, shorter)).answers_per_s
    tell("a tenant alone, and beside a flood")
    alone = await quiet.closed(NEIGHBOURS, shorter)
    flooding = asyncio.create_task(flood.open(factor * before, 1.5 * shorter))
    await asyncio.sleep(shorter / 2)
    beside = await quiet.closed(NEIGHBOURS, shorter)
    await flooding
    flood.close()
    quiet.close()
    third = len(memory) // 3 + 1
    return Load(
        seconds=seconds,
        offered=factor * before,
        capacity=(before, after),
        goodput=overload.answers_per_s,
        fates=dict(Counter(ended.fate for ended in overload.ends)),
        answered_p50_ms=overload.percentile(50),
        answered_p99_ms=overload.percentile(99),
        memory_mb=(float(np.mean(memory[:third])), float(np.mean(memory[-third:]))),
        quiet_alone_ms=alone.percentile(95),
        quiet_beside_flood_ms=beside.percentile(95),
    )


class Client:
    """Asks as one tenant, always about another picture.

    asked: phrases, and JPEGs.
    """

    def __init__(self, url: str, key: str, timeout_s: float, asked: list[tuple[str, bytes]]) -> None:
        self._asked = asked
        self._caller = Caller(url)
        self._headers = {"content-type": "image/jpeg", "authorization": f"Bearer {key}"}
        self._query = f"timeout_s={timeout_s}&object="
        self._numbers = count()

    async def closed(self, concurrency: int, seconds: float, pause_s: float = 0.0) -> Phase:
        """`concurrency` callers who ask again once they have an answer, or `pause_s` after a failure."""
        began = time.perf_counter()

        async def go_on() -> list[Ended]:
            ends = []
            while time.perf_counter() < began + seconds:
                ends.append(await self.ask())
                if ends[-1].fate != "answered":
                    await asyncio.sleep(pause_s)
            return ends

        parts = await asyncio.gather(*(go_on() for _ in range(concurrency)))
        return Phase(began, seconds, [ended for part in parts for ended in part])

    async def open(self, rate: float, seconds: float) -> Phase:
        """So many requests a second, whatever becomes of them."""
        began = time.perf_counter()
        asked = []
        for number in range(round(rate * seconds)):
            await asyncio.sleep(began + number / rate - time.perf_counter())
            asked.append(asyncio.create_task(self.ask()))
        return Phase(began, seconds, await asyncio.gather(*asked))

    def close(self) -> None:
        self._caller.close()

    async def ask(self) -> Ended:
        """One request, the next in line."""
        phrase, image = self._asked[next(self._numbers) % len(self._asked)]
        target = f"/v1/detect?{self._query}{quote(phrase)}"
        begin = time.perf_counter()
        fate: Fate = "lost"
        with suppress(OSError, EOFError):
            fate = _fate(await self._caller.post(target, image, self._headers))
        now = time.perf_counter()
        return Ended(fate, now, 1e3 * (now - begin))


def _fate(reply: Reply) -> Fate:
    if reply.status == 200:
        late = json.loads(reply.body)["finish_reason"] == "deadline"
        return "missed its deadline" if late else "answered"
    if reply.status == 504:
        return "missed its deadline"
    if reply.status in (429, 503):
        return "refused" if "retry-after" in reply.headers else "refused without Retry-After"
    return f"failed with {reply.status}"


async def watch_memory(running: Service, samples: list[float]) -> None:
    """Adds a sample every half second until it is cancelled."""
    while True:
        samples.append(running.memory_mb())
        await asyncio.sleep(0.5)
