"""Streams: what comes in pieces, what breaks, what is hung up."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pointbox
from pointbox import AsyncClient, Client, Detection
from pointbox.events import Event, EventParser
from tests.sdk.scripted import ANSWER, Exchange, Script, drop, event, events, ok, problem

BOX = ANSWER["objects"][0]
OTHER = {**BOX, "label": "dog", "phrase_index": 1}
DONE = event("done", {**ANSWER, "objects": [BOX, OTHER]})
PIECES = [event("object", BOX), b": keep-alive\n\n", event("object", OTHER), DONE]


def found(
    script: Script, image: Any, door: str, **settings: Any
) -> tuple[list[Detection], pointbox.DetectResult]:
    """What was streamed, and the result at the end."""
    if door == "plain":
        with Client(script.url, **settings) as client:
            stream = client.detect(image, ["cat", "dog"], stream=True)
            return list(stream), stream.result()

    async def ask() -> tuple[list[Detection], pointbox.DetectResult]:
        async with AsyncClient(script.url, **settings) as client:
            stream = await client.detect(image, ["cat", "dog"], stream=True)
            return [box async for box in stream], await stream.result()

    return asyncio.run(ask())


doors = pytest.mark.parametrize("door", ["plain", "asyncio"])


def by_byte(content: bytes) -> list[bytes]:
    return [content[at : at + 1] for at in range(len(content))]


@doors
@pytest.mark.parametrize("cut", [list, lambda pieces: [b"".join(pieces)], lambda p: by_byte(b"".join(p))])
def test_objects_then_the_result(
    script: Script, png: bytes, door: str, cut: Callable[[Iterable[bytes]], list[bytes]]
) -> None:
    script.steps[:] = [events(*cut(PIECES))]
    boxes, result = found(script, png, door)
    assert [box.label for box in boxes] == ["cat", "dog"]
    assert [box.label for box in result] == ["cat", "dog"]
    assert boxes[0].pixels == pytest.approx((6.4, 9.6, 19.2, 19.2))  # of the 64 x 48 pixels that were sent
    assert result.draw().size == (64, 48)
    assert b'name="stream"\r\n\r\ntrue\r\n' in script.asked[0].body


@doors
def test_the_size_of_an_image_that_is_elsewhere_is_known_at_the_end(script: Script, door: str) -> None:
    script.steps[:] = [events(*PIECES)]
    boxes, result = found(script, "https://example.org/a.png", door)
    with pytest.raises(ValueError, match="not known before the stream has ended"):
        _ = boxes[0].pixels
    assert result[0].pixels == pytest.approx((64, 96, 192, 192))


@doors
def test_what_came_before_a_break_is_not_lost_and_the_break_is_told(
    script: Script, png: bytes, door: str
) -> None:
    script.steps[:] = [events(event("object", BOX), ended=False)]
    got: list[Detection] = []

    async def ask() -> None:
        async with AsyncClient(script.url) as client:
            stream = await client.detect(png, "cat", stream=True)
            got.append(await anext(stream))
            await anext(stream)

    def ask_plainly() -> None:
        with Client(script.url) as client:
            got.extend(client.detect(png, "cat", stream=True))

    with pytest.raises(pointbox.ConnectionFailed):
        ask_plainly() if door == "plain" else asyncio.run(ask())
    assert [box.label for box in got] == ["cat"]
    assert len(script.asked) == 1


@doors
def test_a_stream_that_ends_too_early(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [events(event("object", BOX))]
    with pytest.raises(pointbox.ConnectionFailed, match="ended before the answer did"):
        found(script, png, door)


@doors
def test_an_error_in_the_stream_is_the_exception_that_it_names(script: Script, png: bytes, door: str) -> None:
    document = {"type": "/problems/worker-crashed", "status": 503, "detail": "Gone.", "request_id": "r3"}
    script.steps[:] = [events(event("object", BOX) + event("error", document))]
    with pytest.raises(pointbox.WorkerCrashed, match="503 worker-crashed") as caught:
        found(script, png, door)
    assert caught.value.request_id == "r3"


@doors
def test_before_it_begins_a_stream_is_tried_again(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [problem("queue-full", 503, retry_after="0"), drop, events(*PIECES)]
    boxes, _ = found(script, png, door)
    assert len(boxes) == 2
    assert len({asked.headers["idempotency-key"] for asked in script.asked}) == 1


@doors
def test_no_stream_at_all(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [ok]
    with pytest.raises(pointbox.ConnectionFailed, match="ended before the answer did"):
        found(script, png, door)


@doors
@pytest.mark.parametrize("closed", [True, False])
def test_hanging_up_is_noticed_by_the_service(script: Script, png: bytes, door: str, closed: bool) -> None:
    """Also when the caller just lets go of the stream."""
    left = threading.Event()

    def endless(exchange: Exchange) -> None:
        exchange.begin(200, content_type="text/event-stream", transfer_encoding="chunked")
        exchange.piece(event("object", BOX))
        if exchange.gone():
            left.set()

    script.steps[:] = [endless]

    async def ask(client: AsyncClient) -> None:
        if closed:
            async with await client.detect(png, "cat", stream=True) as stream:
                assert (await anext(stream)).label == "cat"
        else:
            async for _ in await client.detect(png, "cat", stream=True):
                break
        assert await asyncio.to_thread(left.wait, 60)

    if door == "asyncio":
        asyncio.run(ask(AsyncClient(script.url)))
        return
    client = Client(script.url)
    if closed:
        with client.detect(png, "cat", stream=True) as stream:
            assert next(stream).label == "cat"
    else:
        for _ in client.detect(png, "cat", stream=True):
            break
    assert left.wait(60)


def trickling_refusal(exchange: Exchange) -> None:
    exchange.begin(422, content_type="application/problem+json", transfer_encoding="chunked")
    while True:
        exchange.piece(b" ")
        time.sleep(0.02)


def only_comments(exchange: Exchange) -> None:
    exchange.begin(200, content_type="text/event-stream", transfer_encoding="chunked")
    while True:
        exchange.piece(b": keep-alive\n\n")
        time.sleep(0.02)


@doors
@pytest.mark.parametrize("step", [trickling_refusal, only_comments])
def test_no_stream_lasts_for_ever(
    script: Script, png: bytes, door: str, step: Callable[[Exchange], None]
) -> None:
    script.steps[:] = [step]

    with pytest.raises(pointbox.CallTimeout):
        found(script, png, door, timeout=1.0)


def test_a_closed_stream_has_no_result(script: Script, png: bytes) -> None:
    script.steps[:] = [events(*PIECES)]
    with Client(script.url) as client:
        stream = client.detect(png, "cat", stream=True)
        stream.close()
        with pytest.raises(pointbox.PointboxError):
            stream.result()


def first_then_silence(left: threading.Event) -> Callable[[Exchange], None]:
    """A step that streams one object, then waits until the caller has hung up."""

    def step(exchange: Exchange) -> None:
        exchange.begin(200, content_type="text/event-stream", transfer_encoding="chunked")
        exchange.piece(event("object", BOX))
        if exchange.gone():
            left.set()

    return step


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("waiting", [False, True])
def test_a_client_is_closed_while_a_stream_is_open(script: Script, png: bytes, waiting: bool) -> None:
    """Its reader may be between two pieces, or wait for one in another thread."""
    left = threading.Event()
    script.steps[:] = [first_then_silence(left)]
    with ThreadPoolExecutor(1) as pool:
        client = Client(script.url)
        stream = client.detect(png, "cat", stream=True)
        assert next(stream).label == "cat"
        rest = pool.submit(next, stream) if waiting else None
        time.sleep(0.2 if waiting else 0)  # until it waits; sooner, it would be between two pieces
        client.close()
        with pytest.raises(pointbox.ConnectionFailed, match="client was closed"):
            next(stream) if rest is None else rest.result(20)
        with pytest.raises(pointbox.ConnectionFailed):
            stream.result()
        with pytest.raises(pointbox.ConnectionFailed):
            list(stream)
    assert left.wait(20)
    stream.close()
    del stream
    gc.collect()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("waiting", [False, True])
def test_an_asyncio_client_is_closed_while_a_stream_is_open(
    script: Script, png: bytes, waiting: bool
) -> None:
    left = threading.Event()
    script.steps[:] = [first_then_silence(left)]

    async def ask() -> None:
        async with AsyncClient(script.url) as client:
            stream = await client.detect(png, "cat", stream=True)
            assert (await anext(stream)).label == "cat"
            rest = asyncio.ensure_future(stream.result()) if waiting else None
            await asyncio.sleep(0.2 if waiting else 0)
        with pytest.raises(pointbox.ConnectionFailed, match="client was closed"):
            async with asyncio.timeout(20):
                await (stream.result() if rest is None else rest)
        with pytest.raises(pointbox.ConnectionFailed):
            await stream.result()
        await stream.close()
        assert await asyncio.to_thread(left.wait, 20)

    asyncio.run(ask(), debug=True)
    gc.collect()


@doors
def test_an_answer_that_is_complete_outlives_its_client(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [events(*PIECES)]

    async def ask() -> pointbox.DetectResult:
        async with AsyncClient(script.url) as client:
            stream = await client.detect(png, ["cat", "dog"], stream=True)
            await stream.result()
        return await stream.result()

    if door == "asyncio":
        assert len(asyncio.run(ask())) == 2
        return
    with Client(script.url) as client:
        stream = client.detect(png, ["cat", "dog"], stream=True)
        stream.result()
    assert len(stream.result()) == 2


def test_what_the_caller_does_in_between_does_not_count(script: Script, png: bytes) -> None:
    script.steps[:] = [events(*PIECES)]
    with Client(script.url, timeout=2.0) as client:
        stream = client.detect(png, "cat", stream=True)
        assert sum(not threading.Event().wait(1.1) for _ in stream) == 2


TEXT = (
    "\ufeffevent: a\r\ndata: one\r\ndata:two\r\n\r\n: a comment\ndata: ü\n\nevent: nothing\n\n"
    "id: 7\nretry: 10\nevent:b\rdata\r\rdata: {}\n\ndata: not ended"
).encode()
EVENTS = [Event("a", "one\ntwo"), Event("message", "ü"), Event("b", ""), Event("message", "{}")]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_events_however_they_are_cut(cuts: list[int]) -> None:
    parser = EventParser()
    edges = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[a:b] for a, b in itertools.pairwise(edges)]
    assert [event for piece in pieces for event in parser.feed(piece)] == EVENTS
