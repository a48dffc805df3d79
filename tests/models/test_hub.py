"""Models of the hub without network: what is in the cache works, the rest says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from engine.errors import ModelNotFound
from engine.models import hub
from engine.models.registry import CHECKPOINTS, load_model

CPU = torch.device("cpu")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the hub's client looks, on a machine without network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def keep(cache: Path) -> Callable[[str], Path]:
    """Puts the default model into the cache under a hub id, as the hub's client does."""

    def put(name: str) -> Path:
        repo = cache / f"models--{name.replace('/', '--')}"
        (repo / "refs").mkdir(parents=True)
        (repo / "refs" / "main").write_text(COMMIT)
        return Path(shutil.copytree(CHECKPOINTS / "tiny", repo / "snapshots" / COMMIT))

    return put


def test_what_is_cached_is_loaded(keep: Callable[[str], Path]) -> None:
    keep("acme/tiny")
    model = load_model("acme/tiny", CPU)
    assert model.info.name == "acme/tiny"
    assert model.info.revision == COMMIT[:12]
    assert load_model("acme/tiny", CPU, revision=COMMIT).info.revision == COMMIT[:12]


def test_what_is_not_cached_says_what_to_do(cache: Path) -> None:
    with pytest.raises(ModelNotFound) as caught:
        load_model("acme/large", CPU)
    said = str(caught.value)
    assert "\n" not in said
    for part in ("acme/large", str(cache), "hf download acme/large", "local folder"):
        assert part in said


def test_another_revision_than_the_cached_one(keep: Callable[[str], Path]) -> None:
    keep("acme/tiny")
    with pytest.raises(ModelNotFound, match=r"acme/tiny.*cannot be reached"):
        load_model("acme/tiny", CPU, revision="v2")


def test_the_cache_is_listed(keep: Callable[[str], Path], cache: Path) -> None:
    assert hub.cached() == []
    folder = keep("acme/tiny")
    (entry,) = hub.cached()
    assert (entry.name, entry.folder) == ("acme/tiny", folder)
    assert entry.size > 1_000_000
    shutil.rmtree(cache)
    assert hub.cached() == []
