"""Moondream folders as they come, and what is said of those that cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from engine.errors import ModelNotFound
from engine.models.moondream import Moondream
from engine.models.registry import load_model
from grammars.types import TASKS
from tests.models.moondream_checkpoints import (
    ANSWER,
    DETECT,
    Kind,
    byte_tokenizer,
    moondream_checkpoint,
    older,
    random_tensors,
    stored,
)

CPU = torch.device("cpu")
SMALL = Kind(grid=3, margin=1, layers=1)
THIRD = Kind(grid=3, margin=1, layers=2, third=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    moondream_checkpoint(tmp_path, SMALL, seed=0)
    return tmp_path


def change_config(folder: Path, section: str, **values: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["config"].setdefault(section, {}).update(values)
    (folder / "config.json").write_text(json.dumps(config))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def refused(folder: Path) -> str:
    with pytest.raises(ModelNotFound) as caught:
        load_model(str(folder), CPU)
    assert folder.name in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", [SMALL, THIRD])
def test_every_missing_weight_is_named(kind: Kind, tmp_path: Path) -> None:
    moondream_checkpoint(tmp_path, kind, seed=0)
    tensors = load_file(tmp_path / "model.safetensors")
    deciding = (".tau.", ".router.weight", "coord_decoder.weight")
    for name in tensors:
        if not any(part in name for part in deciding):
            save_file({n: t for n, t in tensors.items() if n != name}, tmp_path / "model.safetensors")
            assert name.removeprefix("model.") in refused(tmp_path)


def test_an_unknown_weight_is_named(folder: Path) -> None:
    change_weights(folder, lambda tensors: tensors.update({"model.text.extra": torch.ones(2)}))
    assert "text.extra" in refused(folder)


@pytest.mark.parametrize("name", ["text.wte", "text.lm_head.weight", "text.lm_head.bias", "vision.pos_emb"])
def test_a_misshapen_weight_is_named(folder: Path, name: str) -> None:
    change_weights(folder, lambda tensors: tensors.update({f"model.{name}": torch.ones(7, 3)}))
    assert name in refused(folder)


def test_the_same_weight_twice(folder: Path) -> None:
    name = "text.blocks.0.ln.weight"
    change_weights(folder, lambda tensors: tensors.update({older(name): torch.ones(SMALL.dim)}))
    assert f"{name} twice" in refused(folder)


def test_half_a_download(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert "model.safetensors is truncated" in refused(folder)


def test_no_tokenizer_and_no_hub(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    said = refused(folder)
    assert "no tokenizer.json" in said
    assert "moondream/starmie-v1" in said


@pytest.mark.parametrize("content", [b"", b"{}", b"oops"])
def test_a_damaged_tokenizer(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    refused(folder)


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    big = json.loads(byte_tokenizer().to_str())
    big["model"]["vocab"]["zzz"] = 5000
    Tokenizer.from_str(json.dumps(big)).save(str(folder / "tokenizer.json"))
    assert "5001 tokens" in refused(folder)


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        ("text", {"n_heads": 5}, "n_heads"),
        ("text", {"n_kv_heads": 3}, "n_kv_heads"),
        ("text", {"prefix_attn": 730}, "prefix_attn is 730"),
        ("text", {"dim": 32}, "wrong shape"),
        ("text", {"n_layers": 2}, "lacks weights: text.blocks.1"),
        ("text", {"dim": "wide"}, "config.json"),
        ("vision", {"crop_size": 43}, "crops of 43 pixels"),
        ("vision", {"overlap_margin": 2}, "margins of 2 patches"),
        ("region", {"coord_out_dim": 512}, "coord_out_dim"),
        ("tokenizer", {"eos_id": 9999}, "eos_id"),
        ("tokenizer", {"templates": {"detect": {"prefix": [1]}}}, "template"),
        ("tokenizer", {"templates": {"detect": {"prefix": [1, 70000], "suffix": []}}}, "70000"),
    ],
)
def test_a_config_that_cannot_be(folder: Path, section: str, values: dict, said: str) -> None:
    change_config(folder, section, **values)
    assert said in refused(folder)


@pytest.mark.parametrize("inner", [[], "x", {"text": []}])
def test_a_config_of_another_kind(folder: Path, inner: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"config": inner}))
    refused(folder)


def loaded(folder: Path) -> Moondream:
    model = load_model(str(folder), CPU)
    assert isinstance(model, Moondream)
    return model


def test_a_task_without_a_template_is_not_offered(folder: Path) -> None:
    change_config(folder, "tokenizer", templates={"detect": None, "point": {"prefix": [1], "suffix": [3]}})
    assert loaded(folder).info.tasks == ("point",)


def test_both_layouts_are_the_same_model(tmp_path: Path) -> None:
    weights = []
    for old in (False, True):
        folder = tmp_path / f"old-{old}"
        folder.mkdir()
        moondream_checkpoint(folder, Kind(grid=3, margin=1, layers=2, old=old), seed=0)
        weights.append(loaded(folder).network.state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_weights_in_parts(folder: Path) -> None:
    whole = loaded(folder).network.state_dict()
    tensors = stored(SMALL, random_tensors(SMALL, 0))
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, inside in parts.items():
        save_file({name: tensors[name] for name in inside}, folder / file)
    index = {"weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, tensor in loaded(folder).network.state_dict().items():
        assert torch.equal(tensor, whole[name])


def with_names(folder: Path, names: dict[str, int]) -> None:
    """Gives the tokenizer a few more ids, as far up as need be."""
    data = json.loads((folder / "tokenizer.json").read_text())
    data["model"]["vocab"] |= names
    (folder / "tokenizer.json").write_text(json.dumps(data))


def with_vocabulary(folder: Path, size: int) -> None:
    change_config(folder, "text", vocab_size=size)

    def grow(tensors: dict[str, torch.Tensor]) -> None:
        for name in ("wte", "lm_head.weight", "lm_head.bias"):
            rows = tensors[f"model.text.{name}"]
            more = rows.new_zeros(size - len(rows), *rows.shape[1:])
            tensors[f"model.text.{name}"] = torch.cat([rows, more])

    change_weights(folder, grow)


def test_the_usual_prompts(folder: Path) -> None:
    """Those of revisions from 2025-06-21 on, where config.json says nothing."""
    config = json.loads((folder / "config.json").read_text())
    del config["config"]["tokenizer"]
    (folder / "config.json").write_text(json.dumps(config))
    with_vocabulary(folder, 8000)
    model = loaded(folder)
    text = byte_tokenizer().encode(" cat").ids
    assert model.prompt("detect", "cat") == [1, 7235, 476, 2, *text, 3]
    assert model.prompt("point", "cat") == [1, 2581, 2, *text, 3]
    assert model.grammar.token(0) == 0


def test_the_prompts_of_older_revisions(folder: Path) -> None:
    """Known by the tokenizer; there any token but the end goes on."""
    config = json.loads((folder / "config.json").read_text())
    del config["config"]["tokenizer"]
    (folder / "config.json").write_text(json.dumps(config))
    with_vocabulary(folder, 51200)
    with_names(folder, {"<|endoftext|>": 50256})
    change_weights(folder, lambda tensors: tensors["model.text.lm_head.bias"][50256].fill_(5.0))
    model = loaded(folder)
    assert model.prompt("detect", "")[:4] == [198, 198, 47504, 25]
    assert model.prompt("point", "")[:4] == [198, 198, 12727, 25]
    assert model.prompt("point", "")[-1] == 628
    assert model.grammar.token(0) == 50256
    hidden = torch.randn(40, SMALL.dim, generator=torch.Generator().manual_seed(0))
    weights = load_file(folder / "model.safetensors")
    normed = model.network.text.post_ln(hidden)
    marks = normed @ weights["model.text.lm_head.weight"].T + weights["model.text.lm_head.bias"]
    end, going_on = model.head(hidden)[:, :2].unbind(1)
    assert torch.equal(end > going_on, marks.argmax(1) == 50256)
    for task in TASKS:
        assert task in model.info.tasks


def test_config_says_more_than_the_tokenizer(folder: Path) -> None:
    change_config(folder, "tokenizer", coord_id=6)
    model = loaded(folder)
    assert model.prompt("detect", "x")[: len(DETECT)] == DETECT
    assert model.prompt("detect", "x")[-len(ANSWER) :] == ANSWER
    weights = load_file(folder / "model.safetensors")
    assert torch.equal(model.network.text.lm_head.bias, weights["model.text.lm_head.bias"][[0, 6]])
