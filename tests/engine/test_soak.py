"""2,000 requests, many of them broken off: every count ends as it began, and memory stops growing."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import EngineError
from engine.events import Failed, Finished, FinishReason, PhraseEnded
from engine.request import Priority, Request
from grammars.types import TASKS
from tests.engine.asking import assert_at_rest, holdings
from training.scenes import HELD_OUT, make_scene

REQUESTS, AT_ONCE, SCENES = 2000, 48, 60
PHRASES = ("red circle", "shape", "blue square", "every star", "the green ring", "white", "a pink cross")
GROWTH = 8 << 20
"""Bytes by which the mean of the last quarter may exceed that of the third: arenas of the allocator."""


@dataclass
class Run:
    """ends: how requests ended.  resident: bytes, after every tenth request."""

    images: list[np.ndarray]
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[FinishReason] = field(default_factory=Counter)
    resident: list[int] = field(default_factory=list)

    def request(self) -> Request:
        chance = self.chance
        image = chance.choice(self.images)
        if chance.random() < 0.5:  # one that was never seen
            image = image.copy()
            image[:8, :8] = chance.randbytes(1)[0]
            image[0, 0] = tuple(chance.randbytes(3))
        patience = chance.choice([None, None, None, 0.02, 0.2])
        return Request(
            chance.choice(TASKS),
            image,
            tuple(chance.sample(PHRASES, chance.choice([1, 1, 2, 5]))),
            max_objects=chance.choice([1, 5, 50]),
            dedupe=chance.random() < 0.5,
            temperature=chance.choice([0.0, 0.0, 0.8]),
            priority=chance.choice(get_args(Priority)),
            deadline=None if patience is None else time.monotonic() + patience,
        )

    async def ask(self, engine: Engine) -> None:
        """One request; one in three is left after a few events or a moment."""
        leave = self.chance.choice([None, None, None, None, 1, 3])
        stream = engine.stream(self.request())
        events = 0
        try:
            async with asyncio.timeout(self.chance.choice([None, None, None, 0.01])):
                async for event in stream:
                    events += 1
                    if isinstance(event, PhraseEnded):
                        self.reasons[event.finish_reason] += 1
                    if isinstance(event, Finished | Failed):
                        self.ends["failed" if isinstance(event, Failed) else "finished"] += 1
                    elif events == leave:
                        self.ends["left"] += 1
                        break
        except TimeoutError:
            self.ends["cancelled"] += 1
        except EngineError as error:
            raise AssertionError(f"refused: {error}") from error
        finally:
            await stream.aclose()
        if sum(self.ends.values()) % 10 == 0:
            self.resident.append(resident())


def resident() -> int:
    """Bytes of this process in memory."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def soak(engine: Engine, run: Run, requests: int) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with places:
            await run.ask(engine)

    async with asyncio.TaskGroup() as group:
        for _ in range(requests):
            group.create_task(one())


@pytest.mark.long
async def test_2000_requests_leave_nothing_behind() -> None:
    run = Run([make_scene(seed).image for seed in range(HELD_OUT.start, HELD_OUT.start + SCENES)])
    with Engine.load("tiny") as engine:
        await soak(engine, Run(run.images), 2 * AT_ONCE)
        assert_at_rest(engine)
        before = holdings(engine)
        threads = Counter(thread.name for thread in threading.enumerate())
        tasks = len(asyncio.all_tasks())
        await soak(engine, run, REQUESTS)
        assert_at_rest(engine)
        assert holdings(engine) == before
        assert Counter(thread.name for thread in threading.enumerate()) == threads
        assert len(asyncio.all_tasks()) == tasks
    assert sum(run.ends.values()) == REQUESTS
    assert min(run.ends[end] for end in ("finished", "failed", "left", "cancelled")) > REQUESTS // 50, (
        run.ends
    )
    quarters = np.array_split(np.array(run.resident), 4)
    assert quarters[3].mean() - quarters[2].mean() < GROWTH, [int(q.mean()) >> 20 for q in quarters]
