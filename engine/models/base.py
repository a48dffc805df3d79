"""What the engine needs of a model family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from engine.attention import Paged
from grammars.grammar import Grammar
from grammars.types import Frame, Place, Task


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Who a model is.

    prefix: "image" when the KV of an image serves every phrase, "prompt" when it depends on the phrase.
    notes: what a user should know about its answers, by task.
    adapters: names that a request may choose from.
    """

    name: str
    family: str
    revision: str
    tasks: tuple[Task, ...]
    prefix: Literal["image", "prompt"]
    notes: dict[Task, str]
    adapters: tuple[str, ...] = ()

    def notes_on(self, task: Task) -> tuple[str, ...]:
        return (self.notes[task],) if task in self.notes else ()


@dataclass(frozen=True, slots=True)
class KvShape:
    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Pixels:
    """A preprocessed image, on the host.

    data: what the model's `encode_images` takes of it.
    tokens: P, places of its prefix: image tokens, and the fixed tokens that a family puts around them.
    shift: what a later token's position exceeds its place by, for families whose images span fewer
        positions than places (multimodal rotary positions).
    frame: what the numbers of an answer are fractions of, for families that spell them out.
    grid: rows and columns of its tokens or its crops, for families that need to know.
    """

    data: torch.Tensor
    tokens: int
    shift: int = 0
    frame: Frame | None = None
    grid: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An image as the decoder takes it, on the device.

    embeds: [P, W].
    positions: int64 [axes, P] where they are not the places.
    deep: [layers, P, W] added to the hidden states after the first layers, for families that do so.
    """

    embeds: torch.Tensor
    positions: torch.Tensor | None = None
    deep: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class AdaptedPart:
    """A part of a model whose linear layers a LoRA adapter may change.

    module: holds them, and calls them rather than use their weights.
    paths: what PEFT calls it, such as `model.language_model.layers`, the usual one first.
    of: "image" for what `encode_images` runs; "text" for what `forward` runs, whose layers get [B, T, W], or
        [B * T, W].
    """

    module: nn.Module
    paths: tuple[str, ...]
    of: Literal["image", "text"]


@runtime_checkable
class Adaptable(Protocol):
    """A model that takes adapters; it needs to do nothing but name its parts."""

    adapted_parts: tuple[AdaptedPart, ...]


class Model(Protocol):
    """B rows, T tokens, W hidden width, P prefix tokens, A alphabet size.

    image_tokens: P of a typical image, for sizing memory.
    both_ways: whether the tokens of a prefix see each other both ways.
    """

    info: ModelInfo
    grammar: Grammar
    kv: KvShape
    image_tokens: int
    both_ways: bool
    max_context: int

    def preprocess(self, image: npt.NDArray[np.uint8]) -> Pixels:
        """[H, W, 3] upright RGB -> what `encode_images` takes of it; called from several threads."""
        ...

    def prompt(self, task: Task, phrase: str) -> list[int]:
        """Token ids after the image, no special token from the phrase; called from several threads."""
        ...

    def label(self, phrase: str) -> list[int]:
        """Token ids of a label placeholder, empty for dialects without one."""
        ...

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        """The vision tower, on the compute stream."""
        ...

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [...] -> [..., W]."""
        ...

    def forward(
        self, embeds: torch.Tensor, paged: Paged, images: Sequence[Encoded] | None = None
    ) -> torch.Tensor:
        """[B, T, W] -> final hidden states [B, T, W]; writes KV.

        images: one of every row, where the first P of its T tokens are an image's prefix.
        """
        ...

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, W] -> logits [B, A] over the grammar's alphabet; see `Grammar.logits`."""
        ...


@runtime_checkable
class Referring(Protocol):
    """A model whose prompts may refer to places in the image."""

    def prompt_about(self, task: Task, phrase: str, places: Sequence[Place]) -> list[int]:
        """`Model.prompt`, with points and boxes before the phrase."""
        ...
