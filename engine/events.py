"""What the engine says about a request while it works on it, in this order:

any number of Found and PhraseEnded (phrases may interleave), then one Finished, or one Failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.errors import EngineError
from grammars.types import Item

FinishReason = Literal["stop", "max_objects", "length", "repetition", "deadline"]
WORST_FIRST: tuple[FinishReason, ...] = ("deadline", "length", "max_objects", "repetition", "stop")
TRUNCATED: frozenset[FinishReason] = frozenset({"deadline", "length", "max_objects"})


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Times in milliseconds from `Engine.submit`; token counts over all phrases.

    prepare_ms: hashing, resizing, tokenising.  wait_ms: from prepared until the first launch.
    prefill_ms: from the first launch until the first sampled token.  decode_ms: from there to the end.
    input_tokens: image and prompt tokens; cached_tokens: those of them whose KV was there already.
    """

    prepare_ms: float
    wait_ms: float
    prefill_ms: float
    decode_ms: float
    ttft_ms: float
    total_ms: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Found:
    """One more item of a phrase."""

    phrase_index: int
    item: Item


@dataclass(frozen=True, slots=True)
class PhraseEnded:
    """No more items of this phrase."""

    phrase_index: int
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a request that was answered."""

    metrics: EngineMetrics


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a request that was not."""

    error: EngineError


Event = Found | PhraseEnded | Finished | Failed
