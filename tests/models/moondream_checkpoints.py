"""Small Moondream folders with random weights, in both layouts and of both generations."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL = 16
"""Ids below are special; then come the 256 bytes."""
VOCAB = SPECIAL + 256
DETECT, POINT, ANSWER = [1, 7, 8, 2], [1, 9, 2], [3, 10]
PATCH = 14


@dataclass(frozen=True)
class Kind:
    """What varies: sizes, layout, generation.  old: the names of older revisions.

    third: Moondream 3, from `moe_start` on with mixtures.  norm: whether the region head has one.
    """

    dim: int = 64
    layers: int = 3
    heads: int = 4
    kv_heads: int = 4
    grid: int = 9
    margin: int = 2
    most_crops: int = 12
    context: int = 400
    old: bool = False
    third: bool = False
    norm: bool = False
    moe_start: int = 1
    experts: int = 8
    chosen: int = 2
    expert_inner: int = 24
    dtype: torch.dtype = torch.float32
    templates: dict[str, dict[str, list[int]]] = field(
        default_factory=lambda: {
            "detect": {"prefix": DETECT, "suffix": ANSWER},
            "point": {"prefix": POINT, "suffix": ANSWER},
        }
    )

    @property
    def theta(self) -> float:
        return 1.5e6 if self.third else 1e4


def shapes(kind: Kind) -> dict[str, tuple[int, ...]]:
    """Name in the newer layout -> shape, from the published list."""
    dim, enc, ff = kind.dim, 32, 96
    qkv = (kind.heads + 2 * kind.kv_heads) * (dim // kind.heads)
    found: dict[str, tuple[int, ...]] = {"text.wte": (VOCAB, dim)}

    def linear(name: str, wide: int, out: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (out, wide), (out,)

    def norm(name: str, wide: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (wide,), (wide,)

    for i in range(kind.layers):
        at = f"text.blocks.{i}"
        norm(f"{at}.ln", dim)
        linear(f"{at}.attn.qkv", dim, qkv)
        linear(f"{at}.attn.proj", dim, dim)
        if kind.third:
            found |= {f"{at}.attn.tau.{w}": (kind.heads, qkv) for w in ("wq", "wv")}
            found[f"{at}.attn.tau.alpha"] = (kind.heads,)
        if kind.third and i >= kind.moe_start:
            linear(f"{at}.mlp.router", dim, kind.experts)
            found[f"{at}.mlp.fc1.weight"] = (kind.experts, 2 * kind.expert_inner, dim)
            found[f"{at}.mlp.fc2.weight"] = (kind.experts, dim, kind.expert_inner)
        else:
            linear(f"{at}.mlp.fc1", dim, ff)
            linear(f"{at}.mlp.fc2", ff, dim)
    norm("text.post_ln", dim)
    linear("text.lm_head", dim, VOCAB)
    linear("vision.patch_emb", 3 * PATCH**2, enc)
    found["vision.pos_emb"] = (1, kind.grid**2, enc)
    for i in range(2):
        at = f"vision.blocks.{i}"
        norm(f"{at}.ln1", enc)
        norm(f"{at}.ln2", enc)
        linear(f"{at}.attn.qkv", enc, 3 * enc)
        linear(f"{at}.attn.proj", enc, enc)
        linear(f"{at}.mlp.fc1", enc, 48)
        linear(f"{at}.mlp.fc2", 48, enc)
    norm("vision.post_ln", enc)
    linear("vision.proj_mlp.fc1", 2 * enc, 40)
    linear("vision.proj_mlp.fc2", 40, dim)
    for name, features, numbers, out in (("coord", 24, 1, 1024), ("size", 32, 2, 2048)):
        found[f"region.{name}_features"] = (numbers, features // 2)
        linear(f"region.{name}_encoder", features, dim)
        if kind.third:
            linear(f"region.{name}_decoder", dim, out)
        else:
            linear(f"region.{name}_decoder.fc1", dim, 56)
            linear(f"region.{name}_decoder.fc2", 56, out)
    if kind.norm:
        norm("region.ln", dim)
    return found


def random_tensors(kind: Kind, seed: int) -> dict[str, torch.Tensor]:
    """By newer names; the best mark is always that of the end or of a coordinate."""
    chance = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes(kind).items():
        values = torch.randn(shape, generator=chance)
        if "ln" in name.split(".")[-2] and len(shape) == 1:
            values = 0.2 * values + name.endswith("weight")
        elif name.endswith(("_features", "wte", "pos_emb")):
            pass
        elif len(shape) == 1:
            values *= 0.3
        else:
            values *= shape[-1] ** -0.5
            values *= 2.0 if "attn." in name else 1.0  # so that it matters what is attended to
        tensors[name] = values
    tensors["text.lm_head.bias"][[0, 5]] += torch.tensor([30.0, 30.6])
    return {name: tensor.to(kind.dtype) for name, tensor in tensors.items()}


def older(name: str) -> str:
    """The name that older revisions gave to a tensor."""
    if name == "text.wte":
        return "text_model.transformer.embd.wte.weight"
    for part, other in (
        ("text.post_ln", "text_model.lm_head.ln"),
        ("text.lm_head", "text_model.lm_head.linear"),
        ("text.blocks", "text_model.transformer.h"),
        ("attn.proj", "mixer.out_proj" if name.startswith("text") else "attn.proj"),
        ("attn.qkv", "mixer.Wqkv" if name.startswith("text") else "attn.qkv"),
        ("vision.patch_emb", "vision_encoder.encoder.model.visual.patch_embed.linear"),
        ("vision.pos_emb", "vision_encoder.encoder.model.visual.pos_embed"),
        ("vision.post_ln", "vision_encoder.encoder.model.visual.norm"),
        ("vision.blocks", "vision_encoder.encoder.model.visual.blocks"),
        ("ln1", "norm1"),
        ("ln2", "norm2"),
        ("vision.proj_mlp", "vision_encoder.projection.mlp"),
        ("region.coord_features", "region_model.coordinate_features.weight"),
        ("region.size_features", "region_model.size_features.weight"),
        ("region.coord_", "region_model.coordinate_"),
        ("region.size_", "region_model.size_"),
    ):
        name = name.replace(part, other)
    return name


def stored(kind: Kind, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As a checkpoint names them."""
    if not kind.old:
        return {f"model.{name}": tensor for name, tensor in tensors.items()}
    return {
        older(name).replace("transformer.h.", "transformer._orig_mod.h."): (
            tensor.t().contiguous() if name.endswith("_features") else tensor
        )
        for name, tensor in tensors.items()
    }


