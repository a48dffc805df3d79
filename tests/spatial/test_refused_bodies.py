"""What is wrong with a request is said with its type, its status and its field; nothing is a server error."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spatial.reading import FULL, IMAGE, LIMIT, PICTURE, URI, body, problem

REFUSED: list[tuple[dict[str, Any], int, str, str | None]] = [
    (body(image=...), 422, "invalid-request", "image"),
    (body(object=...), 422, "invalid-request", "object"),
    (body(object=""), 422, "invalid-phrase", "object"),
    (body(object=" \t\n "), 422, "invalid-phrase", "object"),
    (body(object="x" * 257), 422, "invalid-phrase", "object"),
    (body(object="x" * 10_000), 422, "invalid-phrase", "object"),
    (body(object=..., objects=["a", " "]), 422, "invalid-phrase", "objects"),
    (body(object=..., objects=[]), 422, "invalid-request", "objects"),
    (body(object=..., objects=["a"] * 33), 422, "invalid-request", "objects"),
    (body(object=..., objects=["a", 1]), 422, "invalid-request", "objects"),
    (body(objects=["a"]), 422, "invalid-request", "objects"),
    (body(object=7), 422, "invalid-request", "object"),
    (body(image_url=IMAGE), 422, "invalid-request", "image_url"),
    (body(image="QUJD!!!"), 400, "invalid-request", "image"),
    (body(image=..., image_url="data:image/png;base64,QUJD!!!"), 400, "invalid-request", "image_url"),
    (body(image=..., image_url="https://example.org/a.png"), 422, "invalid-request", "image_url"),
    (body(image=""), 422, "invalid-image", "image"),
    (body(image="aGVsbG8sIHRoaXMgaXMgdGV4dA=="), 415, "unsupported-media", "image"),
    (body(image=..., image_url="data:image/svg+xml,%3Csvg/%3E"), 415, "unsupported-media", "image_url"),
    (body(max_objects=0), 422, "invalid-request", "max_objects"),
    (body(max_objects=-1), 422, "invalid-request", "max_objects"),
    (body(max_objects=1001), 422, "invalid-request", "max_objects"),
    (body(max_objects=10**40), 422, "invalid-request", "max_objects"),
    (body(max_objects="3"), 422, "invalid-request", "max_objects"),
    (body(max_objects=1.5), 422, "invalid-request", "max_objects"),
    (body(settings={"max_objects": 0}), 422, "invalid-request", "settings.max_objects"),
    (body(settings={"beam": 3}), 422, "invalid-request", "settings.beam"),
    (body(settings=[]), 422, "invalid-request", "settings"),
    (body(colour="red"), 422, "invalid-request", "colour"),
    (body(priority="urgent"), 422, "invalid-request", "priority"),
    (body(adapter=""), 422, "invalid-request", "adapter"),
    (body(id="x" * 257), 422, "invalid-request", "id"),
    (body(id=7), 422, "invalid-request", "id"),
    (body(image_id="abc"), 422, "invalid-request", "image_id"),
    (body(image=..., image_url="http://" + "x" * 5000), 422, "invalid-request", "image_url"),
    (body(image="http://example.org/a.png"), 422, "invalid-request", "image"),
    (body(image="file:///etc/passwd"), 422, "invalid-request", "image"),
    (body(region=[0, 0, 1]), 422, "invalid-request", "region"),
    (body(region=[0.5, 0, 0.5, 1]), 422, "invalid-request", "region"),
    (body(region=[0, 0, 1, 1.001]), 422, "invalid-request", "region"),
    (body(region=[0, 0, 101, 40], units="pixels"), 422, "invalid-request", "region"),
    (body(region="0,0,1,1"), 422, "invalid-request", "region"),
    (body(units="metres"), 422, "invalid-request", "units"),
    (body(min_score=1.1), 422, "invalid-request", "min_score"),
    (body(dedupe="on"), 422, "invalid-request", "dedupe"),
    (body(timeout_s=0), 422, "invalid-request", "timeout_s"),
    (body(timeout_s=101), 422, "invalid-request", "timeout_s"),
    (body(stream="yes"), 422, "invalid-request", "stream"),
    (body(model=1), 422, "invalid-request", "model"),
]


@pytest.mark.parametrize(("sent", "status", "slug", "field"), REFUSED)
async def test_refused_as_json(
    client: httpx.AsyncClient, sent: dict[str, Any], status: int, slug: str, field: str | None
) -> None:
    assert problem(await client.post("/", json=sent)) == (status, slug, field)


@pytest.mark.parametrize(
    ("nulls", "field"),
    [
        ({"image": None}, "image"),
        ({"object": None}, "object"),
        ({"objekt": None, "min_score": None}, "objekt"),
        ({"dedupe": None, "settings": {"colour": None}}, "settings.colour"),
        ({"dedupe": None, "object": ..., "objects": [None]}, "objects"),
        ({"dedupe": None, "region": [0, 0, None, 1]}, "region"),
    ],
)
async def test_nulls_in_other_places(client: httpx.AsyncClient, nulls: dict[str, Any], field: str) -> None:
    assert problem(await client.post("/", json=body(**nulls))) == (422, "invalid-request", field)


@pytest.mark.parametrize(
    ("twice", "field"),
    [
        ('"object": "x", "object": "y"', "object"),
        ('"object": "x", "obj\\u0065ct": "x"', "object"),
        ('"object": "x", "settings": {"max_objects": 1, "max_objects": 2}', "max_objects"),
        ('"object": "x", "reasoning": [{"a": 1, "a": 1e5}]', "a"),
    ],
)
async def test_a_field_given_twice(client: httpx.AsyncClient, twice: str, field: str) -> None:
    content = f'{{"image": "{IMAGE}", {twice}}}'.encode()
    response = await client.post("/", content=content, headers={"content-type": "application/json"})
    assert problem(response) == (422, "invalid-request", field)
    assert "twice" in response.json()["detail"]


async def test_choices_are_told(client: httpx.AsyncClient) -> None:
    response = await client.post("/", json=body(priority="urgent"))
    assert response.json()["detail"].endswith("use interactive or batch.")
    response = await client.post("/", json=body(units="metres"))
    assert response.json()["detail"].endswith("use normalized or pixels.")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"no",
        b"\xff\xfe",
        b'{"object": "\\ud800"}',
        b'{"min_score": NaN}',
        b'{"reasoning":' + b"[" * 100_000,
    ],
)
async def test_not_json(client: httpx.AsyncClient, content: bytes) -> None:
    response = await client.post("/", content=content, headers={"content-type": "application/json"})
    assert problem(response) == (400, "invalid-request", None)


async def test_json_that_is_no_object(client: httpx.AsyncClient) -> None:
    for content in ("[]", "null", "3", '"x"'):
        response = await client.post("/", content=content, headers={"content-type": "application/json"})
        assert problem(response) == (422, "invalid-request", None)


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "text/html", "application/x-www-form-urlencoded", "application/pdf", "x", ""],
)
async def test_other_content_types(client: httpx.AsyncClient, content_type: str) -> None:
    content = json.dumps(body()).encode()
    for target in ("/", "/?object=x"):  # a query beside it, as when `curl --data-binary` is told no type
        response = await client.post(target, content=content, headers={"content-type": content_type})
        assert problem(response) == (415, "unsupported-media", None)


async def test_json_content_types(client: httpx.AsyncClient) -> None:
    content = json.dumps(body()).encode()
    for content_type in ("application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json"):
        response = await client.post("/", content=content, headers={"content-type": content_type})
        assert response.status_code == 200


async def test_compressed_bodies(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert problem(await client.post("/", content=b"\x1f\x8b", headers=headers))[:2] == (
        415,
        "unsupported-media",
    )


@pytest.mark.parametrize("content_type", ["image/png", "application/json", "multipart/form-data", ""])
async def test_an_empty_body(client: httpx.AsyncClient, content_type: str) -> None:
    response = await client.post("/", headers={"content-type": content_type})
    assert problem(response) == (422, "invalid-image", "image")


@pytest.mark.parametrize("field", ["image_id", "image_url"])
async def test_an_image_named_in_the_query(client: httpx.AsyncClient, field: str) -> None:
    response = await client.post(f"/?object=x&{field}=abc")
    assert problem(response) == (422, "invalid-request", field)
    said = f"The body is empty: send `{field}` in a JSON body or a form, not in the query."
    assert response.json()["detail"] == said


async def test_query_parameters(client: httpx.AsyncClient) -> None:
    async def raw(query: str) -> tuple[int, str, str | None]:
        headers = {"content-type": "image/jpeg"}
        return problem(await client.post(f"/?{query}", content=PICTURE, headers=headers))

    assert await raw("") == (422, "invalid-request", "object")
    assert await raw("object=") == (422, "invalid-phrase", "object")
    assert await raw("object=x&colour=red") == (422, "invalid-request", "colour")
    assert await raw("object=x&image=abc") == (422, "invalid-request", "image")
    assert await raw("object=x&units=pixels&units=pixels") == (422, "invalid-request", "units")
    assert await raw("object=x&min_score=nan") == (422, "invalid-request", "min_score")
    assert await raw("object=x&timeout_s=inf") == (422, "invalid-request", "timeout_s")
    assert await raw("object=x&timeout_s=nan") == (422, "invalid-request", "timeout_s")
    assert await raw("object=x&region=0,0,nan,1") == (422, "invalid-request", "region")
    assert await raw("object=x&region=0,0,,1") == (422, "invalid-request", "region")
    assert await raw("object=x&settings=1") == (422, "invalid-request", "settings")
    assert await raw("object=r%F6d") == (400, "invalid-request", None)
    twice = await client.post(
        "/?object=x&units=pixels&units=pixels", content=PICTURE, headers={"content-type": "image/jpeg"}
    )
    assert twice.json()["detail"] == "The field 'units' is given twice."
    response = await client.post("/?max_objects=3", json=body())
    assert problem(response) == (422, "invalid-request", "max_objects")


async def test_forms(client: httpx.AsyncClient) -> None:
    async def form(files: list[tuple[str, Any]]) -> tuple[int, str, str | None]:
        return problem(await client.post("/", files=files))

    file, text = ("f.jpg", PICTURE), (None, "x")
    assert await form([("image", file)]) == (422, "invalid-request", "object")
    assert await form([("object", text)]) == (422, "invalid-request", "image")
    assert (await form([("image", file), ("image", file), ("object", text)]))[2] == "image"
    assert await form([("picture", file), ("object", text)]) == (422, "invalid-request", "picture")
    assert await form([("image", file), ("object", text), ("x", text)]) == (422, "invalid-request", "x")
    assert await form([("image", ("f.jpg", b"")), ("object", text)]) == (422, "invalid-image", "image")
    assert await form([("image", ("f.txt", b"hello")), ("object", text)]) == (
        415,
        "unsupported-media",
        "image",
    )
    assert await form([("image", file), ("object", (None, b"\xff"))]) == (400, "invalid-request", None)
    assert (await form([("image", file), ("object", text), ("image_url", (None, URI))]))[2] == "image_url"


@pytest.mark.parametrize("charset", ["undefined", "punycode", "zip", "nonsense", "utf-16"])
async def test_a_form_field_in_a_strange_charset(client: httpx.AsyncClient, charset: str) -> None:
    part = f'--b\r\nContent-Disposition: form-data; name="object"\r\nContent-Type: x/y; charset={charset}'
    headers = {"content-type": "multipart/form-data; boundary=b"}
    response = await client.post("/", content=f"{part}\r\n\r\nx\r\n--b--\r\n".encode(), headers=headers)
    assert problem(response) == (400, "invalid-request", None)


@pytest.mark.parametrize("boundary", ["", "; boundary=b", "; boundary=" + "b" * 300, '; boundary=""'])
@pytest.mark.parametrize(
    "content", [b"x", b"--b\r\n", b"--b\r\n\r\n\r\n--b--", b'--b\r\nContent-Disposition: form-data; name="a"']
)
async def test_broken_forms(client: httpx.AsyncClient, boundary: str, content: bytes) -> None:
    headers = {"content-type": "multipart/form-data" + boundary}
    status, slug, _ = problem(await client.post("/", content=content, headers=headers))
    assert slug == "invalid-request"
    assert status in (400, 422)


async def test_bodies_over_the_limit(client: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b"\0" * 10_000

    big = b"\xff\xd8\xff" + b"\0" * LIMIT
    raw = {"content-type": "image/jpeg"}
    expected = (413, "image-too-large", "image")
    assert problem(await client.post("/?object=x", content=big, headers=raw)) == expected
    assert problem(await client.post("/?object=x", content=chunks(), headers=raw)) == expected
    assert problem(await client.post("/", files={"image": big}, data={"object": "x"})) == expected
    assert problem(await client.post("/", json=body(image="A" * LIMIT))) == expected


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["image", "image_url", "object", "objects", *FULL, "settings", "reasoning", "spatial_refs", "other"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FIELDS), JSON | st.just(IMAGE), max_size=5))
async def test_no_json_makes_a_server_error(client: httpx.AsyncClient, sent: dict[str, Any]) -> None:
    response = await client.post("/", json=sent)
    assert response.status_code in (200, 400, 413, 415, 422)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FIELDS), st.text(max_size=12), max_size=5), st.binary(max_size=40))
async def test_no_query_and_no_bytes_make_a_server_error(
    client: httpx.AsyncClient, query: dict[str, str], content: bytes
) -> None:
    for sent in (content, PICTURE):
        headers = {"content-type": "image/png"}
        response = await client.post("/", content=sent, headers=headers, params=query)
        assert response.status_code in (200, 400, 413, 415, 422)
