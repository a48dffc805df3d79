"""A route that only says what it understood, and how its refusals are read."""

from __future__ import annotations

import base64
from typing import Any

import httpx
from litestar import Litestar, Request, post

from app.correlation import Correlation
from app.errors import handlers
from app.settings import Settings
from app.spatial.bodies import read_request
from tests.intake.pictures import encode, plain

LIMIT = 200_000
PICTURE = encode(plain(), "JPEG")
IMAGE = base64.b64encode(PICTURE).decode()
URI = f"data:image/jpeg;base64,{IMAGE}"


@post("/", status_code=200)
async def understood(request: Request[Any, Any, Any]) -> dict[str, Any]:
    asked = await read_request(request, Settings(max_timeout_s=100, default_timeout_s=60))
    return {
        "phrases": asked.params.phrases,
        "max_objects": asked.params.max_objects,
        "region": asked.params.region,
        "min_score": asked.params.min_score,
        "dedupe": asked.params.dedupe,
        "units": asked.units,
        "timeout_s": asked.timeout_s,
        "stream": asked.stream,
        "model": asked.model,
        "size": [asked.header.width, asked.header.height],
        "bytes": len(asked.image),
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
}
