"""The application as an object: its schema, what it imports, what it needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

from app.correlation import Correlation
from app.problems import KINDS, ProblemError
from app.server import create_app
from app.settings import Settings, SettingsError
from app.spatial.documents import PROBLEMS
from app.system.controllers import Health
from tests.intake.pictures import encode, plain


def test_the_api_never_imports_torch() -> None:
    code = (
        "import sys, app.cli, app.server; from app.settings import Settings; "
        "app.server.create_app(Settings(redis_url='redis://127.0.0.1:1')); "
        "print([name for name in ('torch', 'transformers', 'tokenizers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_api_needs_a_redis() -> None:
    with pytest.raises(SettingsError, match=r"^POINTBOX_REDIS_URL must be set"):
        create_app(Settings())


async def test_the_schema() -> None:
    app = create_app(Settings(redis_url="redis://127.0.0.1:1"))
    transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        schema = (await client.get("/schema")).json()
        assert (await client.get("/schema/openapi.json")).json() == schema
    subjects = {"/v1/detect", "/v1/point", "/v1/models", "/v1/images", "/v1/images/{image_id}"}
    job = {"", "/cancel", "/resume", "/results", "/errors", "/samples", "/samples/{number}"}
    subjects |= {"/v1/stores", "/v1/jobs", *(f"/v1/jobs/{{job_id}}{action}" for action in job)}
    assert set(schema["paths"]) == subjects | {"/livez", "/readyz", "/metrics"}
    for path, items in (("/v1/detect", "objects"), ("/v1/point", "points")):
        operation = schema["paths"][path]["post"]
        content = operation["requestBody"]["content"]
        assert set(content) == {"application/json", "multipart/form-data", "image/*"}
        assert set(content["application/json"]["examples"]) == {"one", "many", "moondream"}
        good = operation["responses"]["200"]["content"]
        assert set(good) == {"application/json", "text/event-stream"}
        assert items in json.dumps(schema["components"])
        documented = json.dumps(operation["responses"])
        assert all(f"/problems/{slug}" in documented for slug in PROBLEMS)
        assert {"object", "region", "units", "stream"} <= {p["name"] for p in operation["parameters"]}


async def test_other_paths_beside_the_schema_are_problems_too() -> None:
    app = Correlation(create_app(Settings(redis_url="redis://127.0.0.1:1")))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:  # type: ignore[arg-type]
        for path in ("/schema/redoc", "/schema/x.json", "/schema/a/b", "/schemas"):
            response = await client.get(path)
            assert response.status_code == 404
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["type"] == "/problems/not-found"


async def test_without_redis_it_lives_but_is_not_ready() -> None:
    app = create_app(Settings(redis_url="redis://127.0.0.1:1"))
    transport = httpx.ASGITransport(Correlation(app))  # type: ignore[arg-type]
    async with app.lifespan(), httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await client.get("/livez")).json() == {"status": "ok"}
        headers = {"content-type": "image/png"}
        picture = encode(plain(), "PNG")
        for response in (
            await client.get("/readyz"),
            await client.get("/v1/models"),
            await client.post("/v1/detect?object=x", content=picture, headers=headers),
        ):
            assert response.status_code == 503
            assert response.json()["type"] == "/problems/unavailable"
            assert "127.0.0.1" not in response.text  # where Redis lives is nobody's business


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_api_process_ends_with_0(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "app.cli", "api", "--port", "0"]
    environ = {**os.environ, "POINTBOX_REDIS_URL": "redis://127.0.0.1:1"}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE)
    assert process.stderr is not None
    while b"Uvicorn running" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(20) == 0
    process.stderr.close()


def test_every_problem_of_the_design() -> None:
    statuses = {slug: kind.status for slug, kind in KINDS.items()}
    assert statuses == {
        "invalid-request": 422,
        "invalid-phrase": 422,
        "invalid-image": 422,
        "unsupported-media": 415,
        "image-too-large": 413,
        "unknown-model": 404,
        "unsupported-task": 422,
        "unauthenticated": 401,
        "forbidden": 403,
        "not-found": 404,
        "idempotency-in-flight": 409,
        "idempotency-mismatch": 422,
        "rate-limited": 429,
        "tenant-queue-full": 429,
        "queue-full": 503,
        "unavailable": 503,
        "worker-crashed": 503,
        "deadline-exceeded": 504,
        "internal": 500,
    }
    assert ProblemError("no such slug", "x").slug == "internal"
    assert Health().status == "ok"
