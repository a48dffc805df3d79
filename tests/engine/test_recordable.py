"""Work with a key can be recorded: nothing goes to the host, no shape depends on data, no run differs.

Checked on the CPU by watching the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.device_model import TOY, RandomMoondream
from engine.adapters.bank import AdapterBank
from engine.device.cpu import CpuDevice, CpuEvent
from engine.engine import Engine
from engine.executor import Placement
from engine.models.base import Model
from engine.models.moondream import Moondream
from engine.models.registry import load_model
from engine.request import Request
from tests.models.adapters import QUERIES, Recipe, write_adapter
from tests.models.checkpoints import TINY, random_checkpoint
from tests.models.moondream_checkpoints import Kind, moondream_checkpoint

HOST_READS = {"_local_scalar_dense", "is_nonzero", "equal", "item"}
FRESH = {"lift_fresh"}
"""A tensor made from Python numbers on the host."""
VARYING = {"nonzero", "masked_select", "unique", "_unique2", "unique_consecutive", "repeat_interleave"}


class Watch(TorchDispatchMode):
    """Notes every operation and the shapes that it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        assert name not in HOST_READS | FRESH | VARYING, f"{name} cannot be recorded"
        if name in ("index", "index_put_", "index_put"):
            indices = [i for i in args[1] if i is not None]
            assert all(i.dtype == torch.int64 for i in indices), "a mask as an index has a shape of its own"
        self.seen.append((name, tuple(result.shape) if isinstance(result, torch.Tensor) else ()))
        return result


class RecordableCpu(CpuDevice):
    """Watches work with a key, which must do the same each time."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed_shapes = True
        self.first: dict[Hashable, list[tuple[str, tuple[int, ...]]]] = {}
        self.again = 0

    def compute(self, work: Callable[[], None], key: Hashable = None) -> CpuEvent:
        def watched() -> None:
            with Watch() as watch:
                work()
            self.again += key in self.first
            assert self.first.setdefault(key, watch.seen) == watch.seen, f"{key} did something else"

        return super().compute(work if key is None else watched, key)


@pytest.fixture(scope="module", params=["timing", "paligemma", "moondream 2", "moondream 3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    if request.param == "timing":
        return RandomMoondream(TOY, 64, torch.device("cpu"), torch.float32)
    folder = tmp_path_factory.mktemp("model")
    if request.param == "paligemma":
        return load_model(str(random_checkpoint(folder, 5, endless=True)), torch.device("cpu"))
    third = request.param == "moondream 3"
    moondream_checkpoint(folder, Kind(grid=3, margin=1, context=64, third=third, norm=third), seed=1)
    model = load_model(str(folder), torch.device("cpu"))
    assert isinstance(model, Moondream)
    model.network.text.lm_head.bias[0] = -1e4  # never the end
    return model


@pytest.mark.parametrize("placement", ["host", "device"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_keyed_work_can_be_recorded(model: Model, placement: Placement, temperature: float) -> None:
    device = RecordableCpu()
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    phrases = ("red circle", "blue star", "thing")  # a batch with a padding row
    request = Request("point", image, phrases, temperature=temperature, seed=1, dedupe=False)
    with Engine(model, device, max_batch=4, placement=placement, max_tokens=8) as engine:
        engine.ask(request)
    assert_recorded(device)


def test_adapters_can_be_recorded(tmp_path: Path) -> None:
    """Which row uses which, and what lies in a slot, is read anew each time."""
    model, device = load_model("tiny", torch.device("cpu")), RecordableCpu()
    folders = {
        name: write_adapter(tmp_path / name, TINY, Recipe(QUERIES, seed=seed))
        for seed, name in enumerate(("one", "two"))
    }
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8)
    bank = AdapterBank(model, folders, slots=1)
    with Engine(model, device, adapters=bank, max_batch=4, max_tokens=8) as engine:
        for name in (None, "one", "two"):
            engine.ask(Request("point", image, ("red circle", "blue star"), adapter=name, dedupe=False))
    assert_recorded(device)


def assert_recorded(device: RecordableCpu) -> None:
    assert {key[0] for key in device.first if isinstance(key, tuple)} == {"forward", "reset", "sample"}
    assert device.again > 0
