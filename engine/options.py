"""How an engine runs."""

from __future__ import annotations

from dataclasses import dataclass

from engine.executor import Placement
from engine.loop import Mode
from engine.trace import Trace


@dataclass(frozen=True, slots=True)
class Options:
    """How an engine runs.

    mode: "pipelined", or "blocking", the reference: the same functions in another order.
    placement: where sampling finds grammar states; "device" never waits for a commit, but cannot write
        labels.
    max_batch: rows, that is sequences that decode together.
    pages: blocks of 16 tokens of KV; by default enough for half of `max_batch` rows at full context and
        256 cached images.
    prefill_tokens: image and prompt tokens that one prefill step computes at most.
    batch_share: part of the rows that batch sequences hold at most while interactive ones are there.
    max_tokens: tokens per phrase at most, by default what `max_objects` needs.
    trace: records what ran when.
    """

    mode: Mode = "pipelined"
    placement: Placement = "host"
    max_batch: int = 32
    pages: int | None = None
    prefill_tokens: int = 1024
    batch_share: float = 0.5
    prepare_threads: int = 2
    max_tokens: int | None = None
    trace: Trace | None = None
