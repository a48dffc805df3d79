"""What readers of a ticket see, whenever its final answer comes."""

from __future__ import annotations

import asyncio

import pytest

from app.admission.messages import Completed, Metrics, ObjectEvent, PhraseEvent
from app.admission.tickets import Ticket

ONE, TWO = (ObjectEvent(0, (left, 0.1, 0.9, 0.9), 0.9) for left in (0.1, 0.2))
DONE = Completed(
    model="tiny", width=1, height=1, objects=[ONE, TWO], finish_reasons=["stop"], metrics=Metrics()
)
ALL = [ONE, TWO, PhraseEvent(0, "stop"), DONE]


@pytest.fixture
def ticket() -> Ticket:
    async def cancel(_: Ticket) -> None:
        """Nothing is to be told to anybody."""

    return Ticket("id", 60.0, cancel)


async def test_the_answer_comes_while_a_reader_is_busy_with_an_object(ticket: Ticket) -> None:
    ticket.feed(1, 0, ONE)
    seen = []
    async for event in ticket.events():
        seen.append(event)
        if event is ONE:
            ticket.conclude(DONE)
    assert seen == ALL


async def test_the_answer_comes_while_readers_wait(ticket: Ticket) -> None:
    async def read() -> list[object]:
        return [event async for event in ticket.events()]

    reading = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.sleep(0)
    ticket.feed(1, 0, ONE)
    await asyncio.sleep(0)
    ticket.conclude(DONE)
    assert await asyncio.gather(*reading) == [ALL, ALL]
    assert await read() == ALL, "also whoever comes later"


async def test_whoever_waits_for_the_answer_alone_may_leave(ticket: Ticket) -> None:
    first, second = ticket.ending(), ticket.ending()
    first.cancel()
    ticket.conclude(DONE)
    assert await second is DONE
    assert await ticket.result() is DONE
