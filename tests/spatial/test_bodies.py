"""Reading a request in its three kinds: every field through every door."""

from __future__ import annotations

import base64

import httpx
import msgspec
import pytest

from app.spatial.schemas import SpatialBody
from tests.intake.pictures import with_orientation
from tests.spatial.reading import FULL, IMAGE, PICTURE, URI


async def test_defaults(client: httpx.AsyncClient) -> None:
    response = await client.post("/", json={"image": IMAGE, "object": "red circle"})
    assert response.json() == {
        "phrases": ["red circle"],
        "max_objects": 50,
        "region": None,
        "min_score": 0.0,
        "dedupe": True,
        "units": "normalized",
        "timeout_s": 60.0,
        "stream": False,
        "model": None,
        "priority": "interactive",
        "adapter": None,
        "id": None,
        "size": [100, 40],
        "bytes": len(PICTURE),
    }


async def test_every_field_reads_the_same_through_every_door(client: httpx.AsyncClient) -> None:
    texts = {name: str(value).lower() for name, value in FULL.items()} | {"region": "10,4,50,40"}
    form = texts | {"objects": FULL["objects"]}
    query = {"object" if name == "objects" else name: value for name, value in form.items()}
    raw, octets = {"content-type": "image/jpeg"}, {"content-type": "application/octet-stream"}
    answers = [
        await client.post("/", json={"image": URI, **FULL}),
        await client.post("/", json={"image_url": URI, **FULL}),
        await client.post("/", files={"image": PICTURE}, data=form),
        await client.post("/", content=PICTURE, headers=raw, params=query),
        await client.post("/", content=PICTURE, headers=octets, params=form),
    ]
    for response in answers:
        assert response.status_code == 200, response.text
        assert response.json() == {
            "phrases": ["a", "b  c"],
            "max_objects": 7,
            "region": [0.1, 0.1, 0.5, 1.0],
            "min_score": 0.25,
            "dedupe": False,
            "units": "pixels",
            "timeout_s": 2.5,
            "stream": True,
            "model": "tiny",
            "priority": "batch",
            "adapter": "mine",
            "id": "7 of 9",
            "size": [100, 40],
            "bytes": len(PICTURE),
        }


async def test_null_counts_as_not_given(client: httpx.AsyncClient) -> None:
    asked = {"image": IMAGE, "object": "red circle"}
    plain = (await client.post("/", json=asked)).json()
    optional = [field.name for field in msgspec.structs.fields(SpatialBody) if field.name not in asked]
    for nulls in ([name] for name in optional):
        response = await client.post("/", json=asked | dict.fromkeys(nulls))
        assert (response.status_code, response.json()) == (200, plain), nulls
    nothing = asked | dict.fromkeys(optional)
    assert (await client.post("/", json=nothing)).json() == plain
    nested = {"settings": {"max_objects": None, "temperature": None}, "min_score": None}
    assert (await client.post("/", json=asked | nested)).json() == plain


async def test_what_moondreams_clients_send_is_tolerated(client: httpx.AsyncClient) -> None:
    settings = {"max_objects": 3, "temperature": 0.2, "top_p": 0.9, "max_tokens": 100}
    body = {
        "image_url": URI,
        "object": "x",
        "settings": settings,
        "reasoning": True,
        "spatial_refs": [[0.1, 0.2]],
    }
    response = await client.post("/", json={**body, "stream": False, "model": "m"})
    assert response.json()["max_objects"] == 3
    response = await client.post("/", json={**body, "max_objects": 5})
    assert response.json()["max_objects"] == 5


async def test_an_image_as_text_in_a_form(client: httpx.AsyncClient) -> None:
    response = await client.post("/", files={"image": (None, URI), "object": (None, "x")})
    assert response.json()["bytes"] == len(PICTURE)


async def test_the_bytes_decide_not_the_content_type(client: httpx.AsyncClient) -> None:
    for content_type in ("image/png", "image/jpeg", "image/anything"):
        headers = {"content-type": content_type}
        response = await client.post("/", content=PICTURE, headers=headers, params={"object": "x"})
        assert response.json()["size"] == [100, 40]


async def test_a_region_in_pixels_is_of_the_upright_image(client: httpx.AsyncClient) -> None:
    image = base64.b64encode(with_orientation(6)).decode()
    body = {"image": image, "object": "x", "units": "pixels", "region": [0, 50, 40, 100]}
    response = await client.post("/", json=body)
    assert response.json()["size"] == [40, 100]
    assert response.json()["region"] == [0.0, 0.5, 1.0, 1.0]


PHRASES = [
    "<image>",
    "<loc0001>",
    "<|endoftext|>",
    "detect cat ; dog",
    "a\nb",
    "🦊 🏴‍☠️",
    "שלום",
    "null",
    "x" * 256,
    " x ",
]


@pytest.mark.parametrize("phrase", PHRASES)
async def test_phrases_arrive_exactly_as_sent(client: httpx.AsyncClient, phrase: str) -> None:
    raw = {"content-type": "image/jpeg"}
    for response in (
        await client.post("/", json={"image": IMAGE, "object": phrase}),
        await client.post("/", files={"image": PICTURE}, data={"object": phrase}),
        await client.post("/", content=PICTURE, headers=raw, params={"object": phrase}),
    ):
        assert response.json()["phrases"] == [phrase]


async def test_request_ids(client: httpx.AsyncClient) -> None:
    for sent in ("my-id:1.2_3", "a" * 128):
        response = await client.post("/", json={}, headers={"x-request-id": sent})
        assert response.headers["x-request-id"] == sent == response.json()["request_id"]
    for sent in ("", "a b", "a" * 129, "ä".encode(), "a\tb"):
        response = await client.post("/", json={}, headers={"x-request-id": sent})
        assert len(response.headers["x-request-id"]) == 32
