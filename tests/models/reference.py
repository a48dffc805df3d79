"""The same answers by `transformers.generate`: the reference that the engine's tokens are held to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, LogitsProcessor, LogitsProcessorList

from engine.models.base import Model
from grammars.grammar import Cursor, Grammar
from grammars.types import Item, Task

CLOSE = 1e-4
"""Two masked logits nearer than this may change places between shapes."""


@dataclass(frozen=True)
class Reference:
    """Tokens after the prompt, how far the best masked logit was from the next, and the objects they say.

    gaps: infinite where only one token was possible.
    """

    tokens: list[int]
    gaps: list[float]
    items: list[Item]


class FollowGrammar(LogitsProcessor):  # type: ignore[misc]
    """Masks everything that state, bounds or a label do not allow; one sequence."""

    def __init__(self, grammar: Grammar, cursor: Cursor, label: Sequence[int], prompt_length: int) -> None:
        self._ids = torch.from_numpy(grammar.alphabet).long()
        self._position = {int(token): i for i, token in enumerate(grammar.alphabet)}
        self._masks, self._first = grammar.masks(), grammar.first_coordinate
        self._cursor, self._label, self._taken = cursor, list(label), prompt_length
        self._pending: list[int] = []
        self.gaps: list[float] = []
        self.items: list[Item] = []

    def take(self, token: int) -> None:
        if self._pending:
            assert token == self._pending.pop(0)
            if not self._pending:
                self._cursor.pass_run()
            return
        item = self._cursor.advance(self._position[token], 1.0)
        if item is not None:
            self.items.append(item)
        if self._cursor.run_due:
            self._pending = list(self._label)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for token in input_ids[0, self._taken :].tolist():
            self.take(token)
        self._taken = input_ids.shape[1]
        masked = torch.full_like(scores, -torch.inf)
        if self._pending:
            masked[0, self._pending[0]] = 0
            self.gaps.append(float("inf"))
            return masked
        allowed = self._masks[self._cursor.state].copy()
        low, high = self._cursor.bounds()
        allowed[self._first : self._first + low] = False
        allowed[self._first + high + 1 : self._first + 1024] = False
        ids = self._ids[torch.from_numpy(allowed)]
        masked[0, ids] = scores[0, ids]
        best = scores[0, ids].topk(min(2, len(ids))).values
        self.gaps.append(float(best[0] - best[1]) if len(ids) > 1 else float("inf"))
        return masked


class Stock:
    """A checkpoint folder through the Auto classes of transformers, in fp32."""

    def __init__(self, folder: Path, model: Model) -> None:
        self._ours = model  # for its grammar; weights, pixels and prompts are read anew
        self._model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self._processor: Any = AutoProcessor.from_pretrained(folder)

    def inputs(self, task: Task, image: np.ndarray, phrase: str) -> dict[str, torch.Tensor]:
        """As a user of the stock processor would ask, token types as the model was trained with."""
        verb = self._ours.grammar.dialect.prompt(task, phrase).split()[0]
        with warnings.catch_warnings():  # of transformers, about numpy
            warnings.simplefilter("ignore", DeprecationWarning)
            inputs = dict(self._processor(images=image, text=f"<image>{verb} {phrase}", return_tensors="pt"))
        causal_prompt = self._ours.info.prefix == "image"
        is_image = inputs["input_ids"] == self._model.config.image_token_id
        inputs["token_type_ids"] = (
            (~is_image).long() if causal_prompt else torch.zeros_like(inputs["input_ids"])
        )
        return inputs

    @torch.inference_mode()
    def answer(self, task: Task, image: np.ndarray, phrase: str, max_tokens: int) -> Reference:
        grammar = self._ours.grammar
        inputs = self.inputs(task, image, phrase)
        length = inputs["input_ids"].shape[1]
        follow = FollowGrammar(grammar, grammar.cursor(task), self._ours.label(phrase), length)
        output = self._model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=max_tokens,
            logits_processor=LogitsProcessorList([follow]),
        )
        tokens = output[0, length:].tolist()
        follow.take(tokens[-1])
        return Reference(tokens, follow.gaps, follow.items)


def first_difference(ours: Sequence[int], reference: Sequence[int]) -> int | None:
    """The first place where two answers part, None if they are the same."""
    for place, (a, b) in enumerate(zip(ours, reference, strict=False)):
        if a != b:
            return place
    return None if len(ours) == len(reference) else min(len(ours), len(reference))
