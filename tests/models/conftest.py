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


GEMMA_2 = {
    "capped-window": {"sliding_window": 20, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "capped": {"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    "plain": {"sliding_window": 30, "attn_logit_softcapping": None, "final_logit_softcapping": None},
}
"""The caps are tight in the first, those of the public checkpoints in the second."""


@pytest.fixture(scope="session", params=[0, 2, 4, *GEMMA_2], ids="{}".format)
def public_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PaliGemma with three seeds, and PaliGemma 2."""
    folder = tmp_path_factory.mktemp("public")
    if request.param in GEMMA_2:
        return public_checkpoint(folder, 2, gemma2=GEMMA_2[request.param])
    return public_checkpoint(folder, request.param)
