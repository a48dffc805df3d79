"""Many images: order, errors of their own, progress, and how far ahead is read."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pointbox import AsyncClient, Client, Outcome, Progress
from pointbox.mapping import AHEAD
from tests.sdk.scripted import ANSWER, Exchange, Script, problem

CONCURRENCY = 4


class Names:
    """A step that answers each picture with its own number, late or early, and counts those it answers."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, exchange: Exchange) -> None:
        body = exchange.server.script.asked
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        sent = next(
            asked.body
            for asked in reversed(body)
            if asked.headers["x-request-id"] == exchange.headers["x-request-id"]
        )
        number = int(sent.partition(b"number ")[2][:3])
        time.sleep(0.002 * (number % 7))
        with self._lock:
            self.running -= 1
        if number == 5:
            problem("invalid-image", 422)(exchange)
        else:
            box = {**ANSWER["objects"][0], "label": f"{number}"}
            exchange.answer(200, json.loads(json.dumps({**ANSWER, "objects": [box]})))


def pictures(count: int) -> list[bytes]:
    return [b"number %03d" % number for number in range(count)]


def check(outcomes: list[Outcome], count: int) -> None:
    assert [outcome.index for outcome in outcomes] == list(range(count))
    assert [outcome.image for outcome in outcomes] == pictures(count)
    for outcome in outcomes:
        if outcome.index == 5:
            assert outcome.result is None
            with pytest.raises(type(outcome.error), match="invalid-image"):
                outcome.unwrap()
        else:
            assert outcome.unwrap()[0].label == str(outcome.index)


@pytest.mark.parametrize("door", ["plain", "asyncio"])
def test_order_errors_and_progress(script: Script, door: str) -> None:
    names = Names()
    script.steps[:] = [names]
    told: list[Progress] = []
    if door == "plain":
        with Client(script.url) as client:
            outcomes = list(client.map(pictures(40), "cat", concurrency=CONCURRENCY, progress=told.append))
    else:

        async def ask() -> list[Outcome]:
            async with AsyncClient(script.url) as client:
                asked = client.map(pictures(40), "cat", concurrency=CONCURRENCY, progress=told.append)
                return [outcome async for outcome in asked]

        outcomes = asyncio.run(ask())
    check(outcomes, 40)
    assert 1 < names.most <= CONCURRENCY
    assert [progress.done for progress in told] == list(range(1, 41))
    assert told[-1] == Progress(done=40, failed=1, total=40)


def test_images_are_read_only_a_little_ahead(script: Script) -> None:
    script.steps[:] = [Names()]
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            yield b"number 001"

    with Client(script.url) as client:
        outcomes = client.map(endless(), "cat", concurrency=CONCURRENCY)
        for taken in range(1, 30):
            next(outcomes).unwrap()
            assert read <= taken + CONCURRENCY * AHEAD
        outcomes.close()  # type: ignore[attr-defined]


async def test_images_may_come_by_and_by_and_the_rest_is_cancelled(script: Script) -> None:
    script.steps[:] = [Names()]

    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"number 001"

    async with AsyncClient(script.url) as client:
        outcomes = client.map(endless(), "cat", concurrency=CONCURRENCY)
        for _ in range(30):
            (await anext(outcomes)).unwrap()
        before = asyncio.all_tasks()
        await outcomes.aclose()  # type: ignore[attr-defined]
        assert len(before) > 1
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_an_image_that_cannot_be_read_is_an_outcome(script: Script, png: bytes) -> None:
    with Client(script.url) as client:
        one, two = client.map(["nowhere.png", png], "cat")
    assert isinstance(one.error, FileNotFoundError)
    assert two.unwrap()


def test_a_progress_callback_that_fails_is_heard(script: Script, png: bytes) -> None:
    def callback(progress: Progress) -> None:
        raise RuntimeError("no bar")

    with Client(script.url) as client, pytest.raises(RuntimeError, match="no bar"):
        list(client.map([png], "cat", progress=callback))


def test_no_images(script: Script) -> None:
    with Client(script.url) as client:
        assert list(client.map([], "cat")) == []


@pytest.mark.parametrize(
    ("images", "asked", "kind", "reason"),
    [
        ([], {"concurrency": 0}, ValueError, "concurrency must be 1 or more, not 0"),
        ([], {"concurrency": 2.5}, TypeError, "concurrency must be a whole number, not 2.5"),
        ([], {"task": "segment"}, ValueError, "task must be detect or point, not 'segment'"),
        ([], {"progress": 5}, TypeError, "progress must be a function, not 5"),
        ("a.png", {}, TypeError, "images must be a list or an iterator of pictures, not one"),
        (Path("a.png"), {}, TypeError, "not one picture"),
        (Image.new("RGB", (8, 8)), {}, TypeError, "not one picture"),
        (np.zeros((8, 8, 3), np.uint8), {}, TypeError, "not one picture"),
    ],
)
def test_what_no_map_can_mean_is_said_at_once(
    script: Script, images: Any, asked: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with Client(script.url) as client, pytest.raises(kind, match=reason):
        client.map(images, "cat", **asked)
    with pytest.raises(kind, match=reason):
        AsyncClient(script.url).map(images, "cat", **asked)
    assert not script.asked


def test_collections_of_every_kind_are_mapped(script: Script) -> None:
    stack = np.zeros((2, 8, 8, 3), np.uint8)
    with Client(script.url) as client:
        for images in (stack, tuple(stack), iter(stack)):
            assert [len(outcome.unwrap()) for outcome in client.map(images, "cat")] == [1, 1]
        phrases = (phrase for phrase in ("cat", "dog"))  # asked about every picture, not the first alone
        assert all(outcome.unwrap() for outcome in client.map(list(stack), phrases))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phrases", "said"),
    [
        ("", "must not be blank"),
        (["cat", " \n"], "must not be blank"),
        (["cat"] * 33, "At most 32 phrases can be asked for at once, not 33"),
    ],
)
def test_phrases_that_are_wrong_for_every_picture(script: Script, phrases: Any, said: str) -> None:
    with Client(script.url) as client, pytest.raises(ValueError, match=said):
        client.map(pictures(3), phrases)
    with pytest.raises(ValueError, match=said):
        AsyncClient(script.url).map(pictures(3), phrases, task="point")
    assert not script.asked
