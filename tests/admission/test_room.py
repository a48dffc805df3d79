"""How much a worker takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from app.admission.messages import Completed, SpatialParams
from app.admission.room import Room
from tests.admission.fakes import FakeEngine, answer, ask, until


def flying(priority, rows, max_objects=50):
    return SimpleNamespace(
        priority=priority, rows=rows, params=SpatialParams(phrases=[], max_objects=max_objects)
    )


@pytest.mark.parametrize(
    ("deliveries", "left"),
    [
        ([], (20, 20)),
        ([flying("interactive", 5)], (15, 8)),
        ([flying("interactive", 20)], (0, 0)),
        ([flying("interactive", 30)], (0, 0)),
        ([flying("batch", 3)], (17, 17)),
        ([flying("batch", 20)], (12, 0)),
        ([flying("batch", 8), flying("interactive", 4)], (8, 0)),
        ([flying("batch", 20), flying("interactive", 12)], (0, 0)),
    ],
)
def test_rows(deliveries, left):
    """16 rows, four phrases on their way, batch holds eight while there are interactive ones."""
    assert Room(16, 0.5, 0.5, lambda _: 1).left(deliveries, 1000) == left


def test_batch_keeps_to_its_share_a_moment_longer():
    room = Room(16, 0.5, 0.5, lambda _: 1)
    assert room.left([flying("batch", 3)], 1000, lately=True) == (17, 5)
    assert room.left([flying("batch", 8)], 1000, lately=True) == (12, 0)


def test_pages():
    room = Room(16, 0.5, 0.5, lambda max_objects: max_objects // 10)
    assert room.left([flying("interactive", 2)], 30) == (4, 4)
    assert room.left([flying("interactive", 2, max_objects=100)], 30) == (2, 2)
    assert room.left([flying("interactive", 8)], 30) == (0, 0)
    assert room.left([], 3) == (20, 20), "one request always goes"


async def test_a_worker_short_of_pages_takes_what_they_hold(client, start_work, monkeypatch):
    monkeypatch.setattr("tests.admission.fakes.PAGES", 15)
    work = await start_work()
    first = await ask(client, "hold 0")
    await until(lambda: work.engine.runs)
    tickets = [first, *[await ask(client, f"hold {n}") for n in range(1, 6)]]
    await until(lambda: len(work.engine.runs) == 3)
    work.engine.release.set()
    for ticket in tickets:
        assert isinstance(await answer(ticket), Completed)
    assert max(work.engine.together) == 3


async def test_priority_reaches_the_engine_and_interactive_passes_a_full_batch(client, start_work):
    work = await start_work(FakeEngine(), max_batch=4)
    batch = [await ask(client, f"hold {n}", priority="batch") for n in range(10)]
    await until(lambda: len(work.engine.runs) == 6)
    now = await ask(client, "now")
    assert isinstance(await answer(now), Completed)
    work.engine.release.set()
    for ticket in batch:
        assert isinstance(await answer(ticket), Completed)
    assert work.engine.runs[6] == ("now",)
    assert work.engine.priorities[:7] == ["batch"] * 6 + ["interactive"]


async def test_between_two_requests_of_a_caller_batch_does_not_take_all_rows(client, start_work, monkeypatch):
    monkeypatch.setattr("app.admission.feeder.LINGER_S", 600.0)
    work = await start_work(FakeEngine(), max_batch=4, batch_share=0.5)
    await answer(await ask(client, "now"))
    batch = [await ask(client, f"hold {n}", priority="batch") for n in range(6)]
    await until(lambda: len(work.engine.runs) == 3)
    await answer(await ask(client, "now"))
    assert len(work.engine.runs) == 4, "two of the batch beside two interactive ones"
    monkeypatch.setattr("app.admission.feeder.LINGER_S", 0.0)
    await until(lambda: len(work.engine.runs) == 8)
    work.engine.release.set()
    for ticket in batch:
        assert isinstance(await answer(ticket), Completed)
