"""Models that the engine's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.base import Model
from engine.models.registry import load_model
from tests.models.checkpoints import public_checkpoint, random_checkpoint
from tests.models.sameness import FOLDERS


@pytest.fixture(scope="session")
def tiny() -> Model:
    return load_model("tiny", torch.device("cpu"))


def loaded(folder: Path) -> Model:
    model = load_model(str(folder), torch.device("cpu"))
    FOLDERS[model.info.revision] = folder
    return model


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Writes objects until something stops it."""
    folder = tmp_path_factory.mktemp("endless")
    return loaded(random_checkpoint(folder, 5, mixing=0.3, endless=True))


@pytest.fixture(scope="session")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Writes lists of very different lengths."""
    return loaded(random_checkpoint(tmp_path_factory.mktemp("varied"), 3))


@pytest.fixture(scope="session")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The KV of an image ends within a page."""
    folder = tmp_path_factory.mktemp("ragged")
    return loaded(random_checkpoint(folder, 5, mixing=0.3, endless=True, grid=5))


@pytest.fixture(scope="session")
def public(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Image and prompt one prefix; writes labels."""
    return loaded(public_checkpoint(tmp_path_factory.mktemp("public"), 2))


@pytest.fixture(scope="session")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Writes until its context of 160 tokens is full."""
    folder = tmp_path_factory.mktemp("narrow")
    return loaded(random_checkpoint(folder, 5, mixing=0.3, endless=True, context=160))
