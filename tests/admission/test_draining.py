"""After SIGTERM: the port answers, open requests get their time, and then the problem that ended them."""

from __future__ import annotations

import asyncio
import base64
import signal

import httpx
import pytest

from tests.admission.fakes import until
from tests.admission.services import fake, http, picture, service
from tests.admission.test_serve import wait_for_load
from tests.app.running import serving

DETAIL = "The service is shutting down; send the request again."


async def test_what_is_open_after_the_drain_time_is_told_so():
    with service(fake("serve"), POINTBOX_DRAIN_S="4") as running:
        await running.ready()
        async with http(running) as client:
            plain = asyncio.create_task(client.post("/v1/detect", json=_body("slow one")))
            stream = asyncio.create_task(client.post("/v1/detect", json=_body("slow two", stream=True)))
            await wait_for_load(client, 2)
            running.process.send_signal(signal.SIGTERM)
            await until(lambda: _refused(running))
            async with http(running) as other:
                assert (await other.get("/livez")).status_code == 200
                refused = await other.post("/v1/detect", json=_body("cat"))
            _is_shutting_down(refused)
            assert refused.headers["connection"] == "close"
            assert not plain.done()
            assert not stream.done()
            _is_shutting_down(await plain)
            events = (await stream).text.split("\n\n")
        assert events[0].startswith("event: object\n")
        assert events[-2].startswith("event: error\n")
        assert DETAIL in events[-2]
        assert await running.exit_status() == 0


async def test_a_second_signal_ends_the_api_at_once():
    with service(fake("serve"), POINTBOX_DRAIN_S="300") as running:
        await running.ready()
        async with http(running) as client:
            plain = asyncio.create_task(client.post("/v1/detect", json=_body("slow")))
            await wait_for_load(client, 1)
            running.process.send_signal(signal.SIGTERM)
            await until(lambda: _refused(running))
            running.process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.TransportError):
                (await plain).raise_for_status()
            await running.exit_status()


async def test_a_second_signal_to_an_api_of_its_own(settings, tmp_path):
    """It ends what is open with words, though it had five minutes."""
    environ = {**settings.to_environ(), "POINTBOX_DRAIN_S": "300"}
    with service(fake("worker"), **environ), serving(tmp_path / "log", "api", **environ) as api:
        async with httpx.AsyncClient(base_url=api.url, timeout=60) as client:
            plain = asyncio.create_task(client.post("/v1/detect", json=_body("slow")))
            await wait_for_load(client, 1)
            api.process.send_signal(signal.SIGTERM)
            await until(lambda: _refused(api))
            api.process.send_signal(signal.SIGTERM)
            _is_shutting_down(await plain)
            assert await asyncio.to_thread(api.process.wait, 60) == 0


def _is_shutting_down(response):
    assert (response.status_code, response.json()["type"]) == (503, "/problems/unavailable")
    assert response.json()["detail"] == DETAIL
    assert response.headers["content-type"] == "application/problem+json"
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["x-request-id"] == response.json()["request_id"]


async def _refused(running):
    """A caller with a new connection is sent away, not refused by the kernel."""
    async with httpx.AsyncClient(base_url=running.url, trust_env=False) as client:
        return (await client.get("/readyz")).status_code == 503


def _body(phrase, **more):
    return {"object": phrase, "image": base64.b64encode(picture()).decode(), "timeout_s": 60, **more}