def config_of(kind: Kind) -> dict:
    text = {
        "dim": kind.dim,
        "ff_dim": 96,
        "n_layers": kind.layers,
        "vocab_size": VOCAB,
        "max_context": kind.context,
        "n_heads": kind.heads,
        "n_kv_heads": kind.kv_heads,
        "prefix_attn": kind.grid**2 + 1,
    }
    if kind.third:
        text["moe"] = {
            "num_experts": kind.experts,
            "start_layer": kind.moe_start,
            "experts_per_token": kind.chosen,
            "expert_inner_dim": kind.expert_inner,
        }
    vision = {
        "enc_dim": 32,
        "enc_patch_size": PATCH,
        "enc_n_layers": 2,
        "enc_ff_dim": 48,
        "enc_n_heads": 2,
        "crop_size": kind.grid * PATCH,
        "max_crops": kind.most_crops,
        "overlap_margin": kind.margin,
        "proj_inner_dim": 40,
        "proj_out_dim": kind.dim,
    }
    region = {"dim": kind.dim, "coord_feat_dim": 24, "size_feat_dim": 32, "inner_dim": 56}
    tokenizer = {"templates": kind.templates}
    return {
        "architectures": ["HfMoondream"],
        "model_type": "moondream3" if kind.third else "moondream1",
        "config": {"text": text, "vision": vision, "region": region, "tokenizer": tokenizer},
    }


def byte_tokenizer() -> Tokenizer:
    """Every byte a token; the names of the special ones are in the vocabulary, as in the real one."""
    vocab = {f"<|special_{i}|>": i for i in range(SPECIAL)}
    vocab |= {letter: SPECIAL + i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def moondream_checkpoint(folder: Path, kind: Kind, seed: int) -> dict[str, torch.Tensor]:
    """Writes a folder; its tensors by newer names, in fp32."""
    tensors = random_tensors(kind, seed)
    save_file(stored(kind, tensors), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(kind)), encoding="utf-8")
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens([f"<|special_{i}|>" for i in range(SPECIAL)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return {name: tensor.float() for name, tensor in tensors.items()}
