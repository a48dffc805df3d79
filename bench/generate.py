"""`transformers.generate` on our default model: what a user has without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, LogitsProcessor, LogitsProcessorList

from bench.workloads import Question
from engine.models.base import Model
from grammars.cursors import Cursors
from grammars.grammar import Grammar
from grammars.symbols import BINS


class FollowGrammar(LogitsProcessor):
    """Our automaton as a logits processor, vectorised over the rows of a batch.

    ids: [A] alphabet.  masks: [S, A], see `Grammar.masks`.  ends: ids that end an answer.
    """

    def __init__(self, grammar: Grammar, rows: int, prompt_tokens: int, ends: Sequence[int]) -> None:
        self._cursors = Cursors(grammar, rows)
        for row in range(rows):
            self._cursors.start(row, "detect")
        self._rows = torch.arange(rows).numpy()
        self._ids = torch.from_numpy(grammar.alphabet).long()
        self._position = torch.full((int(grammar.alphabet.max()) + 1,), -1)
        self._position[self._ids] = torch.arange(len(self._ids))
        self._masks, self._first = torch.from_numpy(grammar.masks()), grammar.first_coordinate
        self._bins, self._taken, self._ends = torch.arange(BINS), prompt_tokens, torch.tensor(ends)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        cursors = self._cursors
        if input_ids.shape[1] > self._taken:
            going = self._rows[~cursors.ended(self._rows)]
            positions = self._position[input_ids[going, -1]].numpy()
            cursors.advance(going, positions, torch.ones(len(going)).numpy())
        allowed = self._masks[torch.from_numpy(cursors.state)]
        low, high = (torch.from_numpy(bound)[:, None] for bound in (cursors.low, cursors.high))
        coordinates = slice(self._first, self._first + BINS)
        allowed[:, coordinates] &= (self._bins >= low) & (self._bins <= high)
        masked = torch.full_like(scores, -torch.inf)
        masked[:, self._ids] = scores[:, self._ids].masked_fill(~allowed, -torch.inf)
        over = torch.from_numpy(cursors.ended(self._rows))
        masked[over.nonzero(), self._ends] = 0.0  # rows that are over only pad
        return masked


class Generator:
    """A checkpoint through the Auto classes, in fp32 on the CPU."""

    def __init__(self, folder: Path, ours: Model, max_tokens: int) -> None:
        self._grammar, self._dialect, self._max_tokens = ours.grammar, ours.grammar.dialect, max_tokens
        self._causal_prompt = ours.info.prefix == "image"
        model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
        self._model = model.eval()
        self._processor: Any = AutoProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
        self._processor.tokenizer.padding_side = "left"
        end = self._model.generation_config.eos_token_id
        self._ends: list[int] = end if isinstance(end, list) else [end]

    @torch.inference_mode()
    def answer(self, batch: Sequence[Question], masked: bool) -> list[list[int]]:
        """The tokens of each answer, its padding included."""
        texts = [f"<image>{self._dialect.prompt('detect', q.phrase).rstrip()}" for q in batch]
        inputs = dict(
            self._processor(images=[q.image for q in batch], text=texts, return_tensors="pt", padding=True)
        )
        if self._causal_prompt:  # as the model was trained, the prompt sees only what is before it
            inputs["token_type_ids"] = (inputs["input_ids"] != self._model.config.image_token_id).long()
        length = inputs["input_ids"].shape[1]
        follow = FollowGrammar(self._grammar, len(batch), length, self._ends)
        output = self._model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=self._max_tokens,
            logits_processor=LogitsProcessorList([follow] if masked else []),
        )
        answers: list[list[int]] = output[:, length:].tolist()
        return answers
