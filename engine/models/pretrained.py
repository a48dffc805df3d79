"""Loading a model of transformers, its text part on our attention."""

from __future__ import annotations

from typing import Any

from engine import attention
from engine.models.checkpoint import Checkpoint


def load_pretrained(kind: Any, checkpoint: Checkpoint) -> Any:
    """The model of a checkpoint in evaluation mode, `kind` one of transformers' classes.

    Raises ModelNotFound, naming the weights, where some are missing, unknown or of another shape.
    """
    from transformers.utils import logging

    attention.install()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        model, loading = kind.from_pretrained(
            checkpoint.folder,
            dtype=checkpoint.dtype,
            attn_implementation={"text_config": attention.NAME, "vision_config": "sdpa"},
            ignore_mismatched_sizes=True,  # refused below, by name
            output_loading_info=True,
            local_files_only=True,
        )
    finally:
        logging.set_verbosity(verbosity)
    checkpoint.check_keys(
        missing=loading["missing_keys"],
        unknown=loading["unexpected_keys"],
        shapes={name: (tuple(there), tuple(here)) for name, there, here in loading["mismatched_keys"]},
    )
    return model.to(checkpoint.device).eval().requires_grad_(False)
