"""One model that does not start does not end the others: it is told, and tried again."""

from __future__ import annotations

import base64
import os
import signal
import sys

import pytest

from tests.admission.fakes import until
from tests.admission.services import children, command_of, fake, http, picture, service


@pytest.mark.parametrize("status", ["2", "3"])
async def test_a_model_that_cannot_start_beside_one_that_can(status, tmp_path):
    fixed = tmp_path / "fixed"
    environ = {"POINTBOX_MODEL": "tiny,bad", "FAKE_STATUS": status, "FAKE_FIXED": str(fixed)}
    with service(fake("serve-partly"), **environ) as running:
        await running.ready()
        assert "(model tiny)" in running.text
        async with http(running) as client:
            await until(lambda: _failed(client))
            told = (await client.get("/v1/models")).json()
            assert [model["name"] for model in told["models"]] == ["tiny"]
            (failed,) = told["failed"]
            assert (failed["name"], failed["state"], failed["workers"]) == ("bad", "failed", 1)
            assert "The engine worker of bad" in failed["reason"]
            assert (await client.get("/readyz")).status_code == 200
            assert (await client.post("/v1/detect", json=_body())).status_code == 200
            refused = await client.post("/v1/detect", json=_body() | {"model": "bad"})
            assert refused.status_code == 503
            assert refused.json()["detail"].startswith("The model bad cannot be started here")
            assert int(refused.headers["retry-after"]) > 1
            await until(lambda: running.text.count('"child ended"') > int(status))  # it is tried again
            fixed.touch()
            await until(lambda: _models(client, "bad", "tiny"))
            await until(lambda: _none_failed(client))  # said by `serve`, a moment after the worker
            assert (await client.post("/v1/detect", json=_body() | {"model": "bad"})).status_code == 200
        assert '"an engine worker failed"' in running.text
        assert await running.end(signal.SIGTERM) == 0


async def test_one_slot_of_a_model_that_keeps_dying(tmp_path):
    """Its sibling goes on, and so does an orderly end in the middle of the pause before the next try."""
    environ = {"POINTBOX_MODEL": "bad", "POINTBOX_WORKERS": "2", "FAKE_STATUS": "2"}
    fixed = tmp_path / "fixed"
    fixed.touch()
    with service(fake("serve-partly"), **environ, FAKE_FIXED=str(fixed)) as running:
        await running.ready()
        fixed.unlink()
        workers = [pid for pid in children(running.process.pid) if "partly" in command_of(pid)]
        os.kill(workers[0], signal.SIGKILL)
        async with http(running) as client:
            await until(lambda: _failed(client))
            (model,) = (await client.get("/v1/models")).json()["models"]
            assert (model["name"], model["workers"]) == ("bad", 1)
            assert (await client.post("/v1/detect", json=_body())).status_code == 200
        assert await running.end(signal.SIGTERM) == 0


async def test_when_no_model_can_start_the_service_ends(tmp_path):
    environ = {"POINTBOX_MODEL": "bad1,bad2", "FAKE_STATUS": "2", "FAKE_FIXED": str(tmp_path / "never")}
    with service(fake("serve-partly"), **environ) as running:
        assert await running.exit_status() == 2
        assert "pointbox: The engine worker of bad" in running.text


async def test_a_damaged_checkpoint_is_told_with_its_reason(tmp_path):
    folder = tmp_path / "damaged"
    folder.mkdir()
    folder.joinpath("config.json").write_text("{")
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--model", f"tiny,{folder}"]
    with service(command) as running:
        await running.ready()
        async with http(running) as client:
            await until(lambda: _failed(client))
            (failed,) = (await client.get("/v1/models")).json()["failed"]
        assert failed["name"] == "damaged"
        assert "config.json" in failed["reason"]
        assert await running.end(signal.SIGTERM) == 0


async def _none_failed(client):
    return not await _failed(client)


async def _failed(client):
    return (await client.get("/v1/models")).json()["failed"]


async def _models(client, *names):
    return [model["name"] for model in (await client.get("/v1/models")).json()["models"]] == list(names)


def _body():
    return {"object": "cat", "image": base64.b64encode(picture()).decode()}
