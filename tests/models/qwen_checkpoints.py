"""Small folders in the layout of Qwen2.5-VL and Qwen3-VL with untrained weights, and their tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

NAMES = ["endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad"]
SPECIAL = [f"<|{name}|>" for name in [*NAMES, "video_pad", "object_ref_start"]]
MERGED = ['[{"', '"},{"', '"}]', "[]", '],"', '":[', '":"', "bbox", "_d", "point", "label", "Ġcat", "user"]
"""Pieces of more than one letter; a tokenizer without them writes every byte by itself."""
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCABULARY = 352
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
    "tie_word_embeddings": True,
}
VISION = {"depth": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 64}


def byte_tokenizer(merged: list[str]) -> Tokenizer:
    """Byte level, digits one by one, punctuation in runs; `merged` pieces are single tokens."""
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for piece in merged:
        for end in range(2, len(piece) + 1):
            if piece[:end] not in vocabulary:
                vocabulary[piece[:end]] = len(vocabulary)
                merges.append((piece[: end - 1], piece[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def qwen_checkpoint(
    folder: Path, family: str, seed: int, *, merged: bool = True, kv_heads: int = 2, pixels: int = 20_000
) -> Path:
    """family: `model_type` of its config.  pixels: of a resized image at most."""
    tokenizer = byte_tokenizer(MERGED if merged else [])
    ids = {name: tokenizer.token_to_id(f"<|{name}|>") for name in ("im_end", "vision_start", "vision_end")}
    common = {
        "text_config": TEXT | {"num_key_value_heads": kv_heads, "eos_token_id": ids["im_end"]},
        "image_token_id": tokenizer.token_to_id("<|image_pad|>"),
        "video_token_id": tokenizer.token_to_id("<|video_pad|>"),
        "vision_start_token_id": ids["vision_start"],
        "vision_end_token_id": ids["vision_end"],
        "tie_word_embeddings": True,
    }
    model: Any
    if family == "qwen2_5_vl":
        patch = 14
        vision = VISION | {"patch_size": patch, "window_size": 56, "fullatt_block_indexes": [1]}
        model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**common, vision_config=vision))
    else:
        patch = 16
        vision = VISION | {
            "patch_size": patch,
            "deepstack_visual_indexes": [0, 2],
            "num_position_embeddings": 36,
        }
        common["text_config"] |= {"head_dim": 16}
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**common, vision_config=vision))
    _fill(model, torch.Generator().manual_seed(seed))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": patch,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": 4 * patch * patch * 4, "longest_edge": pixels},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    return folder


@torch.no_grad()
def _fill(model: torch.nn.Module, chance: torch.Generator) -> None:
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            weight.copy_(0.1 * torch.randn(weight.shape, generator=chance) + ("norm" in name))
        else:
            attends = ".layers." in name and ("q_proj" in name or "k_proj" in name)
            scale = 2.5 if attends else 1.5 if "o_proj" in name else 1.0  # what is seen decides what is said
            weight.copy_(torch.randn(weight.shape, generator=chance) * scale * weight[0].numel() ** -0.5)
