"""HEAD is GET without the body, on every route."""

from __future__ import annotations

import pytest

from app.settings import Settings
from tests.access.serving import serving


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/livez", 200),
        ("/readyz", 503),
        ("/metrics", 200),
        ("/v1/models", 200),
        ("/v1/images/none", 405),
        ("/v1/detect", 405),
        ("/schema/openapi.json", 200),
        ("/", 200),
        ("/nowhere", 404),
    ],
)
async def test_head_has_the_headers_of_get(settings: Settings, path: str, status: int) -> None:
    async with serving(settings) as api:
        whole, head = await api.client.get(path), await api.client.head(path)
        assert (whole.status_code, head.status_code, head.content) == (status, status, b"")
        changing = {"x-request-id", "content-length"}  # of /metrics and problem documents
        assert {k: v for k, v in head.headers.items() if k not in changing} == {
            k: v for k, v in whole.headers.items() if k not in changing
        }


async def test_figures_tell_head_from_get(settings: Settings) -> None:
    async with serving(settings) as api:
        await api.client.head("/v1/models")
        counted = 'request_seconds_count{method="HEAD",route="/v1/models",status="200"} 1.0'
        assert counted in (await api.client.get("/metrics")).text
