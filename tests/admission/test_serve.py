"""The supervisor: it starts, restarts and ends its children, and none outlives it."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from app.admission.messages import Completed
from tests.admission.fakes import answer, ask, until
from tests.admission.services import (
    START_S,
    children,
    detect,
    fake,
    http,
    picture,
    service,
    wait_gone,
)


@pytest.fixture
def gate(tmp_path):
    """A file that, once it exists, lets every "hold" go on."""
    return tmp_path / "gate"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_start_answer_and_an_orderly_end(number):
    with service(fake("serve")) as running:
        await running.ready()
        pids = children(running.process.pid)
        assert len(pids) == 3
        async with http(running) as client:
            answer = await detect(client, "cat")
            assert (await client.get("/readyz")).status_code == 200
        assert (answer.status_code, len(answer.json()["objects"])) == (200, 3)
        assert await running.end(number) == 0
        wait_gone(pids)


async def test_a_misspelt_variable_is_told_once():
    with service(fake("serve"), POINTBOX_PROT="8000") as running:
        await running.ready()
        assert running.text.count("POINTBOX_PROT") == 1


async def test_several_models_and_workers_on_one_machine(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    with service(fake("serve"), POINTBOX_MODEL=f"{folder},tiny", POINTBOX_WORKERS="2") as running:
        await running.ready()
        assert "(model mine, tiny)" in running.text, "callers need the name, not the folder"
        async with http(running) as client:
            models = (await client.get("/v1/models")).json()["models"]
            assert [(model["name"], model["workers"]) for model in models] == [("mine", 2), ("tiny", 2)]
            body = {"object": "cat", "image": base64.b64encode(picture()).decode()}
            answers = [await client.post("/v1/detect", json=body | more) for more in ({}, {"model": "tiny"})]
        assert [answer.json()["model"] for answer in answers] == ["mine", "tiny"]
        assert await running.end(signal.SIGTERM) == 0


async def test_sigterm_under_load_answers_everybody(gate):
    with service(fake("serve"), FAKE_GATE=str(gate)) as running:
        await running.ready()
        async with http(running) as client:
            asked = [asyncio.create_task(detect(client, f"hold {n}", picture(n))) for n in range(20)]
            await wait_for_load(client, 20)
            running.process.send_signal(signal.SIGTERM)
            gate.touch()
            assert await running.exit_status() == 0
            answers = await asyncio.gather(*asked)
        assert [answer.status_code for answer in answers] == [200] * 20
        labels = {answer.json()["phrases"][0]["object"] for answer in answers}
        assert labels == {f"hold {n}" for n in range(20)}


async def test_kill_9_of_the_supervisor_leaves_no_process():
    with service(fake("serve")) as running:
        await running.ready()
        pids = children(running.process.pid)
        assert len(pids) == 3
        running.process.kill()
        wait_gone(pids)


async def test_kill_9_of_the_worker_and_everybody_is_answered_once(gate):
    with service(fake("serve"), FAKE_GATE=str(gate)) as running:
        await running.ready()
        worker = running.child("fake_service.py worker")
        async with http(running) as client:
            asked = [asyncio.create_task(detect(client, f"hold {n}", picture(n))) for n in range(20)]
            await wait_for_load(client, 20)
            os.kill(worker, signal.SIGKILL)
            gate.touch()
            answers = await asyncio.gather(*asked)
        assert [answer.status_code for answer in answers] == [200] * 20
        assert all(len(answer.json()["objects"]) == 3 for answer in answers)


@pytest.mark.parametrize("part", ["fake_service.py worker", "app.cli api"])
async def test_a_child_that_is_stopped_is_replaced_and_everybody_is_answered(part):
    with service(fake("serve"), POINTBOX_STALL_S="2") as running:
        await running.ready()
        stopped = running.child(part)
        os.kill(stopped, signal.SIGSTOP)
        async with http(running) as client:
            asked = asyncio.create_task(detect(client, "cat")) if "worker" in part else None
            await running.new_child(part, stopped)
            wait_gone([stopped])
            await until(lambda: _answers(client))
            if asked is not None:
                assert (await asked).status_code == 200
        assert "child does not answer and is killed" in running.text
        assert await running.end(signal.SIGTERM) == 0


async def test_while_valkey_is_away_no_worker_is_blamed():
    with service(fake("serve"), POINTBOX_STALL_S="2") as running:
        await running.ready()
        worker, valkey = running.child("fake_service.py worker"), running.child("valkey-server")
        os.kill(valkey, signal.SIGSTOP)
        replaced = await running.new_child("valkey-server", valkey)
        assert replaced != valkey
        async with http(running) as client:
            await until(lambda: _answers(client))
        assert running.child("fake_service.py worker") == worker


async def test_a_request_that_kills_each_worker_gets_503_and_its_neighbours_200(gate):
    with service(fake("serve"), FAKE_GATE=str(gate)) as running:
        await running.ready()
        async with http(running) as client:
            asked = [asyncio.create_task(detect(client, f"hold {n}", picture(n))) for n in range(2)]
            await wait_for_load(client, 2)
            poison = await detect(client, "die")
            assert poison.status_code == 503
            assert poison.json()["type"] == "/problems/worker-crashed"
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200, 200]
            assert (await detect(client, "cat")).status_code == 200


async def test_valkey_dies_and_the_service_recovers():
    with service(fake("serve")) as running:
        await running.ready()
        valkey = running.child("valkey-server")
        async with http(running) as client:
            waiting = asyncio.create_task(detect(client, "slow"))
            await wait_for_load(client, 1)
            os.kill(valkey, signal.SIGKILL)
            lost = await waiting
            assert lost.status_code == 503
            assert lost.json()["type"] == "/problems/unavailable"
            async with asyncio.timeout(START_S):
                while (await detect(client, "cat")).status_code != 200:
                    await asyncio.sleep(0.05)
        assert await running.end(signal.SIGTERM) == 0


async def test_a_worker_that_never_gets_ready_ends_the_service():
    with service(fake("serve-broken")) as running:
        assert await running.exit_status() == 1
        assert (
            "pointbox: The engine worker ended 5 times without ever being ready; giving up." in running.text
        )


async def test_a_worker_that_says_the_settings_are_wrong_ends_the_service_at_once():
    with service(fake("serve-misconfigured")) as running:
        assert await running.exit_status() == 2
        assert "pointbox: The engine worker cannot start." in running.text


@pytest.mark.parametrize("command", ["serve", "api"])
def test_a_port_in_use_is_one_clear_line(command):
    environ = {**os.environ, "POINTBOX_REDIS_URL": "redis://127.0.0.1:1"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = [sys.executable, "-m", "app.cli", command, "--port", str(port)]
        ended = subprocess.run(
            line, capture_output=True, text=True, timeout=START_S, check=False, env=environ
        )
    assert ended.returncode == 1
    assert ended.stderr.strip() == f"pointbox: Cannot listen on 127.0.0.1:{port}: Address already in use."


async def wait_for_load(client, load):
    """Until the worker has this many phrases in flight, as its heartbeat tells."""
    async with asyncio.timeout(START_S):
        while True:
            models = (await client.get("/v1/models")).json()["models"]
            if models and models[0]["load"] >= load:
                return
            await asyncio.sleep(0.05)


async def test_sigterm_drains_a_worker(settings, client, gate):
    environ = {**settings.to_environ(), "FAKE_GATE": str(gate)}
    with service(fake("worker"), **environ) as worker:
        await until(lambda: _is_ready(client))
        tickets = [await ask(client, f"hold {n}") for n in range(5)]
        for ticket in tickets:
            await anext(ticket.events())
        worker.process.send_signal(signal.SIGTERM)
        gate.touch()
        assert await worker.exit_status() == 0
        answers = [await answer(ticket) for ticket in tickets]
    assert all(isinstance(done, Completed) for done in answers)


async def _answers(client):
    try:
        return (await detect(client, "cat")).status_code == 200
    except httpx.TransportError:
        return False


async def _is_ready(client):
    return (await client.ready())[0]
