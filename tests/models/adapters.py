"""Adapters as PEFT writes them, with random weights, and the same model with these merged into its own."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "adapter_model.safetensors"
TEXT = r"language_model\.model\.layers\.\d+\.(self_attn|mlp)\.\w+"
QUERIES = r"language_model\.model\.layers\.\d+\.self_attn\.(q|v)_proj"
VISION = r"(vision_tower\.encoder\.layers\.\d+\.(self_attn|mlp)\.\w+|multi_modal_projector\.linear)"


def usual(path: str) -> str:
    """What PEFT calls a layer of a checkpoint; what it used to call it is the path itself."""
    return "model." + path.replace("language_model.model.", "language_model.")


def old(path: str) -> str:
    return path.replace("vision_tower.", "vision_tower.vision_model.")


@dataclass(frozen=True)
class Recipe:
    """An adapter. modules: an expression that its layers' paths match, as the checkpoint calls them."""

    modules: str
    rank: int = 4
    alpha: float = 8.0
    seed: int = 0
    strength: float = 0.5
    called: Callable[[str], str] = usual
    config: dict[str, Any] = field(default_factory=dict)
    """More of adapter_config.json."""


def write_adapter(folder: Path, checkpoint: Path, recipe: Recipe) -> Path:
    """An adapter folder for a checkpoint."""
    chance, tensors, names = torch.Generator().manual_seed(recipe.seed), {}, set()
    for path, weight in layers(checkpoint, recipe.modules).items():
        rank, called = rank_of(recipe, path), recipe.called(path)
        a = torch.randn(rank, weight.shape[1], generator=chance) * weight.shape[1] ** -0.5
        b = torch.randn(weight.shape[0], rank, generator=chance) * recipe.strength * rank**-0.5
        tensors[f"base_model.model.{called}.lora_A.weight"] = a
        tensors[f"base_model.model.{called}.lora_B.weight"] = b
        names.add(called.rpartition(".")[2])
    folder.mkdir(parents=True)
    save_file(tensors, folder / WEIGHTS)
    config = {
        "peft_type": "LORA",
        "r": recipe.rank,
        "lora_alpha": recipe.alpha,
        "target_modules": sorted(names),
        "bias": "none",
        "init_lora_weights": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config | recipe.config))
    return folder


def merge(folder: Path, checkpoint: Path, adapter: Path, recipe: Recipe) -> Path:
    """The checkpoint with W + scale B A in place of W."""
    shutil.copytree(checkpoint, folder)
    weights, pairs = load_file(folder / "model.safetensors"), load_file(adapter / WEIGHTS)
    for path in layers(checkpoint, recipe.modules):
        key = f"base_model.model.{recipe.called(path)}.lora_"
        rank = rank_of(recipe, path)
        scale = recipe.alpha / (math.sqrt(rank) if recipe.config.get("use_rslora") else rank)
        weights[f"{path}.weight"] += scale * pairs[f"{key}B.weight"] @ pairs[f"{key}A.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def layers(checkpoint: Path, modules: str) -> dict[str, torch.Tensor]:
    """Weights of the linear layers whose paths match."""
    weights = load_file(checkpoint / "model.safetensors")
    found = {name.removesuffix(".weight"): w for name, w in weights.items() if name.endswith(".weight")}
    return {path: w for path, w in found.items() if re.fullmatch(modules, path) and w.ndim == 2}


def rank_of(recipe: Recipe, path: str) -> int:
    for expression, rank in recipe.config.get("rank_pattern", {}).items():
        if re.search(rf"{expression}$", path):
            return int(rank)
    return recipe.rank
