"""Small checkpoint folders with untrained weights: whatever they say must still be grammatical."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration

from engine.models.registry import CHECKPOINTS

TINY = CHECKPOINTS / "tiny"
EOS_ID, START_ID = 1, 446
FILES = ("tokenizer.json", "tokenizer_config.json", "processor_config.json", "generation_config.json")


def random_checkpoint(
    folder: Path,
    seed: int,
    *,
    mixing: float = 1.0,
    endless: bool = False,
    context: int = 1024,
    grid: int = 8,
) -> Path:
    """The default architecture with random weights; lists of all lengths.

    mixing: how much attention and MLPs add to the residual stream; with 0 the next token depends on the
        last one alone, so that an answer repeats one object.
    endless: the end of the answer is never the likelier choice.
    context: tokens of image, prompt and answer at most.
    grid: patches along a side of the image.
    """
    config = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
    processor = json.loads((TINY / "processor_config.json").read_text(encoding="utf-8"))
    config["text_config"]["max_position_embeddings"] = context
    _resize(config, processor, grid)
    return _write(folder, config, processor, seed, mixing, endless)


def public_checkpoint(
    folder: Path, seed: int, *, mixing: float = 1.0, gemma2: dict[str, object] | None = None
) -> Path:
    """As the public PaliGemma checkpoints are: no dialect of ours, image and prompt one prefix.

    49 image tokens, which are no whole number of pages, and two key-value heads for four query heads.
    gemma2: the decoder is one of Gemma 2, its text config with these changes.
    """
    config = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
    processor = json.loads((TINY / "processor_config.json").read_text(encoding="utf-8"))
    del config["pointbox_dialect"], config["pointbox_prefix"]
    config["text_config"] |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    if gemma2 is not None:
        config["text_config"] |= {"model_type": "gemma2", "query_pre_attn_scalar": 64} | gemma2
    _resize(config, processor, 7)
    return _write(folder, config, processor, seed, mixing, endless=False)


def as_published(folder: Path) -> Path:
    """The same weights under the names that the files on the hub have."""
    weights = load_file(folder / "model.safetensors")
    named = {
        name.replace("vision_tower.", "vision_tower.vision_model."): tensor
        for name, tensor in weights.items()
    }
    assert all(name.startswith(("language_model.model.", "vision_", "multi_")) for name in named)
    save_file(named, folder / "model.safetensors", {"format": "pt"})
    return folder


def _resize(config: dict, processor: dict, grid: int) -> None:
    side, tokens = grid * config["vision_config"]["patch_size"], grid * grid
    config["vision_config"] |= {"image_size": side, "num_image_tokens": tokens}
    config["text_config"] |= {"num_image_tokens": tokens}
    processor["image_processor"] |= {"image_seq_length": tokens, "size": {"height": side, "width": side}}


def _write(folder: Path, config: dict, processor: dict, seed: int, mixing: float, endless: bool) -> Path:
    model = PaliGemmaForConditionalGeneration(PaliGemmaConfig(**config))
    _fill(model, torch.Generator().manual_seed(seed), mixing, endless)
    model.save_pretrained(folder)
    for name in FILES:
        shutil.copy(TINY / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "float32"}), encoding="utf-8")
    (folder / "processor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    return folder


@torch.no_grad()
def _fill(
    model: PaliGemmaForConditionalGeneration, chance: torch.Generator, mixing: float, endless: bool
) -> None:
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            weight.copy_(0.1 * torch.randn(weight.shape, generator=chance) + (".layer_norm" in name))
            continue
        scale = mixing if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        fan_in = weight[0].numel()
        weight.copy_(torch.randn(weight.shape, generator=chance) * scale * fan_in**-0.5)
    table = model.get_input_embeddings().weight
    table[EOS_ID] = table[START_ID] + 0.3 * table[EOS_ID]  # so that lists end sooner or later
    if endless:
        away = torch.randn(table.shape[1], generator=chance) * table.shape[1] ** -0.5
        table += away
        table[EOS_ID] = -away
