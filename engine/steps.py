"""What a launched step holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.pages import Prefix
from engine.sequence import Sequence


@dataclass(eq=False, slots=True)
class Step:
    """Sequences in order, their rows, and those of them that may have no further step.

    rows: [bucket] int64, padded with the reserved row.
    warm: whether one of them is sampled with a temperature.
    failed: whether its sequences have been told that its device work failed.
    """

    sequences: list[Sequence]
    rows: npt.NDArray[np.int64]
    warm: bool = False
    last: list[Sequence] = field(default_factory=list)
    failed: bool = False

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@dataclass(eq=False, slots=True)
class Decode(Step):
    """One more token for every row that may have one."""


@dataclass(eq=False, slots=True)
class Extend(Step):
    """Known tokens appended to rows in one forward: the last sampled one and the run that follows it."""

    runs: list[list[int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Prefill(Step):
    """New rows, and what this step computes or fetches for them.

    new_prefixes: KV of images, each with the first sequence that needs it.
    new_adapters: slots to fill, and the adapters that they get.
    """

    new_prefixes: dict[Prefix, Sequence] = field(default_factory=dict)
    new_adapters: dict[int, str] = field(default_factory=dict)
