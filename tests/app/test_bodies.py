"""The same region, written in the ways of JSON, forms and queries."""

from __future__ import annotations

import httpx
import pytest


@pytest.mark.parametrize("region", ["0,0,1,1", "0, 0, 1, 1", " 0 ,0.0 , 1.0,1 "])
def test_a_region_as_text(client: httpx.Client, scene: bytes, region: str) -> None:
    asked = {"object": "red circle", "region": region}
    answers = [
        client.post("/v1/detect", params=asked, content=scene, headers={"content-type": "image/jpeg"}),
        client.post("/v1/detect", data=asked, files={"image": scene}),
    ]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["objects"]) == 1


def test_a_form_that_curl_sends_without_a_file_name(client: httpx.Client, scene: bytes) -> None:
    answer = client.post("/v1/detect", files={"image": (None, scene), "object": (None, "red circle")})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["objects"]) == 1
