"""A model folder with something wrong in it is refused in one line that names the folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

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
    config["text_config"]["model_type"] = "gemma2"
    (folder / "config.json").write_text(json.dumps(config))
    refused(folder)


def refused(folder: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        load_model(str(folder), torch.device("cpu"))
    assert folder.name in str(caught.value)
    assert "\n" not in str(caught.value)
