"""`/metrics`: what an operator sees of the queue, the workers and the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.admission.client import AdmissionClient, Limits
from app.admission.errors import QueueFull
from app.settings import Settings
from tests.access.serving import Api, serving
from tests.admission.fakes import Work, answer, ask, until


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    async with serving(settings) as running:
        yield running


def read(response: httpx.Response) -> dict[str, float]:
    """`name{label values}` -> value."""
    assert response.status_code == 200
    kind, _, charset = response.headers["content-type"].partition("; charset=")
    assert kind.startswith("text/plain; version=")
    assert charset == "utf-8"
    return {
        f"{sample.name}{{{','.join(value for label, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_the_queue_and_its_worker(
    api: Api, client: AdmissionClient, start_work: Callable[..., Awaitable[Work]]
) -> None:
    work = await start_work(max_batch=1)
    tickets = [await ask(client, f"hold {n}", tenant=f"t{n % 2}") for n in range(8)]
    await until(lambda: len(work.engine.runs) == 3)
    limited = await AdmissionClient.connect(
        work.feeder._settings.redis_url or "", work.feeder._settings.namespace, Limits(depth=1)
    )
    with pytest.raises(QueueFull):
        await ask(limited, "one too many")
    await limited.close()
    seen = read(await api.client.get("/metrics"))
    assert seen["pointbox_queue_up{}"] == 1
    assert seen["pointbox_queue_waiting{tiny,interactive}"] == 5
    assert seen["pointbox_queue_taken{tiny,interactive}"] == 3
    assert seen["pointbox_queue_oldest_seconds{tiny,interactive}"] > 0
    assert seen["pointbox_queue_waiting{tiny,batch}"] == 0
    assert seen["pointbox_requests_admitted_total{interactive}"] == 8
    assert seen["pointbox_requests_refused_total{queue-full}"] == 1
    assert seen[f"pointbox_worker_phrases_max{{tiny,{work.feeder.id}}}"] == 3
    await tickets[-1].cancel()
    work.engine.release.set()
    for ticket in tickets[:-1]:
        await answer(ticket)
    seen = read(await api.client.get("/metrics"))
    assert seen["pointbox_requests_ended_total{completed}"] == 7
    assert seen["pointbox_requests_ended_total{cancelled}"] == 1
    assert seen["pointbox_queue_oldest_seconds{tiny,interactive}"] == 0


async def test_the_figures_of_an_engine(api: Api, start_work: Callable[..., Awaitable[Work]]) -> None:
    work = await start_work()
    name = f"pointbox_engine_rows_max{{tiny,{work.feeder.id}}}"

    async def published() -> bool:
        return name in read(await api.client.get("/metrics"))

    await until(published)
    seen = read(await api.client.get("/metrics"))
    who = f"tiny,{work.feeder.id}"
    for figure in (
        "steps_total",
        "prefill_tokens_total",
        "decode_tokens_total",
        "idle_seconds_total",
        "device_seconds_total",
    ):
        assert f"pointbox_engine_{figure}{{{who}}}" in seen
    assert {f"pointbox_engine_pages{{tiny,{state},{work.feeder.id}}}" for state in ("free", "held")} <= set(
        seen
    )


async def test_routes_are_counted_by_their_pattern(api: Api) -> None:
    headers = {"content-type": "image/png"}
    for path in ("/v1/detect?object=x", "/no/such/route/12345"):
        assert (await api.client.post(path, content=b"no image", headers=headers)).status_code >= 400
    seen = read(await api.client.get("/metrics"))
    assert seen["pointbox_http_request_seconds_count{POST,/v1/detect,415}"] == 1
    assert seen["pointbox_http_request_seconds_count{POST,(none),404}"] == 1
    assert seen["pointbox_http_requests_open{}"] == 1
    assert not any("12345" in name for name in seen)


async def test_without_redis_the_routes_are_still_shown() -> None:
    async with serving(Settings(redis_url="redis://127.0.0.1:1")) as api:
        seen = read(await api.client.get("/metrics"))
    assert seen["pointbox_queue_up{}"] == 0


async def test_with_keys_it_needs_the_scope(settings: Settings, tmp_path: Path) -> None:
    async with serving(replace(settings, auth="on", data_dir=str(tmp_path))) as api:
        assert (await api.client.get("/metrics")).status_code == 401
        assert (await api.client.get("/metrics", headers=await api.key())).status_code == 403
        allowed = await api.key(tenant="ops", scopes=("metrics",))
        shown = await api.client.get("/metrics", headers=allowed)
        seen = read(shown)
        assert seen["pointbox_http_request_seconds_count{GET,/metrics,401}"] == 1
        assert seen["pointbox_http_request_seconds_count{GET,/metrics,403}"] == 1
        assert "ops" not in shown.text
