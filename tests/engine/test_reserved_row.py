"""The row that fills up batches reads and writes one place, however long the engine runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.device_model import TOY, RandomMoondream
from engine.device.cpu import CpuDevice
from engine.engine import Engine
from engine.executor import Executor
from engine.request import Request


def test_its_place_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RandomMoondream(TOY, 64, torch.device("cpu"), torch.float32)
    places: list[int] = []
    launch = Executor.launch

    def watched(self: Executor, slot: int, step: object, index: np.ndarray) -> None:
        places.extend(index[len(step.sequences) :].tolist())
        launch(self, slot, step, index)  # type: ignore[arg-type]

    monkeypatch.setattr(Executor, "launch", watched)
    image = np.zeros((8, 8, 3), np.uint8)
    request = Request("point", image, ("one", "two", "three"), dedupe=False)
    with Engine(model, CpuDevice(), max_batch=4, max_tokens=30) as engine:
        engine.ask(request)
    assert len(places) > 20
    assert set(places) <= {-1, 0}
