"""A model folder with something wrong in it is refused in one line that names the folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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


def test_another_decoder(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["model_type"] = "llama"
    (folder / "config.json").write_text(json.dumps(config))
    assert "use one of gemma, gemma2" in refused(folder)


def test_weights_of_another_decoder(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["model_type"] = "gemma2"
    (folder / "config.json").write_text(json.dumps(config))
    assert "lacks weights: model.language_model.layers.0." in refused(folder)


def test_a_missing_weight(folder: Path) -> None:
    with weights_of(folder) as weights:
        del weights["multi_modal_projector.linear.bias"]
    assert refused(folder).endswith("lacks weights: model.multi_modal_projector.linear.bias")


def test_an_unknown_weight(folder: Path) -> None:
    with weights_of(folder) as weights:
        weights["multi_modal_projector.norm.bias"] = torch.zeros(4)
    assert "does not know: model.multi_modal_projector.norm.bias" in refused(folder)


def test_a_weight_of_another_shape(folder: Path) -> None:
    with weights_of(folder) as weights:
        weights["multi_modal_projector.linear.bias"] = torch.zeros(7)
    assert "multi_modal_projector.linear.bias (is [7], must be [192])" in refused(folder)


@contextmanager
def weights_of(folder: Path) -> Iterator[dict[str, torch.Tensor]]:
    path = folder / "model.safetensors"
    weights = load_file(path)
    yield weights
    save_file(weights, path, {"format": "pt"})


def test_many_unknown_weights_are_counted(folder: Path) -> None:
    with weights_of(folder) as weights:
        weights |= {f"model.extra.{i}": torch.zeros(2) for i in range(5)}
    assert "does not know: model.extra.0, model.extra.1, model.extra.2 and 2 more" in refused(folder)


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


def test_a_refusal_is_all_that_is_said(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with weights_of(folder) as weights:
        del weights["multi_modal_projector.linear.bias"]
    refused(folder)
    assert capfd.readouterr() == ("", "")


def test_a_local_folder_has_no_revision(folder: Path) -> None:
    with pytest.raises(ModelNotFound, match="revision"):
        load_model(str(folder), torch.device("cpu"), revision="main")


def test_a_dtype_that_is_not_one(folder: Path) -> None:
    with pytest.raises(EngineError, match="float32, bfloat16, float16"):
        load_model(str(folder), torch.device("cpu"), "int4")


def refused(folder: Path) -> str:
    """What the refusal says."""
    with pytest.raises(ModelNotFound) as caught:
        load_model(str(folder), torch.device("cpu"))
    assert folder.name in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)
