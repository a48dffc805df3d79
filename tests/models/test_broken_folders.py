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

from engine.errors import ModelNotFound
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
    refused(folder)


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


def refused(folder: Path) -> str:
    """What the refusal says."""
    with pytest.raises(ModelNotFound) as caught:
        load_model(str(folder), torch.device("cpu"))
    assert folder.name in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)
