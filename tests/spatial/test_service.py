"""The pieces of the service that need no queue: heartbeats, default models, errors nobody foresaw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar, get

from app.access.caller import ANONYMOUS
from app.admission.client import AdmissionClient, Ticket
from app.admission.errors import UnknownModel
from app.admission.failed import FailedModel
from app.admission.messages import SpatialParams, WorkerModel
from app.correlation import Correlation
from app.errors import handlers
from app.images.picture import Picture
from app.inference import Inference
from app.problems import ProblemError
from app.settings import Settings
from app.spatial.service import with_silences


async def test_silences_are_filled_and_nothing_is_lost() -> None:
    heard = asyncio.Event()

    async def pair() -> AsyncIterator[str]:
        yield "first"
        await heard.wait()
        yield "second"

    events: list[str | None] = []
    async for event in with_silences(pair(), 0.05):
        events.append(event)
        if events.count(None) == 2:
            heard.set()
    assert events[:3] == ["first", None, None]
    assert [event for event in events if event] == ["first", "second"]


async def test_leaving_early_ends_the_source() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(10)
                yield 1
        finally:
            ended.set()

    filled = with_silences(endless(), 0.01)
    assert await anext(filled) is None
    await filled.aclose()
    await asyncio.wait_for(ended.wait(), 1)


@get("/")
async def broken() -> None:
    raise RuntimeError("a secret detail")


async def test_an_error_nobody_foresaw_says_nothing_of_the_inside() -> None:
    app = Correlation(Litestar([broken], exception_handlers=handlers(), logging_config=None))
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        response = await client.get("/")
    assert response.status_code == 500
    assert response.json()["type"] == "/problems/internal"
    assert "secret" not in response.text


class Queue:
    """A queue whose one worker serves `mine`; it is known to the queue, though not alive, after `crash`."""

    def __init__(self) -> None:
        self.alive = True
        self.others: list[WorkerModel] = []
        self.asked: list[str] = []

    async def models(self, max_age_s: float) -> list[WorkerModel]:
        tasks = ["detect", "point"]
        mine = WorkerModel(name="mine", family="x", revision="0", tasks=tasks, workers=1, capacity=8, load=0)
        return [mine, *self.others] if self.alive else []

    async def known_models(self) -> set[str]:
        return {"mine"}

    async def failed_models(self) -> list[FailedModel]:
        return []

    async def submit(self, *, model: str, **_: Any) -> Ticket:
        self.asked.append(model)
        if model != "mine":
            raise UnknownModel(f"No worker serves the model {model!r}.")
        return cast(Ticket, SimpleNamespace(id="1"))


async def ask(inference: Inference, model: str | None = None) -> None:
    params = SpatialParams(phrases=["x"])
    await inference.submit(
        "detect", params, Picture(b"", 40, 100), ANONYMOUS, model=model, timeout_s=1.0, priority="batch"
    )


async def test_the_default_model_keeps_its_name_while_its_worker_starts_again() -> None:
    queue = Queue()
    inference = Inference(cast(AdmissionClient, queue), Settings(model="/models/mine"))
    await ask(inference)
    queue.alive = False
    await ask(inference)
    assert queue.asked == ["mine", "mine"]


async def test_a_task_that_a_model_lacks_names_the_models_that_have_it() -> None:
    queue = Queue()
    numbers = {"family": "x", "revision": "0", "workers": 1, "capacity": 8, "load": 0}
    queue.others = [WorkerModel(name="pointer", tasks=["point"], **numbers)]  # type: ignore[arg-type]
    inference = Inference(cast(AdmissionClient, queue), Settings(model="/models/mine"))
    with pytest.raises(ProblemError, match=r"pointer does not detect\. Models that do: mine") as refused:
        await ask(inference, "pointer")
    assert (refused.value.slug, refused.value.field) == ("unsupported-task", "model")


async def test_who_names_no_model_is_not_told_that_it_is_unknown() -> None:
    queue = Queue()
    queue.alive = False
    inference = Inference(cast(AdmissionClient, queue), Settings(model="/models/mine"))
    with pytest.raises(ProblemError) as refused:
        await ask(inference)
    assert (refused.value.slug, refused.value.field) == ("unavailable", None)
    with pytest.raises(ProblemError) as refused:
        await ask(inference, "other")
    assert (refused.value.slug, refused.value.field) == ("unknown-model", "model")
