"""Checkpoints that the model tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.models.base import Model
from engine.models.registry import load_model
from tests.models.checkpoints import public_checkpoint, random_checkpoint


@pytest.fixture(scope="session")
def tiny() -> Model:
    return load_model("tiny", torch.device("cpu"))


@pytest.fixture(scope="session", params=[(3, 8), (5, 7), (8, 8)], ids="seed{0[0]}-grid{0[1]}".format)
def random_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of them with 49 image tokens, whose KV ends within a page."""
    seed, grid = request.param
    return random_checkpoint(tmp_path_factory.mktemp("random"), seed, grid=grid)


@pytest.fixture(scope="session")
def stubborn_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Says the same box for ever."""
    return random_checkpoint(tmp_path_factory.mktemp("stubborn"), 5, mixing=0.0, endless=True)


@pytest.fixture(scope="session", params=[0, 2, 4], ids="seed{}".format)
def public_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return public_checkpoint(tmp_path_factory.mktemp("public"), request.param)
