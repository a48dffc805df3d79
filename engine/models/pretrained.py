"""Loading a model of transformers, its text part on our attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from engine import attention
from engine.errors import ModelNotFound

NAMED = 3
"""Weights that an error names at most."""


def load_pretrained(kind: Any, folder: Path, device: torch.device) -> Any:
    """The model of a folder in evaluation mode, `kind` one of transformers' classes.

    Raises ModelNotFound, naming the weights, where some are missing, unknown or of another shape.
    """
    attention.install()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        model, loading = kind.from_pretrained(
            folder,
            dtype=torch.float32 if device.type == "cpu" else torch.bfloat16,
            attn_implementation={"text_config": attention.NAME, "vision_config": "sdpa"},
            ignore_mismatched_sizes=True,  # reported below, with the weights' names
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelNotFound(f"{folder} cannot be loaded: {str(error).splitlines()[0]}") from error
    finally:
        transformers_logging.set_verbosity(verbosity)
    shapes = [
        f"{name} (is {[*found]}, must be {[*wanted]})" for name, found, wanted in loading["mismatched_keys"]
    ]
    for fault, names in (
        ("lacks weights", loading["missing_keys"]),
        ("has weights of the wrong shape", shapes),
        ("has weights that its config.json does not know", loading["unexpected_keys"]),
    ):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            raise ModelNotFound(f"{folder} {fault}: {', '.join(sorted(names)[:NAMED])}{more}")
    return model.to(device).eval().requires_grad_(False)
