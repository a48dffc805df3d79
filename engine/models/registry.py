"""A model's name -> its adapter."""

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

import torch

from engine.errors import ModelNotFound
from engine.models.base import Model

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
FAMILIES = {
    "paligemma": ("engine.models.paligemma", "PaliGemma"),
    "qwen2_5_vl": ("engine.models.qwen", "Qwen"),
    "qwen3_vl": ("engine.models.qwen", "Qwen"),
}
"""model_type -> module and class, imported when a model of the family is loaded: some need transformers."""


def load_model(name: str, device: torch.device) -> Model:
    """Load a bundled checkpoint by name, a local folder, or a Hugging Face hub id.

    Raises ModelNotFound, with what to change, when there is no such model, its family is not supported, or
    its files are damaged.
    """
    folder = _folder(name)
    if not (folder / "config.json").exists():
        raise ModelNotFound(f"{folder} has no config.json: not a model folder")
    short = name if not Path(name).is_dir() else folder.name
    try:
        return _load(short, folder, device)
    except (ModelNotFound, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # files from anywhere: half a download, a git-lfs pointer, another layout
        reason = str(error).strip().splitlines() or [""]
        detail = f"{folder} cannot be loaded: {type(error).__name__}: {reason[0]}"
        raise ModelNotFound(detail) from error


def _load(short: str, folder: Path, device: torch.device) -> Model:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelNotFound(f"model family {family!r} is not supported; supported: {', '.join(FAMILIES)}")
    module, name_of_class = FAMILIES[family]
    adapter: Any = getattr(importlib.import_module(module), name_of_class)
    model: Model = adapter(short, folder, _revision(folder), device)
    return model


def bundled() -> list[str]:
    """Names of the checkpoints in the package."""
    return sorted(p.parent.name for p in CHECKPOINTS.glob("*/config.json"))


def _folder(name: str) -> Path:
    if (CHECKPOINTS / name / "config.json").exists():
        return CHECKPOINTS / name
    if Path(name).is_dir():
        return Path(name).resolve()
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelNotFound(
            f"unknown model {name!r}: use {' or '.join(bundled())}, a local folder, or a Hugging Face id"
        )
    return _fetch(name)


def _fetch(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.model"]))
    except Exception as error:  # the hub client raises many kinds, all mean the same here
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelNotFound(
            f"model {name!r} is not a local folder and cannot be fetched: {reason}"
        ) from error


def _revision(folder: Path) -> str:
    """Twelve hex digits of the SHA-256 of the weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:12]
