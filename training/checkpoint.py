"""Architecture, initialisation and export of the default checkpoint (PaliGemma, 3.6 M parameters)."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from transformers import (
    GemmaConfig,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
)
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from training.vocabulary import LOCATIONS, build_tokenizer

IMAGE_SIDE, PATCH, WIDTH = 192, 16, 192
GRID = IMAGE_SIDE // PATCH
IMAGE_TOKENS = GRID * GRID
DIALECT = {"pointbox_dialect": "pointbox", "pointbox_prefix": "image"}


def build_processor(tokenizer: PreTrainedTokenizerFast | None = None) -> PaliGemmaProcessor:
    images = SiglipImageProcessorPil(
        size={"height": IMAGE_SIDE, "width": IMAGE_SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    images.image_seq_length = IMAGE_TOKENS
    return PaliGemmaProcessor(images, tokenizer or build_tokenizer())


def build_config(tokenizer: PreTrainedTokenizerFast) -> PaliGemmaConfig:
    vision = SiglipVisionConfig(
        hidden_size=WIDTH,
        intermediate_size=576,
        num_hidden_layers=6,
        num_attention_heads=3,
        image_size=IMAGE_SIDE,
        patch_size=PATCH,
        vision_use_head=False,
        num_image_tokens=IMAGE_TOKENS,
        projection_dim=WIDTH,
    )
    text = GemmaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    return PaliGemmaConfig(
        vision_config=vision.to_dict(),
        text_config=text.to_dict(),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        projection_dim=WIDTH,
        hidden_size=WIDTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
        **DIALECT,
    )


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> PaliGemmaForConditionalGeneration:
    """A freshly initialised model with sin-cos image positions and location embeddings."""
    torch.manual_seed(seed)
    model = PaliGemmaForConditionalGeneration(build_config(tokenizer))
    with torch.no_grad():
        positions = model.model.vision_tower.embeddings.position_embedding.weight
        positions.copy_(_sincos_grid(GRID, WIDTH) * 0.5)
        first = tokenizer.convert_tokens_to_ids(LOCATIONS[0])
        table = model.model.language_model.embed_tokens.weight
        table[first : first + 1024] = _sincos(torch.arange(1024) / 1024, WIDTH, 0.5, 96.0) * 0.07
    return model


def _sincos(values: torch.Tensor, width: int, low: float, high: float) -> torch.Tensor:
    """[n] values in [0, 1] -> [n, width] sines and cosines, `low` to `high` periods over the interval."""
    periods = low * (high / low) ** (torch.arange(width // 2) / (width // 2 - 1))
    angles = 2 * math.pi * values[:, None] * periods[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _sincos_grid(grid: int, width: int) -> torch.Tensor:
    """[grid * grid, width]: half of the width encodes the row, half the column."""
    axis = _sincos((torch.arange(grid) + 0.5) / grid, width // 2, 0.25, grid / 2)
    rows = axis[:, None].expand(grid, grid, -1)
    columns = axis[None].expand(grid, grid, -1)
    return torch.cat([rows, columns], dim=-1).reshape(grid * grid, width)


def export(
    model: PaliGemmaForConditionalGeneration,
    processor: PaliGemmaProcessor,
    folder: Path,
    state: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write a stock-loadable checkpoint folder in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    half = {k: v.detach().to(torch.float16) for k, v in (state or model.state_dict()).items()}
    half.pop("lm_head.weight", None)  # tied to the embedding table
    model.save_pretrained(folder, state_dict=half)
    processor.save_pretrained(folder)
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text())
    config["dtype"] = "float16"
    config_path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
