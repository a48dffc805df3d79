"""A route that only says what it understood, and how its refusals are read."""

from __future__ import annotations

import base64
from typing import Any, cast

import httpx
from litestar import Litestar, Request, post

from app.correlation import Correlation
from app.errors import handlers
from app.images.service import ImageService
from app.images.store import ImageStore
from app.inference import Inference
from app.intake.addresses import Policy
from app.intake.fetch import Fetcher
from app.settings import Settings
from app.spatial.requests import read_request
from tests.intake.pictures import encode, plain

LIMIT = 200_000
PICTURE = encode(plain(), "JPEG")
IMAGE = base64.b64encode(PICTURE).decode()
URI = f"data:image/jpeg;base64,{IMAGE}"


@post("/", status_code=200)
async def understood(request: Request[Any, Any, Any]) -> dict[str, Any]:
    asked = await read_request(request, Settings(max_timeout_s=100, default_timeout_s=60))
    images = ImageService(cast(ImageStore, None), Fetcher(Policy(), LIMIT, 1.0), cast(Inference, None))
    picture = await images.picture(asked.source, "anonymous", asked.remaining_s)
    params = asked.params(picture)
    return {
        "phrases": params.phrases,
        "max_objects": params.max_objects,
        "region": params.region,
        "min_score": params.min_score,
        "dedupe": params.dedupe,
        "adapter": params.adapter,
        "priority": asked.priority,
        "id": asked.id,
        "units": asked.units,
        "timeout_s": asked.timeout_s,
        "stream": asked.stream,
        "model": asked.model,
        "size": [picture.width, picture.height],
        "bytes": picture.size,
    }


def application() -> Correlation:
    """The route as it stands in the service, with its errors and its request ids."""
    inner = Litestar(
        [understood], exception_handlers=handlers(), request_max_body_size=LIMIT, logging_config=None
    )
    return Correlation(inner)


def problem(response: httpx.Response) -> tuple[int, str, str | None]:
    """What a refusal says, after the checks that hold for every one."""
    document = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert document["status"] == response.status_code
    assert document["request_id"] == response.headers["x-request-id"]
    assert document["title"]
    assert document["detail"]
    return response.status_code, document["type"].removeprefix("/problems/"), document.get("field")


def body(**fields: Any) -> dict[str, Any]:
    """A good JSON request with some fields changed; `...` takes one away."""
    whole = {"image": IMAGE, "object": "x"} | fields
    return {name: value for name, value in whole.items() if value is not ...}


FULL = {
    "objects": ["a", "b  c"],
    "max_objects": 7,
    "region": [10, 4, 50, 40],
    "units": "pixels",
    "min_score": 0.25,
    "dedupe": False,
    "timeout_s": 2.5,
    "stream": True,
    "model": "tiny",
    "priority": "batch",
    "adapter": "mine",
    "id": "7 of 9",
}
