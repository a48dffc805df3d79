"""What the running service says is wrong: in words that tell what to change, and with the field."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.app.asking import told
from tests.app.test_refusals import JSON, body, problem


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"object": 7}, "`object` must be text, not a number."),
        ({"max_objects": 0}, "`max_objects` must be a whole number of at least 1."),
        ({"max_objects": 1.5}, "`max_objects` must be a whole number, not a number with a fraction."),
        ({"region": [0, 1]}, "`region` must be a list of 4 items."),
        ({"region": [0, 0, None, 1]}, "`region[2]` must be a number, not null."),
        ({"units": "metres"}, "`units` cannot be 'metres'; use normalized or pixels."),
        ({"adapter": ""}, "`adapter` must be text of at least 1 character."),
        ({"settings": {"max_objects": "x"}}, "`settings.max_objects` must be a whole number, not text."),
        ({"model": "other"}, "There is no model 'other'; there is tiny."),
    ],
)
def test_a_wrong_field(client: httpx.Client, scene: bytes, fields: dict[str, Any], says: str) -> None:
    assert client.post("/v1/detect", json=body(scene, **fields)).json()["detail"] == says


def test_too_many_phrases(client: httpx.Client, scene: bytes) -> None:
    encoded = base64.b64encode(scene).decode()
    response = client.post("/v1/detect", json={"image": encoded, "objects": ["x"] * 33})
    assert problem(response) == (422, "invalid-request", "objects")
    assert response.json()["detail"] == "Between 1 and 32 phrases can be asked for at once, not 33."


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"object":"\\ud800"}', "it has half of a surrogate pair, such as \\ud800, which is no character"),
        ('{"object":"\\ud800","id":"x"}', "it has half of a surrogate pair, such as \\ud800"),
        ('{"object":"x"', "it ends too early"),
        ('{"reasoning":' + "[" * 100_000, "it is nested too deeply"),
        (b"\xef\xbb\xbf{}", "it must be UTF-8 without a byte order mark"),
        ('{"object":"x"}'.encode("utf-16"), "it must be UTF-8 without a byte order mark"),
        ('{"object":"x",}', "trailing comma in object (byte 14)"),
    ],
)
def test_a_body_that_is_not_json(client: httpx.Client, content: str | bytes, says: str) -> None:
    response = client.post("/v1/detect", content=content, headers=JSON)
    assert problem(response) == (400, "invalid-request", None)
    assert response.json()["detail"].startswith(f"The body is not JSON: {says}")


def test_a_body_over_the_limit_says_both_sizes(client: httpx.Client) -> None:
    head = b"POST /v1/detect?object=x HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\n"
    answer = told(client, head + b"Connection: close\r\nContent-Length: 25000000\r\n\r\n")
    assert b"413" in answer.splitlines()[0]
    assert b"The body has 25,000,000 bytes; this server reads at most 20,000,000." in answer
