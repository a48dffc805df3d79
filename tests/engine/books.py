"""Holds an engine's bookkeeping against the rules after every commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.executor import Placement
from engine.loop import Mode
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.trace import Span, Trace


class Books(Trace):
    """A trace that looks at the scheduler after every commit, on the engine thread.

    scheduler: set before the first request.  faults: what was wrong, in order.
    """

    def __init__(self, has_runs: bool) -> None:
        super().__init__()
        self.scheduler: Scheduler | None = None
        self.mode: Mode = "pipelined"
        self.placement: Placement = "host"
        self.faults: list[str] = []
        self._has_runs = has_runs
        self._alive: dict[Sequence, None] = {}

    @contextmanager
    def span(self, name: str, step: int, kind: str, rows: int) -> Iterator[None]:
        with super().span(name, step, kind, rows):
            yield
        if name == "commit":
            try:
                self._account()
            except AssertionError as fault:
                self.faults.append(str(fault))

    def _account(self) -> None:
        assert self.scheduler is not None
        alive = dict.fromkeys(self.scheduler.sequences())
        for sequence in alive:
            self._check(sequence)
        for sequence in self._alive.keys() - alive.keys():
            assert sequence.inflight_refs == 0, "a sequence was released while a step held it"
            assert not sequence.pages, "a sequence that is over has pages"
        self._alive = alive
        rows = [s.row for s in alive if s.row >= 0]
        assert len(set(rows)) == len(rows), "two sequences have one row"

    def _check(self, sequence: Sequence) -> None:
        assert self.scheduler is not None
        most = 2 if self.mode == "pipelined" else 0
        assert 0 <= sequence.inflight_refs <= most, f"{sequence.inflight_refs} steps hold a sequence"
        assert sequence.used <= sequence.max_tokens, "a sequence was launched beyond its limit"
        if sequence.row < 0:
            assert sequence.launched == 0, "a sequence without a row was launched"
            assert not sequence.finalized, "a sequence that waits was finalized"
        elif sequence.finalized:
            assert sequence.inflight_refs, "a sequence that is over and in no step has a row"
        elif not self._has_runs:
            committed = int(self.scheduler.tokens[sequence.row])
            assert sequence.launched == committed + sequence.inflight_refs, "a step was counted wrongly"

    def steps(self, name: str) -> dict[int, Span]:
        return {span.step: span for span in self.spans if span.name == name}

    def check_order(self) -> int:
        """Every step is launched, finalized and committed once, in the order of the launches.

        Rows of all launches.
        """
        launches, finalizes, commits = (self.steps(name) for name in ("launch", "finalize", "commit"))
        for spans in (launches, finalizes, commits):
            assert list(spans) == list(range(len(launches)))
        for step, launch in launches.items():
            assert launch.end <= finalizes[step].begin
            assert finalizes[step].end <= commits[step].begin
            if step >= 2:  # its slot is free again
                assert commits[step - 2].end <= launch.begin
            if step >= 1 and self.placement == "host":
                assert commits[step - 1].end <= finalizes[step].begin
        return sum(span.rows for span in launches.values())
