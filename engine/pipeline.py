"""The order of launches, commits and finalizations: a pure state machine over two steps and two slots.

    engine thread   launch t+1 | commit t      | finalize t+1 | launch t+2 | commit t+1 | ...
    compute stream  [ sample t ][ forward t+1 ..............  ][ sample t+1 ][ forward t+2 ...
    copy stream               [ tokens t ]                                 [ tokens t+1 ]

The forward of t+1 is on the device before the tokens of t are read, so the device does not wait while
the host advances grammars and writes answers.  Only the sampling of t+1 needs what commit t found.

Invariants:

1. At most two steps are in flight.
2. Steps commit in the order of their launch.
3. A step is finalized once: after the commit of every earlier step ended where sampling needs what that
   commit finds (host placement), else after the finalization of every earlier step (device placement).
4. A step is committed once, after its finalization.
5. A slot belongs to one step from its launch until its commit has ended, not until it is popped.
6. Consecutive steps use different slots.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

DEPTH = 2
Work = TypeVar("Work")


class PipelineError(RuntimeError):
    """A call that would break an invariant; always a bug of the caller."""


@dataclass(eq=False, slots=True)
class InFlight(Generic[Work]):
    """A step between launch and the end of its commit."""

    number: int
    slot: int
    work: Work
    finalized: bool = False
    committing: bool = False


class Pipeline(Generic[Work]):
    """FIFO of at most two steps.

    after_commit: whether a step's finalization waits for the commit of the one before it.
    """

    def __init__(self, after_commit: bool = True) -> None:
        self._after_commit = after_commit
        self._steps: deque[InFlight[Work]] = deque()
        self._launched = 0

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def launched(self) -> int:
        """Steps so far."""
        return self._launched

    @property
    def can_launch(self) -> bool:
        return len(self._steps) < DEPTH

    @property
    def oldest(self) -> InFlight[Work] | None:
        return self._steps[0] if self._steps else None

    def launch(self, work: Work) -> InFlight[Work]:
        if not self.can_launch:
            raise PipelineError("two steps are in flight already")
        step = InFlight(self._launched, self._launched % DEPTH, work)
        self._launched += 1
        self._steps.append(step)
        return step

    def finalize(self, step: InFlight[Work]) -> None:
        first = self.oldest
        may_follow = first is not None and first.finalized and not self._after_commit
        if step is not first and not (may_follow and step is self._steps[-1]):
            moment = "commit" if self._after_commit else "finalization"
            raise PipelineError(
                f"step {step.number} is finalized before the {moment} of an earlier one ended"
            )
        if step.finalized:
            raise PipelineError(f"step {step.number} is finalized twice")
        step.finalized = True

    def begin_commit(self, step: InFlight[Work]) -> None:
        if step is not self.oldest:
            raise PipelineError(f"step {step.number} is committed out of order")
        if not step.finalized or step.committing:
            raise PipelineError(f"step {step.number} is committed before it is finalized, or twice")
        step.committing = True

    def end_commit(self, step: InFlight[Work]) -> None:
        if step is not self.oldest or not step.committing:
            raise PipelineError(f"step {step.number} was not being committed")
        self._steps.popleft()
