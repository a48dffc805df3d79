"""The sizes that a Moondream folder's config.json says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from engine.errors import ModelNotFound
from engine.models.checkpoint import Checkpoint
from engine.models.moondream_text import Experts, Shape
from engine.models.moondream_vision import VisionShape
from grammars.symbols import BINS

THIRD_CONTEXT, THIRD_THETA = 32768, 1.5e6


class Section:
    """One of the parts of `config` in config.json; what it leaves out has the usual value."""

    def __init__(self, checkpoint: Checkpoint, *path: str) -> None:
        """path: names of an object, of one inside it, and so on.  Raises ModelNotFound for another kind."""
        self.where = f"{checkpoint.folder}/config.json"
        self._said: dict[str, Any] = checkpoint.config
        for part in ("config", *path):
            self._said = {} if (said := self._said.get(part)) is None else said
            if not isinstance(self._said, dict):
                raise ModelNotFound(f"{self.where}: {part} must be an object")

    def get(self, key: str) -> Any:
        """None where it says nothing."""
        return self._said.get(key)

    def has(self, key: str) -> bool:
        return key in self._said

    def number(self, key: str, usual: int, least: int = 1) -> int:
        """Raises ModelNotFound unless it is a whole number, at least `least`."""
        value = self._said.get(key, usual)
        if type(value) is not int or value < least:
            raise ModelNotFound(f"{self.where}: {key} must be a whole number from {least} on, not {value!r}")
        return value


def read_shape(checkpoint: Checkpoint, names: Iterable[str], marks: int) -> Shape:
    """Of decoder and region head: sizes from config.json, parts that not all have from the names of tensors.

    marks: rows kept of the LM head.
    Raises ModelNotFound for sizes that contradict each other.
    """
    text, region = Section(checkpoint, "text"), Section(checkpoint, "region")
    usual, names = Shape(), {*names}
    third = checkpoint.config.get("model_type") == "moondream3"
    single = "region.coord_decoder.weight" in names
    shape = Shape(
        dim=text.number("dim", usual.dim),
        ff_dim=text.number("ff_dim", usual.ff_dim),
        layers=text.number("n_layers", usual.layers),
        vocab=text.number("vocab_size", usual.vocab),
        max_context=text.number("max_context", THIRD_CONTEXT if third else usual.max_context),
        heads=text.number("n_heads", usual.heads),
        kv_heads=text.number("n_kv_heads", usual.kv_heads),
        theta=THIRD_THETA if third else usual.theta,
        marks=marks,
        tau=any(".attn.tau." in name for name in names),
        experts=_experts(Section(checkpoint, "text", "moe"), names),
        coordinate_features=region.number("coord_feat_dim", usual.coordinate_features),
        size_features=region.number("size_feat_dim", usual.size_features),
        region_inner=None if single else region.number("inner_dim", usual.region_inner or 0),
        region_norm="region.ln.weight" in names,
    )
    bins = region.number("coord_out_dim", BINS), region.number("size_out_dim", 2 * BINS)
    for wrong, why in (
        (shape.dim % shape.heads, f"n_heads {shape.heads} does not divide dim {shape.dim}"),
        (shape.heads % shape.kv_heads, f"n_kv_heads {shape.kv_heads} does not divide n_heads {shape.heads}"),
        (shape.head_dim % 4, f"heads have {shape.head_dim} dimensions, which is no multiple of 4"),
        (shape.tau and shape.heads != shape.kv_heads, "with tau, n_kv_heads must be n_heads"),
        (bins != (BINS, 2 * BINS), f"coord_out_dim must be {BINS} and size_out_dim {2 * BINS}"),
    ):
        if wrong:
            raise ModelNotFound(f"{text.where}: {why}")
    return shape


def _experts(moe: Section, names: Iterable[str]) -> Experts | None:
    routers = (re.fullmatch(r"text\.blocks\.(\d+)\.mlp\.router\.weight", name) for name in names)
    layers = frozenset(int(match[1]) for match in routers if match)
    if not layers:
        return None
    usual = Experts(layers)
    experts = Experts(
        layers,
        count=moe.number("num_experts", usual.count),
        chosen=moe.number("experts_per_token", usual.chosen),
        inner=moe.number("expert_inner_dim", usual.inner),
    )
    if experts.chosen > experts.count:
        raise ModelNotFound(f"{moe.where}: experts_per_token {experts.chosen} of {experts.count} experts")
    return experts


def read_vision(checkpoint: Checkpoint) -> VisionShape:
    """Sizes of the tower.  Raises ModelNotFound for sizes that contradict each other."""
    said, usual = Section(checkpoint, "vision"), VisionShape()
    shape = VisionShape(
        dim=said.number("enc_dim", usual.dim),
        patch=said.number("enc_patch_size", usual.patch),
        layers=said.number("enc_n_layers", usual.layers),
        ff_dim=said.number("enc_ff_dim", usual.ff_dim),
        heads=said.number("enc_n_heads", usual.heads),
        side=said.number("crop_size", usual.side),
        most_crops=said.number("max_crops", usual.most_crops),
        margin=said.number("overlap_margin", usual.margin, least=0),
        inner=said.number("proj_inner_dim", usual.inner),
    )
    if shape.dim % shape.heads:
        raise ModelNotFound(f"{said.where}: enc_n_heads {shape.heads} does not divide enc_dim {shape.dim}")
    if shape.side % shape.patch or shape.grid <= 2 * shape.margin:
        raise ModelNotFound(
            f"{said.where}: crops of {shape.side} pixels do not hold patches of {shape.patch} pixels between "
            f"margins of {shape.margin} patches"
        )
    tokens = 1 + shape.grid**2
    if (prefix := Section(checkpoint, "text").number("prefix_attn", tokens)) != tokens:
        raise ModelNotFound(f"{said.where}: prefix_attn is {prefix}, but an image takes {tokens} tokens")
    return shape
