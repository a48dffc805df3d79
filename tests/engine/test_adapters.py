"""LoRA adapters: rows of one batch use different ones, and answer as a model with merged weights does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from engine.adapters.bank import AdapterBank
from engine.adapters.linear import AdaptedLinear, Chosen
from engine.adapters.peft import Pair
from engine.answer import Answer
from engine.errors import EngineError
from engine.executor import Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.models.registry import load_model
from engine.request import Request
from engine.trace import Trace
from tests.engine.asking import SCHEDULES, ask_together, assert_at_rest, engine_on, picture, said
from tests.engine.conftest import loaded
from tests.engine.faulty import FailsOnce
from tests.models.adapters import QUERIES, TEXT, VISION, Recipe, merge, old, write_adapter
from tests.models.checkpoints import public_checkpoint, random_checkpoint
from tests.models.qwen_checkpoints import qwen_checkpoint
from tests.models.sameness import assert_same

CPU = torch.device("cpu")
RECIPES = {
    "few": Recipe(QUERIES, seed=1),
    "all": Recipe(
        TEXT, rank=6, alpha=3, seed=2, config={"use_rslora": True, "rank_pattern": {"down_proj": 2}}
    ),
    "sight": Recipe(f"{TEXT}|{VISION}", rank=3, seed=3, strength=0.2, called=old),
}
CHAT_TEXT = r"model\.language_model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj"
CHAT_VISION = r"model\.visual\..*\.(qkv|proj|linear_fc\d)"
CHAT_RECIPES = {
    "few": Recipe(CHAT_TEXT, seed=1, called=str),
    "all": Recipe(CHAT_TEXT, rank=6, seed=2, called=str, config={"use_rslora": True}),
    "sight": Recipe(f"{CHAT_TEXT}|{CHAT_VISION}", rank=3, seed=3, called=str),
}
LIMIT = 30


@dataclass(frozen=True)
class Adapted:
    """A model, its adapters, and by their names models with merged weights; None has no adapter."""

    folder: Path
    adapters: dict[str, Path]
    merged: dict[str | None, Model]
    answers: dict[tuple[object, ...], Answer] = field(default_factory=dict)
    """Of the merged models, by picture, phrases and adapter."""

    def bank(self, model: Model, slots: int = 8) -> AdapterBank:
        return AdapterBank(model, self.adapters, slots)


def make(folder: Path, checkpoint: Callable[..., Path], recipes: dict[str, Recipe] = RECIPES) -> Adapted:
    base = checkpoint(folder / "base", 5)
    adapters = {name: write_adapter(folder / name, base, recipe) for name, recipe in recipes.items()}
    merged: dict[str | None, Model] = {None: loaded(base)}
    for name, recipe in recipes.items():
        merged[name] = loaded(merge(folder / f"{name}-merged", base, adapters[name], recipe))
    return Adapted(base, adapters, merged)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """The KV of an image serves every phrase."""
    return make(tmp_path_factory.mktemp("shared"), partial(random_checkpoint, endless=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Image and prompt one prefix, labels written."""
    return make(tmp_path_factory.mktemp("whole"), public_checkpoint)


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    """Qwen3-VL: an image is a run of patches, and its features go into several layers of the decoder."""
    folder = tmp_path_factory.mktemp("chat")
    return make(folder, lambda base, seed: qwen_checkpoint(base, "qwen3_vl", seed), CHAT_RECIPES)


@pytest.fixture(params=["shared", "whole", "chat"])
def adapted(request: pytest.FixtureRequest) -> Adapted:
    found: Adapted = request.getfixturevalue(request.param)
    return found


def requests_of(names: tuple[str | None, ...], phrases: int = 2) -> list[Request]:
    """On two images, each with every adapter."""
    return [
        Request("detect", picture(seed), ("red circle", "a ring")[:phrases], dedupe=False, adapter=name)
        for seed in (1, 2)
        for name in names
    ]


def expected(adapted: Adapted, requests: list[Request]) -> list[Answer]:
    """Of the merged models, each request alone, in blocking mode."""
    answers = []
    for request in requests:
        asked = (request.image.tobytes(), request.phrases, request.adapter)
        if asked not in adapted.answers:
            with engine_on(adapted.merged[request.adapter], mode="blocking", max_tokens=LIMIT) as engine:
                adapted.answers[asked] = engine.ask(replace(request, adapter=None))
        answers.append(adapted.answers[asked])
    return answers


def told_by(requests: list[Request], answers: list[Answer]) -> set[tuple[object, ...]]:
    """What is said with each adapter."""
    pairs = list(zip(requests, answers, strict=True))
    return {tuple(said(a).places for r, a in pairs if r.adapter == name) for name in (None, *RECIPES)}


def assert_merged(
    adapted: Adapted, requests: list[Request], given: list[Answer], wanted: list[Answer]
) -> None:
    for name, model in adapted.merged.items():
        mine = [i for i, request in enumerate(requests) if request.adapter == name]
        assert_same(
            model,
            [replace(requests[i], adapter=None) for i in mine],
            [given[i] for i in mine],
            [wanted[i] for i in mine],
        )


