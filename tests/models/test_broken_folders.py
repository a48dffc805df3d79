"""A model folder with something wrong in it is refused in one line that names the folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import EngineError, ModelNotFound
from engine.models.registry import CHECKPOINTS, load_model

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
BROKEN = {
    "config.json": (b"", b"{oops", b"[]", b'{"a": "\xff"}', b'{"model_type": "paligemma"}'),
    "tokenizer.json": (b"", b"{}", b"oops"),
    "processor_config.json": (b"oops",),
    "model.safetensors": (b"", POINTER),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CHECKPOINTS / "tiny", tmp_path / "mine"))


@pytest.mark.parametrize(("name", "content"), [(name, item) for name, all in BROKEN.items() for item in all])
def test_a_damaged_file(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    refused(folder)


@pytest.mark.parametrize("name", BROKEN)
def test_a_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder)


def test_half_a_download(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    assert "model.safetensors is truncated" in refused(folder)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


Q_PROJ = "layers.0.self_attn.q_proj.weight"


def key_in(folder: Path) -> str:
    (key,) = (k for k in load_file(folder / "model.safetensors") if k.endswith(Q_PROJ) and "vision" not in k)
    return key


def test_a_weight_that_is_missing(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    key = key_in(folder)
    change_weights(folder, lambda tensors: tensors.pop(key))
    said = refused(folder)
    assert "lacks weights: " in said
    assert said.endswith(Q_PROJ)
    assert capfd.readouterr() == ("", "")


def test_weights_too_many(folder: Path) -> None:
    more = {f"model.extra.{i}": torch.zeros(2) for i in range(5)}
    change_weights(folder, lambda tensors: tensors.update(more))
    assert "does not know: model.extra.0, model.extra.1, model.extra.2 and 2 more" in refused(folder)


def test_a_weight_of_another_shape(folder: Path) -> None:
    key = key_in(folder)
    change_weights(folder, lambda tensors: tensors.update({key: torch.zeros(3, 5)}))
    said = refused(folder)
    assert Q_PROJ in said
    assert "is [3, 5], not [" in said


def test_a_shard_that_is_missing(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    assert "model-00002-of-00002.safetensors is missing" in refused(folder)
    index.write_text("{}")
    assert "weight_map" in refused(folder)


def test_an_unknown_family_is_told_which_there_are(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert"}')
    said = refused(folder)
    assert "'bert' is not supported" in said
    assert "paligemma" in said


def test_a_local_folder_has_no_revision(folder: Path) -> None:
    with pytest.raises(ModelNotFound, match="revision"):
        load_model(str(folder), torch.device("cpu"), revision="main")


def test_a_dtype_that_is_not_one(folder: Path) -> None:
    with pytest.raises(EngineError, match="float32, bfloat16, float16"):
        load_model(str(folder), torch.device("cpu"), "int4")


def test_another_decoder(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["model_type"] = "gemma2"
    (folder / "config.json").write_text(json.dumps(config))
    refused(folder)


def refused(folder: Path) -> str:
    with pytest.raises(ModelNotFound) as caught:
        load_model(str(folder), torch.device("cpu"))
    assert folder.name in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)
