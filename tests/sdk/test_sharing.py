"""One client among threads, forked processes and event loops."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import pointbox
from pointbox import AsyncClient, Client
from tests.sdk.scripted import Script


def test_threads_share_a_client(script: Script, png: bytes) -> None:
    with Client(script.url) as client, ThreadPoolExecutor(16) as pool:
        labels = [result[0].label for result in pool.map(lambda _: client.detect(png, "cat"), range(200))]
    assert labels == ["cat"] * 200
    assert len({asked.headers["idempotency-key"] for asked in script.asked}) == 200
    assert len(script.connections) <= 16  # and the connections are kept


def test_calls_in_a_row_use_one_connection(script: Script, png: bytes) -> None:
    with Client(script.url) as client:
        for _ in range(5):
            client.detect(png, "cat")
    assert len(script.connections) == 1


def _ask(client: Client, png: bytes, times: int) -> None:
    assert all(client.detect(png, "cat")[0].label == "cat" for _ in range(times))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_leaves_the_connections_of_its_parent_alone(script: Script, png: bytes) -> None:
    fork = multiprocessing.get_context("fork")
    with Client(script.url) as client:
        client.detect(png, "cat")
        children = [fork.Process(target=_ask, args=(client, png, 20)) for _ in range(4)]
        for child in children:
            child.start()
        _ask(client, png, 20)
        for child in children:
            child.join(60)
        _ask(client, png, 1)
    assert [child.exitcode for child in children] == [0] * 4
    assert len(script.connections) == 5
    keys = {asked.headers["idempotency-key"] for asked in script.asked}
    assert len(keys) == len(script.asked) == 102


def test_a_client_can_be_sent_to_another_process(script: Script, png: bytes) -> None:
    with Client(script.url, "a-key", model="large") as client:
        client.detect(png, "cat")
        with pickle.loads(pickle.dumps(client)) as other:
            assert other.detect(png, "cat")
            assert other.images.upload
    assert len(script.connections) == 2
    assert script.asked[1].headers["authorization"] == "Bearer a-key"
    again = pickle.loads(pickle.dumps(AsyncClient(script.url)))
    assert asyncio.run(again.detect(png, "cat"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_other_threads_ask(script: Script, png: bytes) -> None:
    with Client(script.url) as client, ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(_ask, client, png, 50) for _ in range(4)]
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    _ask(client, png, 3)
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
        for future in busy:
            future.result(60)


def test_an_async_client_outlives_its_event_loop(script: Script, png: bytes) -> None:
    client = AsyncClient(script.url)
    for _ in range(3):
        assert asyncio.run(client.detect(png, "cat"))[0].label == "cat"
    assert len(client._sender._pools) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_proxy_is_for_others(
    script: Script, png: bytes, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        url = script.url.replace("127.0.0.1", host)
        with Client(url, retries=0) as client:
            assert client.detect(png, "cat")
        assert asyncio.run(AsyncClient(url, retries=0).detect(png, "cat"))
        with Client("http://service.example", retries=0) as client, pytest.raises(pointbox.ConnectionFailed):
            client.detect(png, "cat")


async def test_many_tasks_share_an_async_client(script: Script, png: bytes) -> None:
    async with AsyncClient(script.url) as client:
        results = await asyncio.gather(*(client.detect(png, "cat") for _ in range(100)))
    assert [result[0].label for result in results] == ["cat"] * 100


async def test_a_cancelled_call_hangs_up(script: Script, png: bytes) -> None:
    arrived, left = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(exchange) -> None:  # type: ignore[no-untyped-def]
        loop.call_soon_threadsafe(arrived.set)
        if exchange.gone():
            loop.call_soon_threadsafe(left.set)

    script.steps[:] = [wait]
    async with AsyncClient(script.url) as client:
        task = asyncio.create_task(client.detect(png, "cat"))
        await asyncio.wait_for(arrived.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(left.wait(), 60)
    assert len(script.asked) == 1
