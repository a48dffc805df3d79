"""Calls in threads that hold up nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from app.jobs.threads import Threads
from tests.admission.fakes import PATIENCE_S, until

HANGING = """
import asyncio, time
from app.jobs.threads import Threads

async def main():
    async with asyncio.timeout(0.1):
        await Threads(1).run(time.sleep, 3600)

try:
    asyncio.run(main())
except TimeoutError:
    print("given up")
"""


async def test_what_a_call_gives_or_raises() -> None:
    threads = Threads(2)
    assert await threads.run(divmod, 7, 2) == (3, 1)
    assert await threads.run(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 1, 0)


async def test_an_abandoned_call_counts_until_it_returns() -> None:
    threads, gate, began = Threads(2), threading.Event(), []

    def wait(name: str) -> str:
        began.append(name)
        gate.wait(PATIENCE_S)
        return name

    first, second, third = (asyncio.create_task(threads.run(wait, name)) for name in "abc")
    await until(lambda: len(began) == 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert began == ["a", "b"]
    gate.set()
    assert await asyncio.gather(second, third) == ["b", "c"]


def test_a_process_ends_while_a_call_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert ended.stdout == "given up\n"
