"""What the engine's machine asks for."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import get_args

from hypothesis import strategies as st

from engine.request import Priority, Request
from grammars.types import TASKS, Task
from tests.engine.asking import picture

PHRASES = ("red circle", "star", "the 😀 ring")


@dataclass(frozen=True)
class Wanted:
    """patience: seconds until the deadline.  cancel_at: at which of its events it is cancelled."""

    task: Task
    image: int
    phrases: list[str]
    most: int
    dedupe: bool
    priority: Priority
    patience: float | None
    cancel_at: int | None

    def request(self) -> Request:
        return Request(
            self.task,
            picture(self.image),
            tuple(self.phrases),
            self.most,
            dedupe=self.dedupe,
            deadline=None if self.patience is None else time.monotonic() + self.patience,
            priority=self.priority,
        )


WANTED = st.builds(
    Wanted,
    task=st.sampled_from(TASKS),
    image=st.integers(0, 2),
    phrases=st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3),
    most=st.sampled_from([1, 3, 500, 500]),
    dedupe=st.booleans(),
    priority=st.sampled_from(get_args(Priority)),
    patience=st.sampled_from([*[None] * 5, 3600.0, 0.02, -1.0]),
    cancel_at=st.sampled_from([*[None] * 5, 0, 1, 2]),
)
