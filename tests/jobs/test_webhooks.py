"""Webhooks: sent beside the jobs, with an end to each attempt, and an outcome in the job's document."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from app.access.caller import ANONYMOUS
from app.db.database import Database
from app.db.migrations import upgrade
from app.jobs import outbox, webhook
from app.jobs.ledger import Ledger
from app.jobs.opening import jobs_beside
from app.jobs.outbox import Outbox
from app.jobs.schemas import JobInfo, JobRequest, SourcePlace, StorePlace
from tests.access.serving import serving
from tests.admission.fakes import PATIENCE_S
from tests.db.conftest import database, postgres_url
from tests.jobs.service import ASKED, Jobs

__all__ = ["database", "postgres_url"]

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]
MB = 1024 * 1024


@dataclass
class Receiver:
    """Who is told: what came, and what is answered."""

    reply: Reply
    url: str = ""
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    sent: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        self.got.append((headers, json.loads(body)))
        try:
            await self.reply(writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent += len(data)


@asynccontextmanager
async def receiver(reply: Reply | None = None) -> AsyncIterator[Receiver]:
    told = Receiver(reply or ok)
    server = await asyncio.start_server(told.serve, "127.0.0.1")
    told.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/told"
    try:
        yield told
    finally:
        server.close()


async def ok(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    await writer.drain()


async def error(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
    await writer.drain()


async def elsewhere(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n")
    await writer.drain()


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(PATIENCE_S)


async def dripping(writer: asyncio.StreamWriter) -> None:
    """A byte now and then, each before any pause would be too long."""
    writer.write(b"HTTP/1.1 200 OK\r\nx: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello\r\n\r\n")
    await writer.drain()


@pytest.fixture
async def hooked(jobs: Jobs) -> AsyncIterator[Jobs]:
    """A service whose webhooks may go to this machine."""
    settings = replace(jobs.settings, fetch="public", fetch_allow="127.0.0.0/8")
    jobs.fill(2)
    async with serving(settings) as api:
        yield Jobs(api, settings, jobs.root)


@asynccontextmanager
async def runner(jobs: Jobs) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with jobs_beside(jobs.settings, stop):
        yield
        stop.set()


async def told(jobs: Jobs, job: str, *states: str) -> dict[str, Any]:
    """The outcome, once it is one of these."""
    async with asyncio.timeout(2 * PATIENCE_S):
        while ((shown := await jobs.show(job))["webhook"] or {}).get("state") not in states:
            await asyncio.sleep(0.05)
    outcome: dict[str, Any] = shown["webhook"]
    return outcome


async def submitted(jobs: Jobs, **changes: Any) -> str:
    answer = await jobs.submit(**changes)
    assert answer.status_code == 201, answer.text
    job: str = answer.json()["id"]
    return job


async def test_a_job_is_told_when_it_has_ended(hooked: Jobs) -> None:
    async with receiver() as there:
        job = await submitted(hooked, webhook=there.url)
        assert (await hooked.show(job))["webhook"] is None
        async with runner(hooked):
            outcome = await told(hooked, job, "delivered")
    assert outcome == {"state": "delivered", "attempts": 1, "status": 204, "error": ""}
    ((headers, body),) = there.got
    assert headers["content-type"] == "application/json"
    assert headers["idempotency-key"].startswith(job)
    shown = await hooked.show(job)
    assert body == shown | {"webhook": outcome | {"state": "pending", "status": None}}
    assert msgspec.convert(body, JobInfo).state == "completed"


async def test_failed_and_cancelled_jobs_are_told_too(hooked: Jobs) -> None:
    async with receiver() as there, runner(hooked):
        failed = await submitted(hooked, webhook=there.url, source={"store": "in", "prefix": "none"})
        await told(hooked, failed, "delivered")
    async with receiver() as other:
        cancelled = await submitted(hooked, webhook=other.url)
        await hooked.api.client.post(f"/v1/jobs/{cancelled}/cancel")
        async with runner(hooked):
            await told(hooked, cancelled, "delivered")
    assert [body["state"] for _, body in there.got + other.got] == ["failed", "cancelled"]


async def test_a_resumed_job_is_another_message(hooked: Jobs) -> None:
    async with receiver() as there:
        job = await submitted(hooked, webhook=there.url)
        await hooked.api.client.post(f"/v1/jobs/{job}/cancel")
        async with runner(hooked):
            await told(hooked, job, "delivered")
        again = await hooked.api.client.post(f"/v1/jobs/{job}/resume")
        assert again.json()["webhook"] is None
        async with runner(hooked):
            await told(hooked, job, "delivered")
    assert [body["state"] for _, body in there.got] == ["cancelled", "completed"]
    assert len({headers["idempotency-key"] for headers, _ in there.got}) == 2


@pytest.mark.parametrize(
    ("reply", "status", "says"),
    [
        (error, 500, "status 500"),
        (elsewhere, 302, "status 302"),
        (hangs_up, None, "broke off"),
        (no_http, None, "broke off"),
        (silent, None, "did not answer within 0.2 seconds"),
        (dripping, None, "did not answer within 0.2 seconds"),
    ],
)
async def test_it_is_given_up_and_holds_up_no_job(
    hooked: Jobs, monkeypatch: pytest.MonkeyPatch, reply: Reply, status: int | None, says: str
) -> None:
    monkeypatch.setattr(outbox, "ATTEMPTS", 3)
    monkeypatch.setattr(outbox, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(outbox, "GROWTH", 1.0)
    monkeypatch.setattr(webhook, "ATTEMPT_S", 0.2)
    async with receiver(reply) as there, runner(hooked):
        job = await submitted(hooked, webhook=there.url)
        outcome = await told(hooked, job, "failed")
    assert (outcome["attempts"], outcome["status"]) == (3, status)
    assert says in outcome["error"]
    assert len(there.got) == 3
    assert len({headers["idempotency-key"] for headers, _ in there.got}) == 1


async def test_jobs_go_on_while_receivers_do_not_answer(hooked: Jobs) -> None:
    """More receivers that never answer than attempts at once, and jobs after them."""
    async with receiver(dripping) as slow, receiver() as quick, runner(hooked):
        stuck = [await submitted(hooked, webhook=slow.url) for _ in range(webhook.OF_ONE_TENANT + 1)]
        last = await submitted(hooked)
        assert (await hooked.in_state(last, "completed", "failed"))["state"] == "completed"
        states = [(await hooked.show(job))["webhook"]["state"] for job in stuck]
        assert states == ["pending"] * len(stuck)
        assert not quick.got


async def test_an_answer_without_end_is_not_read(hooked: Jobs) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        await there.write(writer, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            await there.write(writer, b"100000\r\n" + bytes(MB) + b"\r\n")

    async def endless_head(writer: asyncio.StreamWriter) -> None:
        await head.write(writer, b"HTTP/1.1 200 OK\r\n")
        while True:
            await head.write(writer, b"x: " + b"y" * MB + b"\r\n")

    async with receiver(endless) as there, receiver(endless_head) as head, runner(hooked):
        outcome = await told(hooked, await submitted(hooked, webhook=there.url), "delivered")
        refused = await submitted(hooked, webhook=head.url)
        await hooked.in_state(refused, "completed")
        async with asyncio.timeout(PATIENCE_S):
            while not (await hooked.show(refused))["webhook"]["error"]:
                await asyncio.sleep(0.05)
        assert (outcome["status"], outcome["attempts"]) == (200, 1)
        assert max(there.sent, head.sent) < 32 * MB  # what fits between two sockets


async def test_a_host_that_cannot_be_looked_up_ends_nothing(hooked: Jobs) -> None:
    """As a row that an earlier version has let in."""
    database = Database(hooked.settings)
    ledger = Ledger(database)
    asked = msgspec.convert(ASKED | {"webhook": f"http://{'a' * 64}.example/"}, JobRequest)
    job = (await ledger.add(asked, ANONYMOUS)).id
    other = await submitted(hooked)
    async with runner(hooked):
        assert (await hooked.in_state(other, "completed", "failed"))["state"] == "completed"
        async with asyncio.timeout(PATIENCE_S):
            while not (await hooked.show(job))["webhook"]["error"]:
                await asyncio.sleep(0.05)
        after = await submitted(hooked)
        assert (await hooked.in_state(after, "completed", "failed"))["state"] == "completed"
    outcome = (await hooked.show(job))["webhook"]
    assert (outcome["state"], outcome["error"]) == ("pending", "the host name cannot be looked up")
    await database.close()


@pytest.mark.parametrize(
    "url",
    [
        f"http://{'a' * 64}/",
        f"http://{'a' * 64}.example/",
        "http://a..b/",
        "http://" + ".".join(["a" * 60] * 5) + "/",
        "http://example.com:99999/",
        "http://[::1/",
        "ftp://example.com/",
        "http://user@example.com/",
        "http:///x",
        "http://0x7f.1/",
    ],
)
async def test_what_can_never_be_told_is_refused(hooked: Jobs, url: str) -> None:
    answer = await hooked.submit(webhook=url)
    assert (answer.status_code, answer.json()["field"]) == (422, "webhook"), answer.text


async def test_private_addresses_are_not_told(hooked: Jobs) -> None:
    async with receiver() as there:
        job = await submitted(hooked, webhook=there.url)
        guarded = Jobs(hooked.api, replace(hooked.settings, fetch_allow=""), hooked.root)
        async with runner(guarded):
            await hooked.in_state(job, "completed")
            async with asyncio.timeout(PATIENCE_S):
                while not (await hooked.show(job))["webhook"]["error"]:
                    await asyncio.sleep(0.05)
    assert "not on the public Internet" in (await hooked.show(job))["webhook"]["error"]
    assert not there.got


async def test_a_process_that_ends_leaves_it_to_another(
    hooked: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LEASE_S", 0.5)
    async with receiver(silent) as there:
        job = await submitted(hooked, webhook=there.url)
        async with runner(hooked):
            await hooked.in_state(job, "completed")
            async with asyncio.timeout(PATIENCE_S):
                while not there.got:
                    await asyncio.sleep(0.05)
        there.reply = ok
        async with runner(hooked):
            outcome = await told(hooked, job, "delivered")
    assert outcome["attempts"] == len(there.got) == 2
    assert len({headers["idempotency-key"] for headers, _ in there.got}) == 1


async def test_two_processes_tell_each_job_once(hooked: Jobs) -> None:
    async with receiver() as there:
        made = [await submitted(hooked, webhook=there.url) for _ in range(6)]
        async with runner(hooked), runner(hooked):
            for job in made:
                await told(hooked, job, "delivered")
    assert Counter(body["id"] for _, body in there.got) == Counter(made)


async def test_attempts_in_the_rows(database: Database) -> None:
    await upgrade(database)
    ledger, waiting = Ledger(database), Outbox(database)
    asked = JobRequest(
        source=SourcePlace(store="in"), out=StorePlace(store="out"), webhook="http://example.com/"
    )
    theirs = replace(ANONYMOUS, tenant="acme")
    jobs = [await ledger.add(asked, caller) for caller in (ANONYMOUS, ANONYMOUS, theirs)]
    assert await waiting.take("me", ()) is None
    for job in jobs:
        assert await ledger.cancel(job)
    taken = await waiting.take("me", ())
    assert taken is not None
    assert (taken.id, taken.webhook_attempts) == (jobs[0].id, 1)
    other = await waiting.take("me", [ANONYMOUS.tenant])
    assert other is not None
    assert other.id == jobs[2].id
    await waiting.failed(taken, "another", 500, "not mine")  # who does not make the attempt has no say
    assert await webhook_of(ledger, taken.id) == ("pending", 1, None, "")
    await waiting.failed(taken, "me", 500, "x" * 1000)
    assert await webhook_of(ledger, taken.id) == ("pending", 1, 500, "x" * 200)
    await waiting.delivered(other, "me", 200)
    row = await ledger.find(other.id, "acme")
    assert row is not None
    assert (row.webhook_state, row.webhook_due) == ("delivered", None)
    assert await ledger.resume(jobs[1])  # it runs again: its webhook waits for its end
    assert await webhook_of(ledger, jobs[1].id) == (None, 0, None, "")
    assert await waiting.take("me", ()) is None


async def webhook_of(ledger: Ledger, job: str) -> tuple[str | None, int, int | None, str]:
    row = await ledger.find(job, ANONYMOUS.tenant)
    assert row is not None
    return row.webhook_state, row.webhook_attempts, row.webhook_status, row.webhook_error
