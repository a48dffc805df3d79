"""Who gets a row: fairness in served counts, without a device.

A desk runs the scheduler as the engine does, one step at a time; every sequence lives for so many steps.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from engine.models.base import Model, Pixels
from engine.pages import PagePool
from engine.request import Priority, Request
from engine.scheduler import Limits, Scheduler
from engine.sequence import Ask, Sequence
from grammars.cursors import Cursors

ROWS = 8


class Desk:
    """served: priorities in the order in which their sequences ended.  held: batch rows after each step."""

    def __init__(self, model: Model, share: float, rows: int = ROWS, pages: int = 10_000) -> None:
        self._pool = PagePool(pages)
        limits = Limits(rows, 16, True, 1024, share)
        self.scheduler = Scheduler(self._pool, limits, Cursors(model.grammar, rows + 1), False)
        self._numbers = 0
        self.served: list[Sequence] = []
        self.rows: list[Counter[Priority]] = []
        self.kinds: list[str] = []

    def arrive(self, priority: Priority, life: int = 4) -> Sequence:
        self._numbers += 1
        request = Request("detect", np.zeros((1, 1, 3), np.uint8), ("x",), priority=priority)
        sequence = Sequence(
            ask=Ask(request, lambda event: None),
            phrase_index=0,
            prompt=[1, 2],
            label=[],
            image_key=self._numbers.to_bytes(4, "little"),
            pixels=Pixels(np.zeros(1), 64),  # type: ignore[arg-type]
            image_tokens=64,
            shift=0,
            frame=None,
            max_tokens=life,
            seed=0,
        )
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> None:
        step = self.scheduler.next_step()
        assert step is not None
        self.kinds.append(step.kind)
        for sequence in step.sequences:
            sequence.inflight_refs -= 1
        for sequence in step.last:
            sequence.finalized = True
            self.scheduler.finalized(sequence)
            self.scheduler.release(sequence)
            self.served.append(sequence)
        running = [s for s in self.scheduler.sequences() if s.row >= 0 and not s.finalized]
        self.rows.append(Counter(s.ask.request.priority for s in running))

    def serve(self, count: int) -> Counter[Priority]:
        """Step until so many more have been served; how many of each priority they are."""
        begin = len(self.served)
        while len(self.served) < begin + count:
            self.step()
        return Counter(s.ask.request.priority for s in self.served[begin:])


def flood(desk: Desk, priority: Priority, count: int = 400) -> list[Sequence]:
    return [desk.arrive(priority) for _ in range(count)]


@pytest.mark.parametrize("share", [0.125, 0.25, 0.5, 0.75])
def test_two_floods_are_served_by_their_shares(tiny: Model, share: float) -> None:
    desk = Desk(tiny, share)
    flood(desk, "batch")
    flood(desk, "interactive")
    served = desk.serve(400)
    assert served["batch"] == pytest.approx(400 * share, abs=2 * ROWS)
    assert max(rows["batch"] for rows in desk.rows) <= ROWS * share


def test_batch_work_alone_has_every_row(tiny: Model) -> None:
    desk = Desk(tiny, 0.25)
    flood(desk, "batch", 40)
    desk.serve(30)
    assert max(rows["batch"] for rows in desk.rows) == ROWS


def test_the_least_share_is_one_row(tiny: Model) -> None:
    desk = Desk(tiny, 0.001)
    flood(desk, "interactive")
    flood(desk, "batch")
    served = desk.serve(300)
    assert served["batch"] >= 300 / (2 * ROWS)
    assert max(rows["batch"] for rows in desk.rows) == 1


def test_interactive_arrivals_wait_for_their_share_of_the_rows_and_no_longer(tiny: Model) -> None:
    desk = Desk(tiny, 0.5)
    flood(desk, "batch")
    desk.serve(50)
    late = [desk.arrive("interactive") for _ in range(3)]
    before = len(desk.served)
    while any(s.row < 0 for s in late):
        desk.step()
    assert len(desk.served) - before <= ROWS, "more than those who held a row when they came"


def test_batch_rows_give_way_while_interactive_ones_are_there(tiny: Model) -> None:
    """Those that hold rows keep them; none gets a new one beyond the share."""
    desk = Desk(tiny, 0.25)
    flood(desk, "batch")
    desk.serve(10)
    flood(desk, "interactive", 60)
    desk.serve(ROWS)  # who held a row when they came
    begin = len(desk.rows)
    desk.serve(30)
    assert max(rows["batch"] for rows in desk.rows[begin:]) <= ROWS * 0.25


@pytest.mark.parametrize("priority", ["interactive", "batch"])
def test_first_come_first_served_within_a_priority(tiny: Model, priority: Priority) -> None:
    desk = Desk(tiny, 0.5)
    arrived = {p: flood(desk, p, 60) for p in ("interactive", "batch")}
    desk.serve(120)
    assert [s for s in desk.served if s.ask.request.priority == priority] == arrived[priority]


def test_a_large_sequence_in_front_is_not_overtaken_for_ever(tiny: Model) -> None:
    """It waits for its pages, and those behind it wait for it."""
    desk = Desk(tiny, 0.5, pages=1 + 40)
    small = [desk.arrive("interactive", life=8) for _ in range(12)]
    large = desk.arrive("interactive", life=16 * 34)
    behind = [desk.arrive("interactive", life=8) for _ in range(12)]
    desk.serve(12)
    assert desk.served == small
    desk.serve(1)
    assert desk.served[-1] is large
    desk.serve(12)
    assert desk.served[13:] == behind


def test_neither_prefill_nor_decode_starves(tiny: Model) -> None:
    """Arrivals without end, and rows that live long: every second step decodes, every second one admits."""
    desk = Desk(tiny, 0.5)
    for _ in range(60):
        desk.arrive("interactive", life=9)
        desk.step()
    flood(desk, "interactive", 20)
    desk.serve(20)
    admitted = [i for i, kind in enumerate(desk.kinds) if kind == "prefill"]
    assert not any(b == a + 1 for a, b in pairwise(admitted))
    assert len(desk.served) >= 20
