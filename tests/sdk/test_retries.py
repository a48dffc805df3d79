"""Tries, pauses, limits, and the errors that are left over: each against a server that really behaves so."""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
from email.utils import formatdate

import pytest

import pointbox
from pointbox import AsyncClient, Client
from pointbox.errors import KINDS
from tests.sdk.scripted import Exchange, Script, drop, half, ok, problem


def detect(script: Script, png: bytes, door: str, **options: float) -> pointbox.DetectResult:
    """Through the plain client or the one for asyncio."""
    if door == "plain":
        with Client(script.url, **options) as client:  # type: ignore[arg-type]
            return client.detect(png, "cat")

    async def ask() -> pointbox.DetectResult:
        async with AsyncClient(script.url, **options) as client:  # type: ignore[arg-type]
            return await client.detect(png, "cat")

    return asyncio.run(ask())


doors = pytest.mark.parametrize("door", ["plain", "asyncio"])


@doors
def test_what_may_pass_is_tried_again_under_one_key(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [
        problem("rate-limited", 429, retry_after="0"),
        problem("queue-full", 503),
        drop,
        half,
        ok,
    ]
    assert detect(script, png, door)[0].label == "cat"
    assert len(script.asked) == 5
    keys = {asked.headers["idempotency-key"] for asked in script.asked}
    assert keys == {asked.headers["x-request-id"] for asked in script.asked}
    assert len(keys) == 1
    assert len({asked.body.count(png) for asked in script.asked}) == 1


def test_each_call_has_a_key_of_its_own(script: Script, png: bytes) -> None:
    with Client(script.url) as client:
        client.detect(png, "cat")
        client.detect(png, "cat")
    assert len({asked.headers["idempotency-key"] for asked in script.asked}) == 2


@doors
def test_a_try_that_still_runs_is_waited_for(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [drop, problem("idempotency-in-flight", 409), ok]
    assert detect(script, png, door)[0].label == "cat"


@doors
def test_retry_after_is_not_undercut(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [problem("tenant-queue-full", 429, retry_after="1"), ok]
    began = time.monotonic()
    detect(script, png, door)
    assert time.monotonic() - began >= 1


def test_retry_after_may_be_a_date(script: Script, png: bytes) -> None:
    script.steps[:] = [problem("unavailable", 503, retry_after=formatdate(time.time() + 500, usegmt=True))]
    with Client(script.url, timeout=60) as client, pytest.raises(pointbox.Unavailable) as caught:
        client.detect(png, "cat")
    assert 400 < (caught.value.retry_after or 0) <= 500


@doors
def test_a_pause_that_is_too_long_is_not_begun(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [problem("rate-limited", 429, retry_after="3600")]
    with pytest.raises(pointbox.RateLimited) as caught:
        detect(script, png, door)
    assert caught.value.retry_after == 3600
    assert len(script.asked) == 1


@doors
def test_tries_come_to_an_end(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [problem("queue-full", 503, retry_after="0")]
    with pytest.raises(pointbox.QueueFull) as caught:
        detect(script, png, door, retries=2)
    assert len(script.asked) == 3
    assert caught.value.request_id == "r2"


@pytest.mark.parametrize(
    ("slug", "status"),
    [("invalid-image", 422), ("worker-crashed", 503), ("deadline-exceeded", 504), ("internal", 500)],
)
def test_what_cannot_pass_is_not_tried_again(script: Script, png: bytes, slug: str, status: int) -> None:
    script.steps[:] = [problem(slug, status), ok]
    with Client(script.url) as client, pytest.raises(pointbox.APIError) as caught:
        client.detect(png, "cat")
    assert type(caught.value) is KINDS[slug]
    assert len(script.asked) == 1


@pytest.mark.parametrize("slug", KINDS)
def test_every_problem_is_an_exception_that_tells_all(script: Script, png: bytes, slug: str) -> None:
    script.steps[:] = [problem(slug, 422, retry_after="7")]
    with Client(script.url, retries=0) as client, pytest.raises(KINDS[slug]) as caught:
        client.detect(png, "cat")
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is KINDS[slug]
    assert (error.status, error.request_id, error.retry_after) == (422, "r2", 7.0)
    assert error.problem.type == f"/problems/{slug}"
    assert str(error) == f"422 {slug}: It is {slug}. [request r2]"


def test_the_reason_why_an_image_is_invalid(script: Script, png: bytes) -> None:
    script.steps[:] = [problem("invalid-image", 422)]
    with Client(script.url) as client, pytest.raises(pointbox.InvalidImage) as caught:
        client.detect(png, "cat")
    assert caught.value.reason == "It is invalid-image."


def test_a_problem_of_a_newer_service(script: Script, png: bytes) -> None:
    script.steps[:] = [problem("too-tired", 418)]
    with Client(script.url) as client, pytest.raises(pointbox.APIError, match="418 too-tired") as caught:
        client.detect(png, "cat")
    assert type(caught.value) is pointbox.APIError


def proxy(exchange: Exchange) -> None:
    exchange.answer(502, b"<html>Bad\n Gateway</html>")


@doors
def test_a_proxy_without_its_service(script: Script, png: bytes, door: str) -> None:
    script.steps[:] = [proxy, ok]
    assert detect(script, png, door)[0].label == "cat"
    script.steps[:] = [proxy]
    with pytest.raises(pointbox.Unavailable, match="502 Bad Gateway: <html>Bad Gateway</html>"):
        detect(script, png, door, retries=0)


def test_a_redirect_says_where_to(script: Script, png: bytes) -> None:
    script.steps[:] = [lambda exchange: exchange.answer(308, b"", location="https://here.example/v1/detect")]
    with Client(script.url) as client, pytest.raises(pointbox.APIError, match=r"https://here\.example"):
        client.detect(png, "cat")


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"\xff\xfe", b"{}", b"[1]"])
def test_something_else_answers(script: Script, png: bytes, body: bytes) -> None:
    script.steps[:] = [lambda exchange: exchange.answer(200, body)]
    with Client(script.url) as client, pytest.raises(pointbox.InvalidResponse, match="URL") as caught:
        client.detect(png, "cat")
    assert caught.value.request_id == script.asked[0].headers["x-request-id"]


@doors
def test_nobody_listens(script: Script, png: bytes, door: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        script.url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(pointbox.ConnectionFailed, match="POINTBOX_URL") as caught:
            detect(script, png, door, retries=1)
    assert len(caught.value.request_id) == 32
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def silent(exchange: Exchange) -> None:
    exchange.gone()


def trickling(exchange: Exchange) -> None:
    """A body that goes on for ever, a byte at a time."""
    exchange.begin(200, content_type="application/json", transfer_encoding="chunked")
    while True:
        exchange.piece(b" ")
        time.sleep(0.02)


@doors
@pytest.mark.parametrize("step", [silent, trickling])
def test_no_call_lasts_for_ever(script: Script, png: bytes, door: str, step: object) -> None:
    script.steps[:] = [step]  # type: ignore[list-item]
    with pytest.raises(pointbox.CallTimeout, match="1 seconds") as caught:
        detect(script, png, door, timeout=1.0)
    assert isinstance(caught.value, TimeoutError)
    assert len(script.asked) <= 1  # it may not even have come to asking
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_deadline_of_the_service_is_waited_for(script: Script, png: bytes) -> None:
    def late(exchange: Exchange) -> None:
        time.sleep(0.6)
        ok(exchange)

    script.steps[:] = [late]
    with Client(script.url, timeout=0.3) as client:
        assert client.detect(png, "cat", timeout_s=5)[0].label == "cat"
