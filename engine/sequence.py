"""A phrase's life in the engine, and the request that it belongs to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from engine.adapters.slots import NO_ADAPTER
from engine.errors import EngineError
from engine.events import EngineMetrics, Event, Failed, Finished, FinishReason, Found, PhraseEnded
from engine.models.base import Pixels
from engine.pages import Prefix
from engine.request import Request
from grammars.types import Frame, Item

log = logging.getLogger(__name__)

REPEATS_TO_STOP = 3
LAST = (Finished, Failed)


@dataclass(eq=False, slots=True, weakref_slot=True)
class Ask:
    """A request in the engine: its listener, its clock and the sequences that are not over.

    Only the engine thread calls its methods, so the listener hears everything from one thread, in order;
    once that has ended, a preparation thread says so.
    """

    request: Request
    on_event: Callable[[Event], None]
    submitted: float = field(default_factory=time.monotonic)
    prepared: float = 0.0
    launched: float = 0.0
    first_token: float = 0.0
    open_sequences: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    found: int = 0
    over: bool = False

    def tell(self, event: Event) -> None:
        """A listener that raises hears nothing more."""
        if self.over:
            return
        self.found += isinstance(event, Found)
        self.over = isinstance(event, LAST)
        try:
            self.on_event(event)
        except Exception:
            self.over = True
            log.exception("the listener of a request raised")

    def fail(self, error: EngineError) -> None:
        self.tell(Failed(error))

    def sequence_ended(self, phrase_index: int, reason: FinishReason, tokens: int) -> None:
        """One phrase is over after so many tokens; with the last one the request is."""
        self.output_tokens += tokens
        self.open_sequences -= 1
        self.tell(PhraseEnded(phrase_index, reason))
        if self.open_sequences == 0:
            self.tell(Finished(self._metrics()))

    def _metrics(self) -> EngineMetrics:
        now = time.monotonic()
        launched = self.launched or now
        first = self.first_token or now
        return EngineMetrics(
            prepare_ms=1e3 * (self.prepared - self.submitted),
            wait_ms=1e3 * (launched - self.prepared),
            prefill_ms=1e3 * (first - launched),
            decode_ms=1e3 * (now - first),
            ttft_ms=1e3 * (first - self.submitted),
            total_ms=1e3 * (now - self.submitted),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
        )


@dataclass(eq=False, slots=True)
class Sequence:
    """One phrase of a request.

    prompt: token ids after the image.  label: token ids of a label placeholder.
    pixels: the preprocessed image, dropped when its KV exists.
    image_tokens: places that its prefix takes.  shift and frame: see `Pixels`.
    max_tokens: tokens that the answer may have, sampled and label tokens together; `used` so far.
    launched: steps launched so far; each samples one token.
    finalized: nothing more is said of it; a zombie while `inflight_refs` steps (0..2) still hold it.
    """

    ask: Ask
    phrase_index: int
    prompt: list[int]
    label: list[int]
    image_key: bytes
    pixels: Pixels | None
    image_tokens: int
    shift: int
    frame: Frame | None
    max_tokens: int
    seed: int
    row: int = -1
    adapter_slot: int = NO_ADAPTER
    pages: list[int] = field(default_factory=list)
    prefix: Prefix | None = None
    used: int = 0
    launched: int = 0
    finalized: bool = False
    inflight_refs: int = 0
    kept: list[Item] = field(default_factory=list)
    objects: int = 0
    repeats: int = 0

    @property
    def prefix_key(self) -> Hashable:
        """Of the KV of its image, which the adapter takes part in."""
        return self.image_key, self.ask.request.adapter

    def offer(self, item: Item) -> FinishReason | None:
        """Tell the listener of an item, unless it repeats or is not asked for; why the phrase ends, if so."""
        request = self.ask.request
        if request.dedupe:
            if item.repeats_any(self.kept):  # type: ignore[arg-type]
                self.repeats += 1
                return "repetition" if self.repeats >= REPEATS_TO_STOP else None
            self.repeats = 0
        self.kept.append(item)
        if item.score < request.min_score or (request.region and not item.within(request.region)):
            return None
        self.objects += 1
        self.ask.tell(Found(self.phrase_index, item))
        return "max_objects" if self.objects >= request.max_objects else None
