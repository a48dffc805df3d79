"""Neither images nor phrases nor keys reach a log, whatever is logged."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

from tests.admission.fakes import until
from tests.admission.services import fake, http, picture, service

PHRASE = "an unmistakable phrase"


def pointbox(data: Path, *arguments: str) -> str:
    environ = {"POINTBOX_DATA_DIR": str(data), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "app.cli", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


async def test_nothing_of_a_caller_is_logged(tmp_path: Path) -> None:
    key = pointbox(tmp_path, "keys", "create", "--tenant", "acme")
    bootstrap, wrong = "a-bootstrap-key-for-the-logs", "pb_wrongkey_that_is_not_known"
    image = picture(7)
    encoded = base64.b64encode(image).decode()
    environ = {
        "POINTBOX_AUTH": "on",
        "POINTBOX_BOOTSTRAP_KEY": bootstrap,
        "POINTBOX_DATA_DIR": str(tmp_path),
        "POINTBOX_LOG_LEVEL": "debug",
    }
    with service(fake("serve"), **environ) as running:
        await running.ready()
        async with http(running) as client:
            for secret, status in ((key, 200), (bootstrap, 200), (wrong, 401)):
                for headers in ({"authorization": f"Bearer {secret}"}, {"x-moondream-auth": secret}):
                    body = {"image": encoded, "object": PHRASE}
                    answer = await client.post("/v1/detect", json=body, headers=headers)
                    assert answer.status_code == status, answer.text
            headers = {
                "authorization": f"Bearer {key}",
                "content-type": "image/png",
                "x-request-id": "find-me",
            }
            path = f"/v1/detect?object={PHRASE.replace(' ', '+')}"
            assert (await client.post(path, content=image, headers=headers)).status_code == 200
            assert (await client.post(f"{path}&units=x", content=image, headers=headers)).status_code == 422
            assert (await client.post(path, content=b"broken", headers=headers)).status_code == 415
            unread = {**headers, "content-type": "application/json"}
            assert (
                await client.post("/v1/detect", content=f'{{"object": "{PHRASE}",', headers=unread)
            ).status_code == 400
            assert (await client.get(f"/v1/detect/{PHRASE.split()[1]}", headers=headers)).status_code == 404
        log = running.text
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    ours = [line for line in lines if line.get("request_id") == "find-me" and line["event"] == "request"]
    assert [line["status"] for line in ours] == [200, 422, 415, 400, 404]
    for secret in (key, key[12:], bootstrap, wrong, wrong[12:], encoded, encoded[40:80], PHRASE):
        assert secret not in log
    assert repr(image)[20:60] not in log


async def test_a_revoked_key_ends_while_the_service_runs(tmp_path: Path) -> None:
    key = pointbox(tmp_path, "keys", "create", "--tenant", "acme")
    headers = {"x-moondream-auth": key, "content-type": "image/png"}
    with service(fake("serve"), POINTBOX_AUTH="on", POINTBOX_DATA_DIR=str(tmp_path)) as running:
        await running.ready()
        async with http(running) as client:
            asked = "/v1/detect?object=x"
            assert (await client.post(asked, content=picture(), headers=headers)).status_code == 200
            pointbox(tmp_path, "keys", "revoke", key[:11])

            async def is_refused() -> bool:
                return (await client.get("/v1/models", headers=headers)).status_code == 401

            await until(is_refused)
            assert (await client.post(asked, content=picture(), headers=headers)).status_code == 401
        running.process.terminate()
        assert await running.exit_status() == 0
    (day,) = json.loads(pointbox(tmp_path, "keys", "usage", "--json"))
    assert (day["tenant"], day["completed"], day["phrases"], day["output_tokens"]) == ("acme", 1, 1, 5)
