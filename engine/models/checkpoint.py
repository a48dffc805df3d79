"""A model folder as its family loads it, and one line for everything that can be wrong with one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from engine.errors import ModelNotFound

NAMED = 3
"""Keys that an error names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a family's `load` gets.

    name: as callers say it.  config: config.json.  revision: of the weights, for people.
    dtype: of the weights once they are loaded.
    """

    name: str
    folder: Path
    config: dict[str, Any]
    revision: str
    device: torch.device
    dtype: torch.dtype

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor of the folder, on the CPU, as it was saved.  Raises ModelNotFound."""
        found: dict[str, torch.Tensor] = {}
        for path in weight_files(self.folder):
            with safe_open(path, framework="pt") as file:
                found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return found

    def fill(self, module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
        """Give a module, on whatever device, its weights in this checkpoint's dtype, on its device.

        tensors: by the module's own names, all of them and no other.
        Raises ModelNotFound with the keys that are missing, unknown, or of another shape.
        """
        wanted = module.state_dict()
        self.check_keys(
            missing=wanted.keys() - tensors.keys(),
            unknown=tensors.keys() - wanted.keys(),
            shapes={
                name: (tuple(tensors[name].shape), tuple(wanted[name].shape))
                for name in wanted.keys() & tensors.keys()
                if tensors[name].shape != wanted[name].shape
            },
        )
        placed = {name: tensor.to(self.device, self.dtype) for name, tensor in tensors.items()}
        module.load_state_dict(placed, assign=True)
        module.eval().requires_grad_(False)

    def check_keys(
        self,
        missing: Collection[str],
        unknown: Collection[str],
        shapes: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> None:
        """Raises ModelNotFound unless all three are empty.

        shapes: of a key in the file, and in the model.
        """
        wrong = [f"{name} (is {[*there]}, must be {[*here]})" for name, (there, here) in shapes.items()]
        for fault, names in (
            ("lacks weights", missing),
            ("has weights of the wrong shape", wrong),
            ("has weights that its config.json does not know", unknown),
        ):
            if names:
                more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
                raise ModelNotFound(f"{self.folder} {fault}: {', '.join(sorted(names)[:NAMED])}{more}")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json.  Raises ModelNotFound."""
    path = folder / "config.json"
    if not path.exists():
        raise ModelNotFound(f"{folder} has no config.json: not a model folder")
    config = None
    with suppress(ValueError):
        config = json.loads(path.read_bytes())
    if not isinstance(config, dict):
        raise ModelNotFound(f"{path} is not a JSON object")
    return config


def weight_files(folder: Path) -> list[Path]:
    """Its safetensors files, each of which can be opened.  Raises ModelNotFound."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists():
        files = [folder / "model.safetensors"]
    elif index.exists():
        try:
            names = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ModelNotFound(f"{index} has no weight_map") from None
        files = [folder / Path(name).name for name in sorted(names)]
    else:
        raise ModelNotFound(f"{folder} has no weights: neither model.safetensors nor {index.name}")
    for path in files:
        check_safetensors(path)
    return files


def check_safetensors(path: Path) -> None:
    """Raises ModelNotFound unless the file is there and whole; reads its header only."""
    if not path.exists():
        raise ModelNotFound(f"{path} is missing")
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        raise ModelNotFound(f"{path} is truncated or no safetensors file: {error}") from None
