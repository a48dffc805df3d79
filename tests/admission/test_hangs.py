"""An engine that hangs ends its worker, and another one answers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from app.admission.execution import EngineDied
from app.admission.messages import Completed
from tests.admission.fakes import PATIENCE_S, FakeEngine, answer, ask, fake_decode, until


async def ends(work, match):
    with pytest.raises(EngineDied, match=match):
        await asyncio.wait_for(work.task, PATIENCE_S)


async def test_a_thread_that_is_silent_ends_the_worker_and_another_answers(client, start_work):
    work = await start_work(stall_s=0.3)
    ticket = await ask(client, "hold")
    await until(lambda: work.engine.runs)
    work.engine.hangs = True
    await ends(work, "silent for 0.3 seconds")
    engine = FakeEngine()
    engine.release.set()
    await start_work(engine)
    assert isinstance(await answer(ticket), Completed)


async def test_an_engine_that_has_work_and_takes_no_step_ends_its_worker(client, start_work):
    work = await start_work(stall_s=0.3)
    work.engine.stands_still = True
    await ask(client, "hold")
    await ends(work, "launched no step for 0.3 seconds")


async def test_an_idle_engine_takes_no_step_and_lives(client, start_work):
    work = await start_work(stall_s=0.1)
    work.engine.stands_still = True
    await asyncio.sleep(1.5)
    assert isinstance(await answer(await ask(client, "cat")), Completed)


async def test_an_image_whose_decoding_never_ends_ends_its_worker(client, start_work):
    stuck = threading.Event()

    def decode(data):
        stuck.wait(PATIENCE_S)
        return fake_decode(data)

    work = await start_work(stall_s=0.3, decode=decode)
    ticket = await ask(client, "cat", timeout_s=0.2)
    assert (await answer(ticket)).problem == "deadline-exceeded"
    await ends(work, "after its deadline")
    stuck.set()
