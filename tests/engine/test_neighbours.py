"""A step that fails, or a request whose numbers overflow, changes nobody else's answer."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch

import engine.executor
import engine.forwards
from engine.device.base import Event
from engine.device.cuda import upload
from engine.engine import Engine
from engine.executor import Executor, Placement
from engine.loop import Mode
from engine.models.base import Model
from engine.request import Request
from engine.sequence import Sequence
from engine.steps import Step
from tests.engine.asking import Listener, assert_at_rest, engine_on, idle, picture, places_of, submit, until
from tests.engine.faulty import DeviceBroke, Work, Wrapped

PAIR = Request("detect", picture(20), ("red circle", "star"), max_objects=10, dedupe=False)
"""Leaves two rows, and pages that the neighbour gets."""
NEIGHBOUR = Request("detect", picture(21), ("red circle",), max_objects=180, dedupe=False)
LATE = Request("detect", picture(22), ("blue ring",), max_objects=2, dedupe=False)
ENOUGH = 120
"""Objects after which the neighbour reads and writes pages of both earlier rows."""
MOST_UPLOADS = 30

Places = list[tuple[float, ...]]


class Uploads:
    """Counts the uploads of a prefill once `fail` is called; the k-th, from 0, raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self.failed = False
        for module in (engine.executor, engine.forwards):
            monkeypatch.setattr(module, "upload", self._upload)

    def fail(self, k: int) -> None:
        self._left, self.failed = k, False

    def _upload(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._left, self.failed = None, True
                raise DeviceBroke("no page-locked memory is left")
        return upload(tensor, device)


def told(listener: Listener) -> Places:
    """Corners and scores: one wrong key among many moves a score before it moves a corner."""
    found = listener.found_at_end
    return [(*corners, item.score) for corners, item in zip(places_of(found), found, strict=True)]


def alike(places: Places) -> Any:
    """But for the last bits, which differ between shapes of a batch."""
    return [pytest.approx(place, abs=1e-5) for place in places]


def beside(running: Engine, late: Request = LATE) -> tuple[Places, str | None]:
    """The neighbour's answer, and how the request ended that got its row while the neighbour ran."""
    assert submit(running, PAIR)[0].error is None
    until(partial(idle, running), "the two rows are given back")
    neighbour, _ = submit(running, NEIGHBOUR)
    until(lambda: len(neighbour.found) >= ENOUGH, "the neighbour uses the pages of both")
    other, _ = submit(running, late)
    return told(neighbour), other.error


@pytest.fixture(scope="module")
def expected(endless: Model) -> Places:
    with engine_on(endless, mode="blocking", max_batch=3) as running:
        places, error = beside(running)
    assert error is None
    return places


@pytest.mark.parametrize("placement", ["host", "device"])
@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_any_upload_of_a_prefill_may_fail(
    endless: Model, expected: Places, mode: Mode, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = Uploads(monkeypatch)
    with engine_on(endless, mode=mode, placement=placement, max_batch=3) as running:
        assert submit(running, PAIR)[0].error is None
        until(partial(idle, running), "the two rows are given back")
        neighbour, _ = submit(running, NEIGHBOUR)
        until(lambda: len(neighbour.found) >= ENOUGH, "the neighbour uses the pages of both")
        for k in range(MOST_UPLOADS):
            uploads.fail(k)
            late, _ = submit(running, LATE)
            assert late.error == ("internal" if uploads.failed else None)
            if not uploads.failed:
                break
        assert 5 < k < MOST_UPLOADS - 1, "every upload of a prefill has failed once"
        assert told(neighbour) == alike(expected)
        assert_at_rest(running)


class AtOnce(Wrapped):
    """Work is over when it has been enqueued, as far as the host can see: its errors are known at launch."""

    def compute(self, work: Work, key: Hashable = None) -> Event:
        event = super().compute(work, key)
        with suppress(DeviceBroke):
            event.wait()
        return event


def test_rows_of_a_step_known_to_have_failed_are_not_launched(
    endless: Model, expected: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads, launched = Uploads(monkeypatch), list[Sequence]()
    launch = Executor.launch

    def watched(self: Executor, slot: int, step: Step, index: Any) -> None:
        launched.extend(step.sequences)
        launch(self, slot, step, index)

    monkeypatch.setattr(Executor, "launch", watched)
    with engine_on(endless, device=AtOnce(), max_batch=3) as running:
        neighbour, _ = submit(running, NEIGHBOUR)
        until(lambda: bool(neighbour.found), "the neighbour runs")
        uploads.fail(0)
        assert submit(running, LATE)[0].error == "internal"
        assert told(neighbour) == alike(expected)
        assert_at_rest(running)
    assert sum(s.ask.request.phrases == LATE.phrases for s in launched) == 1


@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_numbers_left_in_pages_change_no_answer(endless: Model, mode: Mode) -> None:
    """Every page, the padding page too, holds NaN or infinities of whoever had it before."""
    with engine_on(endless, mode=mode, max_batch=3) as running:
        want = [places_of(submit(running, request)[0].found_at_end) for request in (PAIR, LATE)]
        for number in (float("nan"), float("inf")):
            assert_at_rest(running)
            cache = running._loop.executor._forwards._cache
            for layer in (*cache.keys, *cache.values):
                layer[:] = number
            got = [places_of(submit(running, request)[0].found_at_end) for request in (PAIR, LATE)]
            assert [sorted(places) for places in got] == [sorted(places) for places in want]


class Overflows:
    """A model whose text forward gives NaN for one picture's rows, in their pages too."""

    def __init__(self, model: Model, where: torch.Tensor) -> None:
        self._model, self._where = model, where

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode_images(self, pixels: Any) -> Any:
        encoded = self._model.encode_images(pixels)
        for one, picture_ in zip(encoded, pixels, strict=True):
            if torch.equal(picture_.data, self._where):
                one.embeds[:] = float("nan")
        return encoded


def test_a_request_that_overflows_fails_alone(endless: Model, expected: Places) -> None:
    model: Any = Overflows(endless, endless.preprocess(LATE.image).data)
    with engine_on(model, max_batch=3) as running:
        places, error = beside(running)
        assert error == "internal"
        assert places == alike(expected)
        assert_at_rest(running)
