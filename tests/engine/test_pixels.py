"""Images asked about again are not resized again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.models.base import Model, Pixels
from engine.pixels import PixelCache
from engine.request import Request
from tests.engine.asking import PATIENCE_S, ask_together, assert_at_rest, engine_on, picture
from tests.engine.faulty import Watched

IMAGE = np.zeros((2, 2, 3), np.uint8)
SIZE = 40


class Preprocess:
    """Ten floats, from any thread; counts, waits for `go`, and fails once if told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()
        self.error: Exception | None = None

    def __call__(self, image: npt.NDArray[np.uint8]) -> Pixels:
        self.calls += 1
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return Pixels(torch.zeros(10), 4)


def test_the_least_recently_used_goes_first() -> None:
    preprocess = Preprocess()
    cache = PixelCache(preprocess, 2 * SIZE)
    for key in (b"1", b"2", b"1", b"3", b"1"):  # 3 drives out 2
        cache.of(key, IMAGE)
    assert preprocess.calls == 3
    cache.of(b"2", IMAGE)
    assert preprocess.calls == 4


def test_an_image_beyond_the_capacity_is_answered_and_not_kept() -> None:
    preprocess = Preprocess()
    cache = PixelCache(preprocess, SIZE - 1)
    for _ in range(2):
        assert cache.of(b"1", IMAGE).tokens == 4
    assert preprocess.calls == 2


def test_clear_drops_all() -> None:
    preprocess = Preprocess()
    cache = PixelCache(preprocess, 10 * SIZE)
    for _ in range(2):
        cache.of(b"1", IMAGE)
        cache.clear()
    assert preprocess.calls == 2


def test_two_that_come_at_once_share_one_computation() -> None:
    preprocess = Preprocess()
    preprocess.go.clear()
    cache = PixelCache(preprocess, 10 * SIZE)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.of, b"1", IMAGE)
        assert preprocess.begun.wait(PATIENCE_S)
        second = pool.submit(cache.of, b"1", IMAGE)
        cache.clear()  # what is under way stays
        preprocess.go.set()
        assert first.result() is second.result()
    assert preprocess.calls == 1


def test_a_failure_is_told_and_not_kept() -> None:
    preprocess = Preprocess()
    preprocess.error = ValueError("not this image")
    cache = PixelCache(preprocess, 10 * SIZE)
    with pytest.raises(ValueError, match="not this image"):
        cache.of(b"1", IMAGE)
    assert cache.of(b"1", IMAGE).tokens == 4


def test_phrases_of_one_image_in_many_requests_resize_it_once(endless: Model) -> None:
    one = Request("detect", picture(1), ("red circle",), max_objects=2, dedupe=False)
    asked = [replace(one, image=picture(i % 2), phrases=(("star", "ring")[i // 4],)) for i in range(8)]
    watched = Watched(endless)
    with engine_on(watched) as engine:
        ask_together(engine, asked)
        assert watched.preparing == 2
        engine.clear_cache()
        ask_together(engine, asked)
        assert watched.preparing == 4
        assert_at_rest(engine)
