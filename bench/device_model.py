"""A randomly initialised Moondream-shaped model that the engine can serve: for timing, not for answers.

It needs neither transformers nor outlines_core nor a checkpoint.  It points: x, y, x, y, ... and never ends
by itself, so a sequence is as long as `max_tokens` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import numpy.typing as npt
import torch

from engine.attention import Paged
from engine.device.cuda import upload
from engine.models.base import Encoded, KvShape, ModelInfo, Pixels
from engine.models.moondream_network import random_network
from engine.models.moondream_text import Shape
from grammars.automaton import repeating_automaton
from grammars.grammar import Grammar
from grammars.symbols import BINS
from grammars.symbols import COORDINATE as BIN
from grammars.symbols import END as ENDING
from grammars.types import TASKS, Item, Point, Task

PATCH = 32
"""Numbers of the picture that stand for one image token."""
ARITY = 2
END = 0
TOY = Shape(
    dim=128,
    ff_dim=512,
    layers=4,
    vocab=512,
    max_context=256,
    heads=4,
    kv_heads=4,
    coordinate_features=32,
    size_features=32,
    region_inner=128,
)


class PointsDialect:
    """x and y of one point after the other; see `grammars.dialects.base.Dialect`."""

    name = "moondream-points"

    def expression(self, task: Task) -> str:
        return f"({BIN}{{{ARITY}}})*{ENDING}"

    def arity(self, task: Task) -> int:
        return ARITY

    def lower_slot(self, task: Task, slot: int) -> int | None:
        return None

    def prompt(self, task: Task, phrase: str) -> str:
        return f" {phrase}"

    def label(self, phrase: str) -> str | None:
        return None

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        x, y = (b / BINS for b in bins)
        return Point(x, y, min(1.0, max(0.0, fmean(probabilities[1:]))))


class RandomMoondream:
    """See `engine.models.base.Model`."""

    both_ways = True

    def __init__(self, shape: Shape, image_tokens: int, device: torch.device, dtype: torch.dtype) -> None:
        self.decoder = random_network(shape, device, dtype, seed=0)
        self.decoder.text.lm_head.bias[END] = -1e4
        self.info = ModelInfo("random", "moondream", "random", TASKS, "image", {})
        automaton = repeating_automaton(END, range(shape.vocab, shape.vocab + BINS), ARITY)
        self.grammar = Grammar.of(PointsDialect(), dict.fromkeys(TASKS, automaton))
        self.kv = KvShape(shape.layers, shape.kv_heads, shape.head_dim, dtype)
        self.image_tokens, self.max_context = image_tokens, shape.max_context
        chance = torch.Generator(device).manual_seed(1)
        self._patches = torch.empty(PATCH, shape.dim, device=device, dtype=dtype).normal_(generator=chance)

    @property
    def bytes_per_step(self) -> int:
        """Of weights that a decode step reads at least once."""
        text, region = self.decoder.text, self.decoder.region
        read = [text.blocks, text.post_ln, region.coord_encoder, region.coord_decoder]
        return sum(p.numel() * p.element_size() for module in read for p in module.parameters())

    def preprocess(self, image: npt.NDArray[np.uint8]) -> Pixels:
        pixels = np.resize(image.reshape(-1), (self.image_tokens, PATCH))
        return Pixels(torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1), self.image_tokens)

    def prompt(self, task: Task, phrase: str) -> list[int]:
        text = [
            byte % self.decoder.shape.vocab for byte in self.grammar.dialect.prompt(task, phrase).encode()
        ]
        return [1, *text, 5]

    def label(self, phrase: str) -> list[int]:
        return []

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        where = self._patches.device
        stacked = upload(torch.stack([p.data for p in pixels]), where).to(self._patches.dtype)
        return [Encoded(embeds) for embeds in stacked @ self._patches]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.decoder.embed(tokens)

    def forward(
        self, embeds: torch.Tensor, paged: Paged, images: Sequence[Encoded] | None = None
    ) -> torch.Tensor:
        hidden: torch.Tensor = self.decoder(embeds, paged)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """The best bin stands where going on stands, so the end is the best of all if it beats that."""
        decision = self.decoder.text.decision(hidden)
        end, going_on = decision[:, :1], decision[:, 1:]
        bins = self.decoder.region.coord_decoder(hidden)
        return torch.cat([end, going_on + bins - bins.amax(dim=-1, keepdim=True)], dim=-1)
