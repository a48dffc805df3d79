"""A model's name -> its adapter.

Families are not listed here: every module of this package that has a FAMILY is one.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import torch

import engine.models
from engine.errors import EngineError, ModelNotFound
from engine.models import hub
from engine.models.base import Model
from engine.models.checkpoint import Checkpoint, read_config, weight_files
from engine.models.family import Family

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@cache
def families() -> tuple[Family, ...]:
    """By name."""
    names = (module.name for module in pkgutil.iter_modules(engine.models.__path__, "engine.models."))
    modules = (importlib.import_module(name) for name in names)
    found = [family for module in modules if isinstance(family := getattr(module, "FAMILY", None), Family)]
    return tuple(sorted(found, key=lambda family: family.name))


def family_of(config: dict[str, object]) -> Family | None:
    """The family of a config.json."""
    return next((family for family in families() if config.get("model_type") in family.model_types), None)


def load_model(name: str, device: torch.device, dtype: str = "auto", revision: str | None = None) -> Model:
    """Load a bundled checkpoint by name, a local folder, or a Hugging Face hub id.

    dtype: of the weights; auto is float32 on a CPU and bfloat16 on a GPU.
    revision: of a hub model: a branch, a tag or a commit.

    Raises ModelNotFound, with what to change, when there is no such model, its family is not supported, or
    its files are damaged; EngineError for a dtype that is not one.
    """
    folder = _folder(name, revision)
    config = read_config(folder)
    family = family_of(config)
    if family is None:
        raise ModelNotFound(
            f"{folder}: model type {config.get('model_type')!r} is not supported; supported: "
            + ", ".join(f"{f.name} ({', '.join(f.model_types)})" for f in families())
        )
    short = name if not Path(name).is_dir() else folder.name
    checkpoint = Checkpoint(short, folder, config, _revision(folder), device, _dtype(dtype, device))
    try:
        return family.load(checkpoint)
    except (EngineError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # files from anywhere: half a download, a git-lfs pointer, another layout
        reason = str(error).strip().splitlines() or [""]
        detail = f"{folder} cannot be loaded: {type(error).__name__}: {reason[0]}"
        raise ModelNotFound(detail) from error


def bundled() -> list[str]:
    """Names of the checkpoints in the package."""
    return sorted(p.parent.name for p in CHECKPOINTS.glob("*/config.json"))


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise EngineError(
            "invalid-request", f"unknown dtype {name!r}: use auto, {', '.join(DTYPES)}", "dtype"
        )
    return DTYPES[name]


def _folder(name: str, revision: str | None) -> Path:
    local = CHECKPOINTS / name if name in bundled() else Path(name).resolve()
    if local.is_dir():
        if revision is not None:
            raise ModelNotFound(f"{name} is a local folder: only a model of the hub has revisions")
        return local
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelNotFound(
            f"unknown model {name!r}: use {' or '.join(bundled())}, a local folder, or a Hugging Face id"
        )
    return hub.fetch(name, revision)


def _revision(folder: Path) -> str:
    """Twelve hex digits: of the hub's commit, or of the SHA-256 of the weights."""
    if folder.parent.name == "snapshots":
        return folder.name[:12]
    digest = hashlib.sha256()
    for path in weight_files(folder):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:12]
