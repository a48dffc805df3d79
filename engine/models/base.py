"""What the engine needs of a model family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.attention import Paged
from grammars.grammar import Grammar
from grammars.types import Task


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Who a model is.

    prefix: "image" when the KV of an image serves every phrase, "prompt" when it depends on the phrase.
    notes: what a user should know about its answers, by task.
    """

    name: str
    family: str
    revision: str
    tasks: tuple[Task, ...]
    prefix: Literal["image", "prompt"]
    notes: dict[Task, str]


@dataclass(frozen=True, slots=True)
class KvShape:
    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype


class Model(Protocol):
    """B rows, T tokens, W hidden width, P image tokens, A alphabet size."""

    info: ModelInfo
    grammar: Grammar
    kv: KvShape
    image_tokens: int
    max_context: int

    def preprocess(self, image: npt.NDArray[np.uint8]) -> torch.Tensor:
        """[H, W, 3] upright RGB -> what `encode_images` takes of it; called from several threads."""
        ...

    def prompt(self, task: Task, phrase: str) -> list[int]:
        """Token ids after the image, no special token from the phrase; called from several threads."""
        ...

    def label(self, phrase: str) -> list[int]:
        """Token ids of a label placeholder, empty for dialects without one."""
        ...

    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        """[B, ...] -> [B, P, W]."""
        ...

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [...] -> [..., W]."""
        ...

    def forward(self, embeds: torch.Tensor, paged: Paged) -> torch.Tensor:
        """[B, T, W] -> final hidden states [B, T, W]; writes KV."""
        ...

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, W] -> logits [B, A] over the grammar's alphabet."""
        ...
