"""A phrase's life in the engine, and the request that it belongs to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.errors import EngineError
from engine.events import EngineMetrics, Event, Failed, Finished, FinishReason, Found, PhraseEnded
from engine.pages import Prefix
from engine.request import Request
from grammars.grammar import Cursor
from grammars.types import Item

REPEATS_TO_STOP = 3


@dataclass(eq=False, slots=True)
class Ask:
    """A request in the engine: its listener, its clock and the sequences that are not over.

    Only the engine thread calls its methods, so the listener hears everything from one thread, in order.
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

    def fail(self, error: EngineError) -> None:
        if not self.over:
            self.over = True
            self.on_event(Failed(error))

    def sequence_ended(self, phrase_index: int, reason: FinishReason) -> None:
        if self.over:
            return
        self.on_event(PhraseEnded(phrase_index, reason))
        self.open_sequences -= 1
        if self.open_sequences == 0:
            self.over = True
            self.on_event(Finished(self._metrics()))

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

    prompt: token ids after the image.  pixels: the preprocessed image, dropped when its KV exists.
    label: token ids of a label placeholder.  max_tokens: sampled tokens at most.
    launched: steps launched so far; each samples one token.
    length: tokens whose KV is written once every launched step has run.
    """

    ask: Ask
    phrase_index: int
    cursor: Cursor
    prompt: list[int]
    label: list[int]
    image_key: bytes
    pixels: torch.Tensor | None
    max_tokens: int
    row: int = -1
    pages: list[int] = field(default_factory=list)
    prefix: Prefix | None = None
    length: int = 0
    launched: int = 0
    label_written: int = 0
    finalized: bool = False
    inflight_refs: int = 0
    kept: list[Item] = field(default_factory=list)
    objects: int = 0
    repeats: int = 0

    def forced(self) -> int:
        """The next token of a label that is due, -1 where the token is to be sampled."""
        if not self.cursor.label_due:
            return -1
        self.label_written += 1
        return self.label[self.label_written - 1]

    def accept(self, position: int, probability: float, was_forced: bool) -> FinishReason | None:
        """Take one committed token, tell the listener of an item it completes; why it ends, if it does."""
        self.ask.output_tokens += 1
        if was_forced:
            if self.label_written == len(self.label):
                self.label_written = 0
                self.cursor.pass_label()
            return self._limit()
        item = self.cursor.advance(position, probability)
        if self.cursor.ended:
            return "stop"
        if item is not None and (reason := self._offer(item)) is not None:
            return reason
        return self._limit()

    def _limit(self) -> FinishReason | None:
        return "length" if self.launched >= self.max_tokens and self.inflight_refs == 1 else None

    def _offer(self, item: Item) -> FinishReason | None:
        request = self.ask.request
        if request.dedupe:
            if any(item.repeats(earlier) for earlier in self.kept):  # type: ignore[arg-type]
                self.repeats += 1
                return "repetition" if self.repeats >= REPEATS_TO_STOP else None
            self.repeats = 0
        self.kept.append(item)
        if item.score < request.min_score or (request.region and not item.within(request.region)):
            return None
        self.objects += 1
        self.ask.found += 1
        self.ask.on_event(Found(self.phrase_index, item))
        return "max_objects" if self.objects >= request.max_objects else None
