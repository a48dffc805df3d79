"""A model without weights whose answers have the lengths that its prompts ask for.

A prompt is two tokens: how many objects to answer, and a seed for where they are.  The forward keeps both in
the KV pages as a real model would, so that a page given away too early shows in the answers.

`ScriptedExecutor` says the same tokens without computing anything, for measurements: work that emulates a
device must not push the engine's own code out of the processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.attention import KvCache, Paged
from engine.device.base import Device
from engine.executor import Executor
from engine.forwards import Forwards, Work
from engine.models.base import Encoded, KvShape, ModelInfo, Pixels
from engine.slots import DecodeSlot
from engine.steps import Prefill
from grammars.dialects.pointbox import PointboxDialect
from grammars.grammar import Grammar
from grammars.symbols import BINS, Tokens
from grammars.types import Task

VOCABULARY = 51_200
COORDINATES = range(VOCABULARY - BINS, VOCABULARY)
END, START = 0, 1
PIECES = range(2, COORDINATES.start)
IMAGE_TOKENS = 16
PROMPT_TOKENS = 2
TOKENS_PER_OBJECT = 5
LARGEST_CORNER, SMALLEST_SIDE, SIDES = 880, 16, 112
CERTAIN = 10.0


class EmulatedModel:
    """See the module's docstring and `engine.models.base.Model`; detects only.

    Hidden states are [B, T, 3]: objects asked for, seed, and the number of the answer's next token.
    """

    both_ways = True

    def __init__(self) -> None:
        pieces = {f"piece{token}": token for token in PIECES}
        self.grammar = Grammar(PointboxDialect(), Tokens(COORDINATES, (END,), START, pieces))
        self.info = ModelInfo("emulated", "emulated", "0", ("detect",), "image", {})
        self.kv = KvShape(1, 1, 1, torch.float32)
        self.image_tokens = IMAGE_TOKENS
        self.max_context = 1024
        position = {int(token): i for i, token in enumerate(self.grammar.alphabet)}
        self._end, self._start = position[END], position[START]

    def preprocess(self, image: npt.NDArray[np.uint8]) -> Pixels:
        return Pixels(torch.zeros(1), IMAGE_TOKENS)

    def prompt(self, task: Task, phrase: str) -> list[int]:
        """Of a phrase as `phrase` below writes it."""
        objects, seed = phrase.split()
        return [int(objects), int(seed)]

    def label(self, phrase: str) -> list[int]:
        return []

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        return [Encoded(torch.zeros(IMAGE_TOKENS, 3)) for _ in pixels]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens[..., None].float()

    def forward(
        self, embeds: torch.Tensor, paged: Paged, images: Sequence[Encoded] | None = None
    ) -> torch.Tensor:
        if images is not None:
            return embeds  # an image alone: nothing of it is needed
        memory = paged.cache.values[0].view(-1)
        if embeds.shape[1] > 1:
            memory[paged.write] = embeds[..., 0].reshape(-1)
        size = paged.cache.page_size
        page, offset = divmod(IMAGE_TOKENS, size)
        place = paged.table[:, page, None] * size + offset
        objects, seed = memory[place], memory[place + 1]
        number = paged.index - (IMAGE_TOKENS + PROMPT_TOKENS - 1)
        shape = number.shape
        return torch.stack([objects.expand(shape), seed.expand(shape), number.float()], dim=-1)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        objects, seed, number = hidden.long().unbind(dim=-1)
        one, slot = number // TOKENS_PER_OBJECT, number % TOKENS_PER_OBJECT
        axis = (slot - 1) % 2
        chance = (seed * 7919 + one * 104_729 + axis * 1_299_709) % 1_000_003
        upper = torch.where(slot > 2, SMALLEST_SIDE + chance // LARGEST_CORNER % SIDES, 0)
        coordinate = self.grammar.first_coordinate + chance % LARGEST_CORNER + upper
        mark = torch.where(one < objects, self._start, self._end)
        wanted = torch.where(slot == 0, mark, coordinate)
        logits = torch.zeros(len(hidden), len(self.grammar.alphabet))
        return logits.scatter_(1, wanted[:, None], CERTAIN)

    def script(self, objects: int, seed: int) -> npt.NDArray[np.int64]:
        """Alphabet positions of a whole answer, its end included."""
        numbers = torch.arange(TOKENS_PER_OBJECT * objects + 1)
        asked = torch.tensor([[objects, seed]]).expand(len(numbers), 2)
        hidden = torch.cat([asked, numbers[:, None]], dim=1)
        return self.head(hidden).argmax(dim=1).numpy()


class ScriptedForwards(Forwards):
    """Computes nothing.

    scripts: alphabet positions of the answers to come, by prompt.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        rows = len(self._token_by_row)
        self.scripts: dict[tuple[int, ...], npt.NDArray[np.int64]] = {}
        self.script = np.zeros((rows, self._model.max_context), np.int64)
        self.number = np.zeros(rows, np.int64)
        """Of the next token of each row."""

    def decode(self, slot: DecodeSlot, batch: int, width: int) -> Work:
        return _nothing

    def prefill(self, slot: DecodeSlot, step: Prefill, width: int) -> Work:
        super().prefill(slot, step, width)  # for what it costs the host

        def work() -> None:
            for sequence in step.sequences:
                script = self.scripts.pop(tuple(sequence.prompt))
                self.script[sequence.row] = script[-1]  # past its end an answer repeats the end
                self.script[sequence.row, : len(script)] = script
                self.number[sequence.row] = 0

        return work


class ScriptedExecutor(Executor):
    """Everything that the host does for a step; its samples come from scripts."""

    def __init__(self, model: EmulatedModel, device: Device, cache: KvCache, max_batch: int) -> None:
        super().__init__(model, device, cache, max_batch, "host")
        forwards = self._forwards
        self._forwards = self.scripted = ScriptedForwards(
            model, device, cache, forwards.tables, self._token_by_row
        )
        self._sampled = {id(slot): slot.sampled.numpy() for slot in self._slots}

    def _sample(self, slot: DecodeSlot, batch: int, warm: bool) -> Work:
        rows, sampled = slot.choice.host["row"][:batch], self._sampled[id(slot)]
        scripted = self.scripted

        def work() -> None:
            number = scripted.number[rows]
            sampled[0, :batch] = scripted.script[rows, number]
            sampled[1, :batch] = 1.0
            scripted.number[rows] = number + 1

        return work


def _nothing() -> None:
    pass


def phrase(objects: int, seed: int) -> str:
    return f"{objects} {seed}"
