"""Numbers that the engine gives about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """A moment's counts; pages are blocks of KV.

    Since the start: steps launched, tokens prefilled, tokens sampled, seconds without work, seconds that the
    compute stream worked (0 on devices that do not know: cuda).
    """

    rows_active: int
    rows_max: int
    waiting: int
    pages_free: int
    pages_cached: int
    pages_held: int
    pages_total: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    idle_s: float
    device_s: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Since the start: images through the vision tower, image and prompt tokens prefilled."""

    vision_images: int
    prefill_tokens: int
