"""The same answers by `transformers.generate`: the reference that the engine's tokens are held to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from engine.models.base import Model
from grammars.grammar import Cursor, Grammar
from grammars.types import Frame, Item, Task

CLOSE = 1e-4
"""Two masked logits nearer than this may change places between shapes."""


@dataclass(frozen=True)
class Reference:
    """Tokens after the prompt, how far the best masked logit was from the next, and the objects they say.

    gaps: infinite where only one token was possible.
    sampled: which tokens were not those of a run.
    """

    tokens: list[int]
    gaps: list[float]
    items: list[Item]
    sampled: list[bool]


class Follower(StoppingCriteria):  # type: ignore[misc]
    """Follows one sequence in the grammar, and stops where its answer ends."""

    def __init__(self, grammar: Grammar, cursor: Cursor, label: Sequence[int], prompt_length: int) -> None:
        self._position = {int(token): i for i, token in enumerate(grammar.alphabet)}
        self.cursor, self._label, self._taken = cursor, list(label), prompt_length
        self.run: list[int] = []
        self.items: list[Item] = []
        self.sampled: list[bool] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        for token in input_ids[0, self._taken :].tolist():
            self._take(token)
        self._taken = input_ids.shape[1]
        return torch.tensor([self.cursor.ended])

    def _take(self, token: int) -> None:
        self.sampled.append(not self.run)
        if self.run:
            assert token == self.run.pop(0)
            if not self.run:
                self.cursor.pass_run()
            return
        item = self.cursor.advance(self._position[token], 1.0)
        if item is not None:
            self.items.append(item)
        if self.cursor.run_due:
            self.run = list(self.cursor.run(self._label))


class FollowGrammar(LogitsProcessor):  # type: ignore[misc]
    """Masks everything that state, bounds or a run do not allow."""

    def __init__(self, grammar: Grammar, follower: Follower) -> None:
        self._ids, self._follower = torch.from_numpy(grammar.alphabet).long(), follower
        self.gaps: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        masked = torch.full_like(scores, -torch.inf)
        if self._follower.run:
            masked[0, self._follower.run[0]] = 0
            self.gaps.append(float("inf"))
            return masked
        ids = self._ids[torch.from_numpy(self._follower.cursor.allowed())]
        masked[0, ids] = scores[0, ids]
        best = scores[0, ids].topk(min(2, len(ids))).values
        self.gaps.append(float(best[0] - best[1]) if len(ids) > 1 else float("inf"))
        return masked


class Stock:
    """A checkpoint folder through the Auto classes of transformers, in fp32."""

    def __init__(self, folder: Path, model: Model) -> None:
        self._ours = model  # for its grammar; weights, pixels and prompts are read anew
        self._model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        self._prepare(folder)

    def _prepare(self, folder: Path) -> None:
        self._processor: Any = AutoProcessor.from_pretrained(folder)

    def frame(self, inputs: dict[str, torch.Tensor]) -> Frame | None:
        """Of an image, where the numbers of its answers are spelled out."""
        return None

    def inputs(self, task: Task, image: np.ndarray, phrase: str) -> dict[str, torch.Tensor]:
        """As a user of the stock processor would ask, token types as the model was trained with."""
        verb = self._ours.grammar.dialect.prompt(task, phrase).split()[0]
        with warnings.catch_warnings():  # of transformers, about numpy
            warnings.simplefilter("ignore", DeprecationWarning)
            picture = Image.fromarray(image)  # whose channels are last however small it is
            inputs = dict(
                self._processor(images=picture, text=f"<image>{verb} {phrase}", return_tensors="pt")
            )
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
        cursor = grammar.cursor(task, self.frame(inputs))
        follower = Follower(grammar, cursor, self._ours.label(phrase), length)
        follow = FollowGrammar(grammar, follower)
        output = self._model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=max_tokens,
            logits_processor=LogitsProcessorList([follow]),
            stopping_criteria=StoppingCriteriaList([follower]),
        )
        return Reference(output[0, length:].tolist(), follow.gaps, follower.items, follower.sampled)


class QwenStock(Stock):
    """Qwen2.5-VL and Qwen3-VL: the chat is written as text and read by the whole tokenizer."""

    def _prepare(self, folder: Path) -> None:
        self._images: Any = AutoImageProcessor.from_pretrained(folder)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._newer = self._model.config.model_type == "qwen3_vl"

    def frame(self, inputs: dict[str, torch.Tensor]) -> Frame:
        _, rows, columns = inputs["image_grid_thw"][0].tolist()
        side = self._model.config.vision_config.patch_size
        return (1000, 1000) if self._newer else (columns * side, rows * side)

    def inputs(self, task: Task, image: np.ndarray, phrase: str) -> dict[str, torch.Tensor]:
        inputs = dict(self._images(images=image, return_tensors="pt", input_data_format="channels_last"))
        count = int(inputs["image_grid_thw"].prod()) // 4
        asked = self._ours.grammar.dialect.prompt(task, phrase)
        system = "" if self._newer else "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        text = (
            f"{system}<|im_start|>user\n<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>{asked}"
            f"<|im_end|>\n<|im_start|>assistant\n"
        )
        nothing, something = (self._tokenizer.encode(way).ids for way in ("[]", '[{"bbox_2d":['))
        shared = nothing[: first_difference(nothing, something)]
        ids = torch.tensor([[*self._tokenizer.encode(text).ids, *shared]])
        is_image = ids == self._model.config.image_token_id
        return inputs | {"input_ids": ids, "mm_token_type_ids": is_image.int()}


def first_difference(ours: Sequence[int], reference: Sequence[int]) -> int | None:
    """The first place where two answers part, None if they are the same."""
    for place, (a, b) in enumerate(zip(ours, reference, strict=False)):
        if a != b:
            return place
    return None if len(ours) == len(reference) else min(len(ours), len(reference))
