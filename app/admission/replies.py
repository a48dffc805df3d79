"""One task that reads the reply stream of this API process and feeds the tickets."""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from redis.asyncio import Redis

from app.admission.connections import BLOCK_S, REDIS_ERRORS
from app.admission.messages import decode_event, decode_terminal
from app.admission.tickets import Ticket
from app.admission.unreadable import FAULTS, skipped

BATCH = 500
BACKOFF_S = (0.05, 0.1, 0.25, 0.5, 1.0)

log = structlog.get_logger(__name__)


class ReplyReader:
    """Reads `stream` from its start and hands every entry to its ticket.

    Entries up to `last` are not needed any more.

    Args:
        reading: a client of its own, since it blocks.
        tickets: by request id; a ticket is removed with its final answer.
    """

    def __init__(self, reading: Redis, stream: str, tickets: dict[str, Ticket]) -> None:
        self._reading = reading
        self._stream = stream
        self._tickets = tickets
        self.last = "0-0"
        """The id of the last entry that was read."""

    async def run(self) -> None:
        """Reads until cancelled, through any absence of Redis."""
        failures = 0
        while True:
            try:
                await self._read_once()
                failures = 0
            except REDIS_ERRORS as error:
                if failures == 0:
                    log.warning("reply stream interrupted", error=str(error))
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
                failures += 1

    async def _read_once(self) -> None:
        block_ms = round(BLOCK_S * 1000)
        answer: Any = await self._reading.xread({self._stream: self.last}, count=BATCH, block=block_ms)
        for _, entries in answer or []:
            for entry_id, fields in entries:
                self.last = entry_id.decode()
                try:
                    self._hand_out(fields)
                except FAULTS as error:  # the final answer is in result:ID as well
                    skipped("reply", error)

    def _hand_out(self, fields: dict[bytes, bytes]) -> None:
        ticket = self._tickets.get(fields[b"id"].decode())
        if ticket is None:
            return
        if fields[b"seq"]:
            ticket.feed(int(fields[b"attempt"]), int(fields[b"seq"]), decode_event(fields[b"event"]))
        else:
            terminal = decode_terminal(fields[b"event"])
            del self._tickets[ticket.id]
            ticket.conclude(terminal)
