"""Any order of events: every request gets exactly one final answer, and nothing is left behind."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from app.admission.messages import Completed, Failure, Metrics, ObjectEvent, WorkerInfo
from app.admission.worker_queue import WorkerQueue, report_gone
from tests.admission.fakes import Inbox, answer, ask, leftovers, until

WORKERS = ("w0", "w1", "w2")
TENANTS = ("a", "b", "c")


class Chaos:
    """Three workers' sides of the queue, driven by hand."""

    def __init__(self, seed, client, redis, settings):
        self.dice = random.Random(seed)
        self.client, self.redis, self.settings = client, redis, settings
        self.tickets, self.held, self.dead, self.wins = [], {}, [], {}
        self.queues = {w: WorkerQueue(redis, settings.namespace, w, "tiny") for w in WORKERS}
        self.inboxes = {w: Inbox(redis, queue) for w, queue in self.queues.items()}
        self.born = 0

    async def beat(self, worker):
        info = WorkerInfo(
            id=worker, version="0", name="tiny", family="f", revision="0", tasks=[], capacity=8, load=0
        )
        keys = [delivery.key for delivery in self.held.get(worker, [])]
        _, gone = await self.queues[worker].beat(info, keys)
        self.held[worker] = [delivery for delivery in self.held.get(worker, []) if delivery.id not in gone]

    async def admit(self, worker):
        phrases = ["x"] * self.dice.choice((1, 1, 2, 7))
        kind, priority = self.dice.randbytes(1), self.dice.choice(("interactive", "batch"))
        tenant = self.dice.choice(TENANTS)
        self.tickets.append(await ask(self.client, *phrases, image=kind, tenant=tenant, priority=priority))

    async def take(self, worker):
        rows, batch_rows, flood, flood_rows = map(self.dice.choice, ((1, 3, 8), (1, 8), (0, 9), (1, 4)))
        tenants = Counter(delivery.tenant for delivery in self.held[worker])
        taken, _ = await self.queues[worker].take(rows, batch_rows, flood, flood_rows, tenants)
        self.held[worker] += taken

    async def hear(self, worker):
        """Of requests that were handed over."""
        self.held[worker] += await self.inboxes[worker].read()

    async def reclaim(self, worker):
        delivery = await self.queues[worker].reclaim()
        self.held[worker] += [delivery] if delivery else []

    async def emit(self, worker):
        for delivery in self.held[worker][:2]:
            await self.queues[worker].emit(delivery, 0, [ObjectEvent(0, (0.1, 0.1, 0.2, 0.2), 0.5)])

    async def finish(self, worker):
        """Also by a worker that counts as dead: it wins as long as nobody has its request."""
        stale = self.dead and self.dice.random() < 0.3
        pool = self.dead if stale else self.held[worker]
        if pool:
            delivery = self.dice.choice(pool)
            owner = delivery.owner if stale else worker
            won = await self.queues[owner].finish(getattr(delivery, "delivery", delivery), done())
            if won:
                self.wins[delivery.id] = self.wins.get(delivery.id, 0) + 1
            if not stale:
                self.held[worker].remove(delivery)

    async def cancel(self, worker):
        if self.tickets:
            await self.dice.choice(self.tickets).cancel()

    async def crash(self, worker):
        await report_gone(self.redis, self.settings.namespace, worker)
        self.dead += [Ghost(worker, delivery) for delivery in self.held[worker]]
        self.born += 1
        self.held[worker] = []
        self.rename(worker)

    async def leave(self, worker):
        await self.queues[worker].leave()
        self.held[worker] = []
        self.inboxes[worker].last = "0-0"  # it is gone, and another would begin anew

    def rename(self, worker):
        """A worker that starts again has another name; the old one stays reachable for its ghosts."""
        fresh = f"{worker}.{self.born}"
        self.queues[fresh] = WorkerQueue(self.redis, self.settings.namespace, fresh, "tiny")
        self.inboxes[fresh] = Inbox(self.redis, self.queues[fresh])
        self.held[fresh] = self.held.pop(worker)


class Ghost:
    """What a dead worker held."""

    def __init__(self, owner, delivery):
        self.owner, self.delivery, self.id = owner, delivery, delivery.id


def done():
    return Completed(model="tiny", width=1, height=1, objects=[], finish_reasons=["stop"], metrics=Metrics())


@pytest.mark.parametrize("seed", range(8))
async def test_every_request_ends_once_whatever_happens(seed, client, redis, settings):
    chaos = Chaos(seed, client, redis, settings)
    for worker in WORKERS:
        await chaos.beat(worker)
    steps = [chaos.admit] * 4 + [chaos.take, chaos.hear, chaos.finish] * 3
    steps += [chaos.beat, chaos.emit, chaos.reclaim, chaos.cancel, chaos.crash, chaos.leave]
    for _ in range(300):
        await chaos.dice.choice(steps)(chaos.dice.choice(list(chaos.held)))

    async def all_over():
        for worker in list(chaos.held):
            await chaos.beat(worker)
            await chaos.take(worker)
            await chaos.hear(worker)
            await chaos.reclaim(worker)
            while chaos.held[worker]:
                await chaos.finish(worker)
        return all(ticket.terminal for ticket in chaos.tickets)

    await until(all_over)
    answers = [await answer(ticket) for ticket in chaos.tickets]
    problems = {final.problem for final in answers if isinstance(final, Failure)}
    assert problems <= {"cancelled", "worker-crashed"}
    assert all(count == 1 for count in chaos.wins.values())
    assert {t.id for t in chaos.tickets if isinstance(t.terminal, Completed)} == set(chaos.wins)
    counts = [await redis.hgetall(f"pb1:{{{settings.namespace}}}:usage:{tenant}") for tenant in TENANTS]
    assert sum(int(n) for count in counts for n in count.values()) == len(chaos.tickets)
    assert await leftovers(redis, settings) == set()
    open_now = await redis.hgetall(f"pb1:{{{settings.namespace}}}:open")
    assert {int(n) for n in open_now.values()} == {0}
    assert await redis.hvals(f"pb1:{{{settings.namespace}}}:waiting") == []