@pytest.mark.parametrize(("mode", "placement"), SCHEDULES)
def test_a_mixed_batch_answers_as_merged_models_do(
    adapted: Adapted, mode: Mode, placement: Placement
) -> None:
    model = load_model(str(adapted.folder), CPU)
    if placement == "device" and model.grammar.has_runs:
        pytest.skip("labels are written by the host")
    requests = requests_of((None, *RECIPES))
    wanted = expected(adapted, requests)
    assert len(told_by(requests, wanted)) == 1 + len(RECIPES), "adapters that change nothing"
    trace = Trace()
    bank = adapted.bank(model)
    with engine_on(
        model, adapters=bank, mode=mode, placement=placement, max_tokens=LIMIT, trace=trace
    ) as engine:
        together = ask_together(engine, requests)
        assert_at_rest(engine)
        alone = [engine.ask(request) for request in requests]
        assert_at_rest(engine)
    assert max(span.rows for span in trace.spans if span.kind == "decode") > len(RECIPES)
    assert_merged(adapted, requests, together, wanted)
    assert_merged(adapted, requests, alone, wanted)


def test_more_adapters_than_slots_take_turns(adapted: Adapted) -> None:
    model = load_model(str(adapted.folder), CPU)
    requests = [request for _ in range(2) for request in requests_of((None, *RECIPES), phrases=1)]
    with engine_on(model, adapters=adapted.bank(model, slots=1), max_tokens=LIMIT) as engine:
        given = ask_together(engine, requests)
        assert_at_rest(engine)
    assert_merged(adapted, requests, given, expected(adapted, requests))


def test_images_are_shared_within_an_adapter_only(shared: Adapted) -> None:
    model = load_model(str(shared.folder), CPU)
    request = Request("detect", picture(1), ("red circle",), dedupe=False)
    with engine_on(model, adapters=shared.bank(model), max_tokens=LIMIT) as engine:
        for name in (None, "few", "all"):
            mine = replace(request, adapter=name)
            assert engine.ask(mine).metrics.cached_tokens == 0
            assert engine.ask(mine).metrics.cached_tokens == model.image_tokens
        assert engine.counts().vision_images == 3


def test_vision_features_are_shared_unless_an_adapter_changes_them(whole: Adapted) -> None:
    model = load_model(str(whole.folder), CPU)
    request = Request("detect", picture(1), ("red circle",), dedupe=False)
    with engine_on(model, adapters=whole.bank(model), max_tokens=LIMIT) as engine:
        for name, images in ((None, 1), ("few", 1), ("all", 1), ("sight", 2), (None, 2), ("sight", 2)):
            engine.ask(replace(request, adapter=name))
            assert engine.counts().vision_images == images


def test_an_adapter_that_could_not_be_fetched_is_fetched_again(shared: Adapted) -> None:
    """The first work on the device fills the slot of whoever comes first."""
    model = load_model(str(shared.folder), CPU)
    request = Request("detect", picture(1), ("red circle",), dedupe=False, adapter="few")
    with engine_on(shared.merged["few"], max_tokens=LIMIT) as engine:
        wanted = engine.ask(replace(request, adapter=None))
    with engine_on(model, adapters=shared.bank(model), max_tokens=LIMIT, device=FailsOnce(0)) as engine:
        with pytest.raises(EngineError, match="the device broke"):
            engine.ask(request)
        assert_merged(shared, [request], [engine.ask(request)], [wanted])
        assert_at_rest(engine)


def test_a_layer_may_see_the_tokens_of_all_rows_in_one_list() -> None:
    """As the router of a mixture of experts does."""
    torch.manual_seed(0)
    chosen, base = Chosen(), torch.nn.Linear(6, 5)
    layer = AdaptedLinear(base, chosen, slots=3, rank=4)
    pairs = [Pair(torch.randn(rank, 6), torch.randn(5, rank)) for rank in (2, 4)]
    for slot, pair in enumerate(pairs, 1):
        layer.fill(slot, pair)
    x = torch.randn(3, 7, 6)
    with chosen.using(torch.tensor([2, 0, 1])), torch.no_grad():
        apart, together = layer(x), layer(x.flatten(0, 1))
    wanted = base(x).detach()
    wanted[0] += x[0] @ pairs[1].a.T @ pairs[1].b.T
    wanted[2] += x[2] @ pairs[0].a.T @ pairs[0].b.T
    torch.testing.assert_close(apart, wanted)
    torch.testing.assert_close(together, apart.flatten(0, 1))
    torch.testing.assert_close(layer(x), base(x))


def test_without_adapters_no_layer_is_replaced(tiny: Model) -> None:
    kinds = {type(module).__name__ for module in tiny._model.modules()}  # type: ignore[attr-defined]
    assert "Linear" in kinds
    assert "AdaptedLinear" not in kinds
