"""Moondream 2 and 3, natively: no code of a checkpoint runs, and transformers is not needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from engine.attention import Paged
from engine.device.cuda import upload
from engine.models.base import AdaptedPart, Encoded, KvShape, ModelInfo, Pixels
from engine.models.checkpoint import Checkpoint
from engine.models.family import Family
from engine.models.moondream_config import Section, read_shape, read_vision
from engine.models.moondream_crops import CropShape, crops
from engine.models.moondream_network import Network
from engine.models.moondream_prompts import Prompting, read_prompting, read_tokenizer
from engine.models.moondream_region import EXACT, EXACT_SIZE, MILLION
from engine.models.moondream_text import Shape
from engine.models.moondream_weights import keep_marks, read_tensors
from grammars.dialects.moondream import MoondreamDialect
from grammars.grammar import Grammar
from grammars.symbols import BINS, Tokens
from grammars.types import Place, Task


class Moondream:
    """See `engine.models.base.Model`.

    The prefix is the first token and the image: it does not see the prompt, so it serves every phrase.
    """

    both_ways = True

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._device = checkpoint.device
        self._text = read_tokenizer(checkpoint)
        tensors = read_tensors(checkpoint)
        vocab = Section(checkpoint, "text").number("vocab_size", Shape().vocab)
        self._prompting = read_prompting(checkpoint, self._text, vocab)
        marks = _marks(self._prompting, vocab)
        keep_marks(checkpoint, tensors, vocab, marks)
        shape, vision = read_shape(checkpoint, tensors, len(marks)), read_vision(checkpoint)
        with torch.device("meta"):
            self.network = Network(shape, vision)
        checkpoint.fill(self.network, tensors)
        bins = range(vocab, vocab + BINS)
        self.grammar = Grammar(MoondreamDialect(), Tokens(bins, (self._prompting.eos,), size=bins.stop))
        self.info = ModelInfo(
            checkpoint.name,
            FAMILY.name,
            checkpoint.revision,
            tuple(task for task in FAMILY.tasks if task in self._prompting.templates),
            FAMILY.prefix,
            {},
        )
        self.kv = KvShape(shape.layers, shape.kv_heads, shape.head_dim, checkpoint.dtype)
        self.image_tokens, self.max_context = 1 + vision.grid**2, shape.max_context
        self._crops = CropShape(vision.side, vision.margin * vision.patch, vision.most_crops)
        bos = torch.tensor([self._prompting.bos], device=checkpoint.device)
        self._bos = self.network.embed(bos)
        self.adapted_parts = (
            AdaptedPart(self.network.text.blocks, ("model.text.blocks", "text.blocks"), "text"),
            AdaptedPart(self.network.vision, ("model.vision", "vision"), "image"),
        )

    def preprocess(self, image: npt.NDArray[np.uint8]) -> Pixels:
        """[H, W, 3] -> uint8 [crops, S, S, 3], the whole picture first."""
        parts, grid = crops(image, self._crops)
        return Pixels(torch.from_numpy(parts), self.image_tokens, grid=grid)

    def prompt(self, task: Task, phrase: str) -> list[int]:
        return self.prompt_about(task, phrase, ())

    def prompt_about(self, task: Task, phrase: str, places: Sequence[Place]) -> list[int]:
        """See `engine.models.base.Referring`."""
        before, after = self._prompting.templates[task]
        text = self._text.encode(self.grammar.dialect.prompt(task, phrase))
        return [*before, *(n for place in places for n in self._numbers(place)), *text, *after]

    def label(self, phrase: str) -> list[int]:
        return []

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        """One after the other: what an image is does not depend on those beside it."""
        images = []
        for image in pixels:
            seen = self.network.vision(upload(image.data, self._device), *image.grid)
            images.append(Encoded(torch.cat([self._bos, seen])))
        return images

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.network.embed(tokens)

    def forward(
        self, embeds: torch.Tensor, paged: Paged, images: Sequence[Encoded] | None = None
    ) -> torch.Tensor:
        hidden: torch.Tensor = self.network(embeds, paged)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.network.head(hidden)

    def _numbers(self, place: Place) -> list[int]:
        """Ids of a point's coordinates, or of a box's centre and size."""
        exact = self.network.shape.vocab + EXACT
        if len(place) == 2:
            return [exact + _millionths(value) for value in place]
        x_min, y_min, x_max, y_max = place
        centre = (x_min + x_max) / 2, (y_min + y_max) / 2
        size = _millionths(x_max - x_min) * MILLION + _millionths(y_max - y_min)
        return [*(exact + _millionths(v) for v in centre), self.network.shape.vocab + EXACT_SIZE + size]


def _marks(prompting: Prompting, vocab: int) -> list[int]:
    """Rows of the LM head that a decision needs: the end, then what goes on."""
    end = prompting.eos
    if prompting.coordinate is not None:
        return [end, prompting.coordinate]
    return [end, *(token for token in range(vocab) if token != end)]


def _millionths(value: float) -> int:
    return round(value * (MILLION - 1))


FAMILY = Family(
    name="moondream",
    model_types=("moondream1", "moondream3"),
    tasks=("detect", "point"),
    prefix="image",
    examples=("vikhyatk/moondream2", "moondream/moondream3-preview"),
    load=Moondream,
)
