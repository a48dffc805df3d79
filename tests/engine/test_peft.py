"""Adapter folders that are damaged, ask for more than LoRA, or are of another model: refused, key named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.device_model import TOY, RandomMoondream
from engine.adapters.bank import AdapterBank
from engine.adapters.peft import read_adapter
from engine.engine import Engine
from engine.errors import EngineError
from engine.models.registry import load_model
from tests.models.adapters import QUERIES, TEXT, WEIGHTS, Recipe, write_adapter
from tests.models.checkpoints import TINY

CPU = torch.device("cpu")
QUERY = "base_model.model.model.language_model.layers.0.self_attn.q_proj"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "mine", TINY, Recipe(QUERIES))


def refused(folder: Path) -> str:
    """What a model says to the adapter, which is one line."""
    with pytest.raises(EngineError) as caught:
        AdapterBank(load_model("tiny", CPU), {"mine": folder})
    said = str(caught.value)
    assert "\n" not in said
    assert str(folder) in said
    assert caught.value.field == "adapter"
    return said


CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"peft_type": "IA3"}, "peft_type LORA"),
    ({"use_dora": True}, "use_dora: DoRA"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"bias": "all"}, "bias to 'all'"),
    ({"lora_bias": True}, "lora_bias"),
    ({"fan_in_fan_out": True}, "fan_in_fan_out"),
    ({"layer_replication": [[0, 1]]}, "layer_replication"),
    ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    ({"target_parameters": ["mlp.w"]}, "target_parameters"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights to 'pissa'"),
    ({"r": 0}, "rank 0 for r"),
    ({"r": None}, "rank None for r"),
    ({"r": 8}, f"{QUERY}.lora_A.weight of shape"),
    ({"rank_pattern": {"q_proj": 5}}, "not of rank 5"),
    ({"rank_pattern": {"q_proj": "x"}}, "rank 'x' for q_proj"),
    ({"lora_alpha": "much"}, "alpha 'much' for lora_alpha"),
    ({"alpha_pattern": ["q_proj"]}, "alpha_pattern"),
    ({"target_modules": None}, "target_modules"),
    ({"target_modules": ["q_proj"]}, "v_proj, which target_modules does not name"),
    ({"target_modules": ["q_proj", "v_proj", "k_proj"]}, "no weights for 'k_proj'"),
    ({"target_modules": r".*\.k_proj"}, "which target_modules does not name"),
]


@pytest.mark.parametrize(("change", "reason"), CONFIGS, ids=lambda v: str(v)[:40])
def test_a_config_that_asks_for_something_else(folder: Path, change: dict[str, Any], reason: str) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert reason in refused(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_config_that_is_none(folder: Path, content: bytes) -> None:
    (folder / "adapter_config.json").write_bytes(content)
    assert "adapter_config.json" in refused(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", WEIGHTS])
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert f"{name} is missing" in refused(folder)


def test_half_a_download(folder: Path) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "truncated" in refused(folder)


def drop_b(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[f"{QUERY}.lora_B.weight"]


def narrow_a(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{QUERY}.lora_A.weight"] = torch.zeros(4, 7)


def widen_b(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{QUERY}.lora_B.weight"] = torch.zeros(9, 4)


def lower_rank(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{QUERY}.lora_B.weight"] = tensors[f"{QUERY}.lora_B.weight"][:, :2].contiguous()


def not_finite(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{QUERY}.lora_B.weight"][0, 0] = torch.nan


def magnitude(tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{QUERY}.lora_magnitude_vector"] = torch.zeros(4)


def embedding(tensors: dict[str, torch.Tensor]) -> None:
    tensors["base_model.model.model.language_model.embed_tokens.lora_embedding_A"] = torch.zeros(4, 4)


def rename(path: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        for side in "AB":
            tensors[f"base_model.model.{path}.lora_{side}.weight"] = tensors.pop(
                f"{QUERY}.lora_{side}.weight"
            )

    return change


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (drop_b, [f"lacks {QUERY}.lora_B.weight"]),
        (narrow_a, [f"{QUERY}.lora_A.weight has width 7, and its layer 192"]),
        (widen_b, [f"{QUERY}.lora_B.weight has width 9, and its layer 192"]),
        (lower_rank, [f"{QUERY}.lora_B.weight of shape [192, 2], not of rank 4"]),
        (not_finite, [f"{QUERY}.lora_B.weight", "not finite"]),
        (magnitude, ["lora_magnitude_vector"]),
        (embedding, ["lora_embedding_A"]),
        (
            rename("model.language_model.layers.99.self_attn.q_proj"),
            ["layers.99", "is no layer of this model"],
        ),
        (rename("lm_head.q_proj"), ["lm_head.q_proj is outside", "model.language_model.layers"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_weights_that_do_not_fit(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], None], reasons: list[str]
) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    said = refused(folder)
    assert all(reason in said for reason in reasons), said


def test_scales_and_ranks(tmp_path: Path) -> None:
    """alpha / rank, or alpha / sqrt(rank); patterns name the layers that differ."""
    recipe = Recipe(TEXT, rank=4, alpha=8)
    config = {"rank_pattern": {"k_proj": 2}, "alpha_pattern": {r"layers\.1\..*": 3, "q_proj": 16}}
    plain = read_adapter(write_adapter(tmp_path / "plain", TINY, recipe))
    other = replace(recipe, config={"rank_pattern": {"k_proj": 2}})
    folder = write_adapter(tmp_path / "other", TINY, other)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config | {"use_rslora": True}))
    given, raw = read_adapter(folder), load_file(folder / WEIGHTS)

    def scale(layer: str) -> float:
        b = raw[f"base_model.model.{layer}.lora_B.weight"]
        return float((given[layer].b / b).mean())

    at = "model.language_model.layers"
    assert given.keys() == plain.keys()
    assert scale(f"{at}.0.self_attn.q_proj") == pytest.approx(16 / 2)
    assert scale(f"{at}.0.self_attn.k_proj") == pytest.approx(8 / 2**0.5)
    assert scale(f"{at}.1.self_attn.q_proj") == pytest.approx(3 / 2)
    assert scale(f"{at}.0.mlp.up_proj") == pytest.approx(8 / 2)
    assert given[f"{at}.0.self_attn.k_proj"].a.shape[0] == 2


def test_a_model_that_takes_no_adapters(folder: Path) -> None:
    model = RandomMoondream(TOY, 64, CPU, torch.float32)
    with pytest.raises(EngineError, match="take no adapters"):
        AdapterBank(model, {"mine": folder})


def test_loading_an_engine_names_its_adapters(folder: Path) -> None:
    with Engine.load("tiny", adapters={"mine": folder, "again": str(folder)}) as engine:
        assert engine.model_info.adapters == ("again", "mine")
    with pytest.raises(EngineError, match="is missing"):
        Engine.load("tiny", adapters={"mine": folder.parent / "nothing"})
