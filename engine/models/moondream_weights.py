"""Moondream's tensors under either of the names that they were given."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from engine.errors import ModelNotFound
from engine.models.checkpoint import Checkpoint

TOWER = r"vision_encoder\.encoder\.model\.visual\."
OLD_NAMES = (
    (r"text_model\.transformer\.embd\.wte\.weight", "text.wte"),
    (r"text_model\.transformer\.h\.(\d+)\.mixer\.Wqkv", r"text.blocks.\1.attn.qkv"),
    (r"text_model\.transformer\.h\.(\d+)\.mixer\.out_proj", r"text.blocks.\1.attn.proj"),
    (r"text_model\.transformer\.h\.", "text.blocks."),
    (r"text_model\.lm_head\.ln", "text.post_ln"),
    (r"text_model\.lm_head\.linear", "text.lm_head"),
    (TOWER + r"patch_embed\.linear", "vision.patch_emb"),
    (TOWER + r"pos_embed", "vision.pos_emb"),
    (TOWER + r"norm\.", "vision.post_ln."),
    (TOWER + r"blocks\.(\d+)\.norm([12])", r"vision.blocks.\1.ln\2"),
    (TOWER + r"blocks", "vision.blocks"),
    (r"vision_encoder\.projection\.mlp", "vision.proj_mlp"),
    (r"region_model\.coordinate_features\.weight", "region.coord_features"),
    (r"region_model\.size_features\.weight", "region.size_features"),
    (r"region_model\.coordinate_", "region.coord_"),
    (r"region_model\.size_", "region.size_"),
)
"""How names of older revisions begin, and what stands for that now; the first that fits does."""
LM_HEAD = {"text.lm_head.weight", "text.lm_head.bias"}
TRANSPOSED = re.compile(r"region_model\.(coordinate|size)_features\.weight")


def new_name(name: str) -> str:
    """The name that our modules give to a tensor of a checkpoint."""
    for old, new in OLD_NAMES:
        name, found = re.subn(f"^{old}", new, name)
        if found:
            break
    return name


def read_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """By our modules' names, on the CPU.  Raises ModelNotFound."""
    tensors: dict[str, torch.Tensor] = {}
    for stored, tensor in checkpoint.tensors().items():
        name = stored.replace("_orig_mod.", "").removeprefix("model.")
        if (new := new_name(name)) in tensors:
            raise ModelNotFound(f"{checkpoint.folder} has {new} twice, the second time as {stored}")
        tensors[new] = tensor.t() if TRANSPOSED.fullmatch(name) else tensor
    return tensors


def keep_marks(
    checkpoint: Checkpoint, tensors: dict[str, torch.Tensor], vocab: int, marks: Sequence[int]
) -> None:
    """Leave only these rows of the LM head.  Raises ModelNotFound unless it has one for each token."""
    for name in LM_HEAD & tensors.keys():
        shape = tuple(tensors[name].shape)
        if shape[:1] != (vocab,):
            checkpoint.check_keys((), (), {name: (shape, (vocab, *shape[1:]))})
        tensors[name] = tensors[name][list(marks)]
