"""Decoding is fair between tenants, keeps to its memory, and happens only while somebody waits."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from app.admission.messages import Completed
from app.intake.cost import Cost
from tests.admission.fakes import PATIENCE_S, FakeEngine, answer, ask, fake_decode, leftovers, until

MB = 1_000_000
COSTLY = Cost(60, MB)
LATE_S = 1.5
"""Beyond a deadline; the queue itself would end the request two seconds after it."""


class Decoder:
    """Decodes anything, but what starts with "held" only once it is let go."""

    def __init__(self) -> None:
        self.began: list[bytes] = []
        self._free = threading.Condition()
        self._let: set[bytes] = set()
        self.over = False

    def __call__(self, data: bytes) -> object:
        with self._free:
            self.began.append(data)
            self._free.wait_for(lambda: self._goes_on(data), PATIENCE_S)
        return fake_decode(data)

    def _goes_on(self, data: bytes) -> bool:
        return self.over or not data.startswith(b"held") or data in self._let

    def let(self, *pictures: bytes) -> None:
        with self._free:
            self._let.update(pictures)
            self._free.notify_all()


@pytest.fixture
def decoder(monkeypatch):
    monkeypatch.setattr("app.admission.decoding.DECODE_THREADS", 2)
    decoder = Decoder()
    yield decoder
    decoder.over = True
    decoder.let()


async def test_costly_pictures_of_one_tenant_do_not_hold_up_another(client, start_work, decoder):
    await start_work(decode=decoder)
    pictures = [b"held %d" % n for n in range(8)]
    flood = [await ask(client, "cat", image=p, tenant="flood", cost=COSTLY) for p in pictures]
    await until(lambda: decoder.began)
    for number in range(3):
        small = await ask(client, "cat", image=b"small %d" % number, tenant="quiet")
        assert isinstance(await answer(small), Completed)
    assert [data for data in decoder.began if data.startswith(b"held")] == pictures[:1]
    for n in range(8):
        await until(lambda n=n: pictures[n] in decoder.began)
        decoder.let(pictures[n])
    for ticket in flood:
        assert isinstance(await answer(ticket), Completed)


async def test_one_costly_picture_of_another_tenant_waits_for_one(client, start_work, decoder):
    await start_work(decode=decoder)
    pictures = [b"held %d" % n for n in range(6)]
    flood = [await ask(client, "cat", image=p, tenant="flood", cost=COSTLY) for p in pictures]
    await until(lambda: decoder.began)
    other = await ask(client, "cat", image=b"other", tenant="quiet", cost=COSTLY)
    for picture in pictures:
        decoder.let(picture)
    assert isinstance(await answer(other), Completed)
    for ticket in flood:
        assert isinstance(await answer(ticket), Completed)
    assert decoder.began.index(b"other") <= 3, "it is taken when there is room, and then it is next"


async def test_ordinary_pictures_take_turns_by_tenant(client, start_work, decoder):
    work = await start_work(decode=decoder)
    pictures = [b"held %d" % n for n in range(5)]
    flood = [await ask(client, "cat", image=p, tenant="flood") for p in pictures]
    await until(lambda: len(decoder.began) == 2)
    quiet = await ask(client, "cat", image=b"quiet", tenant="quiet")
    await until(lambda: len(work.feeder._decoding._waiting) == 4)
    decoder.let(decoder.began[0])
    assert isinstance(await answer(quiet), Completed)
    assert decoder.began.index(b"quiet") == 2
    decoder.let(*pictures)
    for ticket in flood:
        assert isinstance(await answer(ticket), Completed)


async def test_a_cancelled_request_is_not_decoded(client, start_work, decoder):
    work = await start_work(decode=decoder)
    tickets = [await ask(client, "cat", image=b"held %d" % n) for n in range(4)]
    await until(lambda: len(decoder.began) == 2)
    await until(lambda: len(work.feeder._running) == 4)
    await tickets[2].cancel()
    await until(lambda: len(work.feeder._running) == 3)
    decoder.let(b"held 0", b"held 1", b"held 3")
    for number in (0, 1, 3):
        assert isinstance(await answer(tickets[number]), Completed)
    assert b"held 2" not in decoder.began


async def test_a_request_cancelled_while_it_is_decoded_ends_at_once(client, start_work, decoder):
    work = await start_work(decode=decoder)
    ticket = await ask(client, "cat", image=b"held")
    await until(lambda: decoder.began)
    await ticket.cancel()
    await until(lambda: not work.feeder._running)
    decoder.let(b"held")
    assert isinstance(await answer(await ask(client, "dog")), Completed)
    assert work.engine.runs == [("dog",)]


async def late_by(client, **changes):
    """The problem of a request with half a second, and by how much it came after its deadline."""
    began = time.monotonic()
    ended = await answer(await ask(client, "cat", timeout_s=0.5, **changes))
    return ended.problem, time.monotonic() - began - 0.5


async def test_the_deadline_is_kept_while_an_image_waits(client, start_work, decoder, redis, settings):
    work = await start_work(decode=decoder)
    held = [await ask(client, "cat", image=b"held %d" % n) for n in range(2)]
    await until(lambda: len(decoder.began) == 2)
    problem, late_s = await late_by(client, image=b"waits")
    assert problem == "deadline-exceeded"
    assert late_s < LATE_S
    await until(lambda: len(work.feeder._running) == 2)
    decoder.let(b"held 0", b"held 1")
    for ticket in held:
        assert isinstance(await answer(ticket), Completed)
    assert b"waits" not in decoder.began
    assert await leftovers(redis, settings) == set()
    counts = await redis.hgetall(f"pb1:{{{settings.namespace}}}:counts")
    assert (counts[b"expired"], counts[b"completed"]) == (b"1", b"2")


async def test_the_deadline_is_kept_while_an_image_is_decoded(client, start_work, decoder):
    """The abandoned decode keeps its memory until it ends."""
    work = await start_work(decode=decoder, decode_mb=10)
    problem, late_s = await late_by(client, image=b"held", cost=Cost(60, 8 * MB))
    assert problem == "deadline-exceeded"
    assert late_s < LATE_S
    await until(lambda: not work.feeder._running)
    problem, _ = await late_by(client, image=b"another", cost=Cost(60, 8 * MB))
    assert problem == "deadline-exceeded"
    assert decoder.began == [b"held"]
    decoder.let(b"held")
    assert isinstance(await answer(await ask(client, "cat", cost=Cost(60, 8 * MB))), Completed)


async def test_the_deadline_is_kept_while_the_engine_prepares(client, start_work):
    class Preparing(FakeEngine):
        """Says nothing until it is told to go on, nor when it is cancelled."""

        def submit(self, request, on_event):
            return super().submit(request, lambda event: self.release.is_set() and on_event(event))

    await start_work(Preparing())
    problem, late_s = await late_by(client)
    assert problem == "deadline-exceeded"
    assert late_s < LATE_S


async def test_what_a_worker_decodes_at_once_keeps_to_its_memory(client, start_work, decoder):
    """A picture counts until the engine has no use for it."""
    work = await start_work(decode=decoder, decode_mb=100)
    large = Cost(5, 60 * MB)
    first = await ask(client, "hold", image=b"held 0", cost=large)
    second = await ask(client, "cat", image=b"held 1", cost=large)
    await until(lambda: len(work.feeder._running) == 2)
    assert decoder.began == [b"held 0"], "though there is a thread"
    decoder.let(b"held 0", b"held 1")
    await until(lambda: work.engine.runs)
    await asyncio.sleep(0.1)
    assert decoder.began == [b"held 0"]
    work.engine.release.set()
    assert isinstance(await answer(first), Completed)
    assert isinstance(await answer(second), Completed)
    huge = await ask(client, "cat", image=b"huge", cost=Cost(60, 500 * MB))
    assert isinstance(await answer(huge), Completed), "more than the limit, alone"


async def test_an_image_that_cannot_be_decoded_gives_its_memory_back(client, start_work, decoder):
    await start_work(decode=decoder, decode_mb=100)
    for number in range(3):
        broken = await ask(client, "cat", image=b"broken %d" % number, cost=Cost(60, 90 * MB))
        assert (await answer(broken)).problem == "invalid-image"
    assert isinstance(await answer(await ask(client, "cat", cost=Cost(60, 90 * MB))), Completed)


async def test_a_tenant_that_fills_the_queue_with_costly_pictures_leaves_room(client, start_work, decoder):
    """More of them than a worker has rows."""
    work = await start_work(decode=decoder)
    pictures = [b"held %d" % n for n in range(16)]
    flood = [await ask(client, "cat", image=p, tenant="flood", cost=Cost(10, MB)) for p in pictures]
    await until(lambda: decoder.began)
    assert isinstance(await answer(await ask(client, "dog", image=b"small", tenant="quiet")), Completed)
    assert len(work.feeder._running) < 8
    decoder.let(*pictures)
    for ticket in flood:
        assert isinstance(await answer(ticket), Completed)
