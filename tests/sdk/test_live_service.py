"""What a service does beyond answering: images that stay, keys, limits, answers that are given once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pointbox
from pointbox import AsyncClient, Client
from tests.sdk.conftest import Live
from tests.sdk.cutting import Cut, wire
from tests.sdk.scripted import Exchange, Script

SCENE = "examples/scene.jpg"


def test_an_image_that_stays(client: Client) -> None:
    expected = client.detect(SCENE, "red circle")
    handle = client.images.upload(SCENE)
    assert (handle.width, handle.height) == (800, 600)
    assert handle.expires_in_s > 0
    result = client.detect(handle, "red circle")
    assert result.objects == expected.objects
    assert result.image.id == handle.image_id
    assert client.point(handle, "red circle")
    with client.detect(handle, ["red circle", "star"], stream=True) as stream:
        assert next(stream).pixels.x_max <= 800
    assert result.draw(SCENE).size == (800, 600)
    client.images.delete(handle)
    with pytest.raises(pointbox.NotFound) as caught:
        client.detect(handle, "red circle")
    assert caught.value.field == "image_id"
    client.images.delete(handle.image_id)


async def test_an_image_that_stays_from_asyncio(live: Live) -> None:
    async with AsyncClient(live.url, live.key) as client:
        handle = await client.images.upload(SCENE)
        assert await client.detect(handle, "red circle")
        await client.images.delete(handle)


def test_an_image_behind_a_url(client: Client, script: Script) -> None:
    def picture(exchange: Exchange) -> None:
        exchange.answer(200, Path(SCENE).read_bytes(), content_type="image/jpeg")

    script.steps[:] = [picture]
    expected = client.detect(SCENE, "red circle")
    url = f"{script.url}/scene.jpg"
    assert client.detect(url, "red circle").objects == expected.objects
    assert client.detect(client.images.upload(url), "red circle").objects == expected.objects
    with pytest.raises(pointbox.InvalidRequest, match="not on the server's list"):
        client.detect("https://example.org/scene.jpg", "red circle")


def test_an_id_comes_back(client: Client) -> None:
    result = client.detect(SCENE, "red circle", id="my own", priority="batch")
    assert result.id == "my own"
    assert '"id":"my own"' in result.to_json()


@pytest.mark.parametrize("key", [None, "pb_wrong"])
def test_without_a_key(live: Live, key: str | None) -> None:
    with Client(live.url, key) as client, pytest.raises(pointbox.Unauthenticated):
        client.detect(SCENE, "red circle")


def test_too_many_requests_of_a_key(live: Live) -> None:
    command = [sys.executable, "-m", "app.cli", "keys", "create", "--tenant", "slow", "--rate", "1"]
    environ = {**os.environ, **live.environ}
    made = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    key = next(word for word in made.stdout.split() if word.startswith("pb_"))
    with Client(live.url, key, retries=0) as client:
        outcomes = list(client.map([SCENE] * 5, "red circle", concurrency=1))
    assert outcomes[0].unwrap()
    with pytest.raises(pointbox.RateLimited) as caught:
        outcomes[-1].unwrap()
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > 0


def test_an_answer_that_is_lost_is_given_again_and_not_made_again(live: Live) -> None:
    with wire(live.url) as lossy, Client(lossy.url, live.key) as client:
        lossy.cuts[:] = ["answer"]
        assert len(client.detect(SCENE, "red circle")) == 1
        assert lossy.answers.count(b"HTTP/1.1 200 OK") == 2
        assert lossy.answers.count(b"idempotent-replayed: true") == 1


def test_a_stream_whose_beginning_is_lost(live: Live) -> None:
    with wire(live.url) as lossy, Client(lossy.url, live.key, retries=10) as client:
        lossy.cuts[:] = ["answer"]
        assert len(client.detect(SCENE, "red circle", stream=True).result()) == 1


@pytest.mark.parametrize("cuts", [["request"], ["request", "answer", "request"]])
def test_connections_that_break_while_the_service_works(live: Live, cuts: list[Cut]) -> None:
    with wire(live.url) as lossy, Client(lossy.url, live.key, retries=10) as client:
        lossy.cuts[:] = cuts
        assert len(client.detect(SCENE, "red circle")) == 1
        assert not lossy.cuts
