"""What the registry needs to know of a model family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from engine.models.base import Model
from engine.models.checkpoint import Checkpoint
from grammars.types import Task


@dataclass(frozen=True, slots=True)
class Family:
    """A module of `engine.models` with one of these, called FAMILY, is found by the registry.

    model_types: those that config.json names.
    prefix: what the KV of an image depends on; see `ModelInfo`.
    examples: hub ids.
    load: makes a model; what it raises is told as one line that names the folder.  It may import what takes
        long, the module itself should not.
    """

    name: str
    model_types: tuple[str, ...]
    tasks: tuple[Task, ...]
    prefix: Literal["image", "prompt"]
    examples: tuple[str, ...]
    load: Callable[[Checkpoint], Model]
