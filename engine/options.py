"""How an engine runs."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import EngineError
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
    pages: blocks of 16 tokens of KV.
    kv_memory: bytes of KV where `pages` is not given; by default enough for 256 cached images and, at full
        context, half of `max_batch` rows on a CPU, all of them on a GPU; but no more than a quarter of a
        machine's memory, or what a GPU has free.
    prefill_tokens: image and prompt tokens that one prefill step computes at most.
    batch_share: part of the rows that batch sequences hold at most while interactive ones are there.
    max_tokens: tokens per phrase at most, by default what `max_objects` needs.
    trace: records what ran when.
    """

    mode: Mode = "pipelined"
    placement: Placement = "host"
    max_batch: int = 32
    pages: int | None = None
    kv_memory: int | None = None
    prefill_tokens: int = 1024
    batch_share: float = 0.0625
    prepare_threads: int = 2
    max_tokens: int | None = None
    trace: Trace | None = None

    def __post_init__(self) -> None:
        """Raises EngineError for a value that cannot be used."""
        for name in ("max_batch", "kv_memory", "prefill_tokens", "prepare_threads", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineError("invalid-request", f"{name} must be at least 1, not {value}", name)
        if not 0 < self.batch_share <= 1:
            raise EngineError(
                "invalid-request",
                f"batch_share must be above 0 and at most 1, not {self.batch_share}",
                "batch_share",
            )
