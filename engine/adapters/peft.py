"""Adapter folders as PEFT writes them: adapter_config.json and adapter_model.safetensors.

A key of the weights is `base_model.model.`, the module's path, and `.lora_A.weight` [rank, in] or
`.lora_B.weight` [out, rank].  What the module then adds to its output is B A x times alpha / rank, with
`use_rslora` alpha / sqrt(rank).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from engine.errors import EngineError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
KEY = re.compile(r"(?P<path>.+)\.lora_(?P<side>[AB])\.weight")
KEEPING = (None, True, False, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the model's own weights as they are."""
REFUSED = {
    "use_dora": "DoRA",
    "use_qalora": "QALoRA",
    "use_bdlora": "block-diagonal LoRA",
    "lora_bias": "biases",
    "fan_in_fan_out": "transposed weights",
    "modules_to_save": "modules of its own beside LoRA",
    "layer_replication": "replicated layers",
    "trainable_token_indices": "embeddings of its own",
    "target_parameters": "parameters that are not linear layers",
    "alora_invocation_tokens": "activated LoRA",
    "arrow_config": "routing among adapters",
    "megatron_config": "Megatron layers",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "velora_config": "VeLoRA",
}
"""Fields that must not be set, and what they ask for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What one linear layer gets, on the CPU: a [rank, in] and b [out, rank], the scale in b."""

    a: torch.Tensor
    b: torch.Tensor


def read_adapter(folder: Path) -> dict[str, Pair]:
    """Module path -> its matrices, in float32.

    Raises EngineError, naming the key, for a folder that is no adapter or asks for more than LoRA.
    """
    config = _read_config(folder / CONFIG)
    sides = _read_sides(folder)
    pairs = {}
    for path, pair in sides.items():
        if not _is_target(path, config["target_modules"]):
            raise _error(folder / WEIGHTS, f"has {path}, which target_modules does not name")
        pairs[path] = _pair(folder / WEIGHTS, path, pair, config)
    targets = config["target_modules"]
    for name in targets if isinstance(targets, list) else []:
        if not any(_is_target(path, [name]) for path in pairs):
            raise _error(folder / WEIGHTS, f"has no weights for {name!r} of target_modules")
    return pairs


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _error(path, "is missing: not an adapter folder in the format of PEFT") from None
    except (OSError, ValueError) as error:
        raise _error(path, f"cannot be read: {error}") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise _error(path, "must be an object with peft_type LORA")
    for name, what in REFUSED.items():
        if config.get(name):
            raise _error(path, f"sets {name}: {what}, which is not supported")
    if config.get("bias", "none") != "none":
        raise _error(path, f"sets bias to {config['bias']!r}: only none is supported")
    if config.get("init_lora_weights") not in KEEPING:
        raise _error(
            path,
            f"sets init_lora_weights to {config['init_lora_weights']!r}, which changes the model's own "
            "weights: convert the adapter to plain LoRA",
        )
    _check_numbers(path, config)
    targets = config.get("target_modules")
    if not (isinstance(targets, str) or _all(targets, str)):
        raise _error(path, "must have target_modules, a list of names or a regular expression")
    return config


def _check_numbers(path: Path, config: dict[str, Any]) -> None:
    ranks = {"r": config.get("r"), **_pattern(path, config, "rank_pattern")}
    alphas = {"lora_alpha": config.get("lora_alpha"), **_pattern(path, config, "alpha_pattern")}
    for name, rank in ranks.items():
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
            raise _error(path, f"has rank {rank!r} for {name}: it must be a whole number from 1")
    for name, alpha in alphas.items():
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not math.isfinite(alpha):
            raise _error(path, f"has alpha {alpha!r} for {name}: it must be a number")


def _pattern(path: Path, config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name) or {}
    if not isinstance(found, dict):
        raise _error(path, f"has a {name} that is not an object")
    return found


def _all(value: object, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, kind) for item in value)


def _read_sides(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Module path -> "A" and "B" -> tensor."""
    path = folder / WEIGHTS
    if not path.exists():
        raise _error(path, "is missing")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise _error(path, f"is truncated or no safetensors file: {error}") from None
    sides: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        found = KEY.fullmatch(name.removeprefix(PREFIX))
        if not name.startswith(PREFIX) or found is None:
            raise _error(path, f"has {name}, which is no LoRA matrix of a linear layer")
        sides.setdefault(found["path"], {})[found["side"]] = tensor.float()
    if not sides:
        raise _error(path, "has no weights")
    return sides


def _is_target(path: str, targets: str | list[str]) -> bool:
    if targets == "all-linear":
        return True
    if isinstance(targets, str):
        return re.fullmatch(targets, path) is not None
    return any(path == name or path.endswith(f".{name}") for name in targets)


def _pair(file: Path, path: str, sides: Mapping[str, torch.Tensor], config: dict[str, Any]) -> Pair:
    for side in "AB":
        if side not in sides:
            raise _error(file, f"lacks {PREFIX}{path}.lora_{side}.weight")
    rank = _matching(config.get("rank_pattern"), path, config["r"])
    alpha = _matching(config.get("alpha_pattern"), path, config["lora_alpha"])
    a, b = sides["A"], sides["B"]
    for side, tensor, of_rank in (("A", a, 0), ("B", b, 1)):
        if tensor.ndim != 2 or tensor.shape[of_rank] != rank:
            raise _error(
                file, f"has {PREFIX}{path}.lora_{side}.weight of shape {[*tensor.shape]}, not of rank {rank}"
            )
        if not tensor.isfinite().all():
            raise _error(file, f"has {PREFIX}{path}.lora_{side}.weight with values that are not finite")
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    return Pair(a, b * scale)


def _matching(pattern: dict[str, Any] | None, path: str, default: Any) -> Any:
    """PEFT's rule: the first expression that the end of the path matches."""
    for expression, value in (pattern or {}).items():
        if re.fullmatch(rf"(.*\.)?({expression})", path):
            return value
    return default


def _error(path: Path, fault: str) -> EngineError:
    return EngineError("invalid-request", f"adapter {path} {fault}", "adapter")
