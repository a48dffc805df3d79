"""What goes over the wire, and what is refused before it does."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

import pytest

import pointbox
import pointbox.compat.moondream as md
from pointbox import AsyncClient, Client, ImageHandle
from tests.sdk.scripted import Asked, Script

OPTIONS: dict[str, Any] = {
    "model": "large",
    "max_objects": 3,
    "region": (0.1, 0.2, 0.8, 0.9),
    "min_score": 0.5,
    "dedupe": False,
    "timeout_s": 5.5,
    "priority": "batch",
    "adapter": "cars",
    "id": "my own",
}


def form(asked: Asked) -> list[tuple[str, bytes]]:
    """Names and contents of the parts of a multipart body."""
    head = b"content-type: " + asked.headers["content-type"].encode() + b"\r\n\r\n"
    parts = message_from_bytes(head + asked.body, policy=HTTP).iter_parts()  # type: ignore[attr-defined]
    return [
        (part.get_param("name", header="content-disposition"), part.get_payload(decode=True))
        for part in parts
    ]


def test_bytes_travel_in_a_form(script: Script, png: bytes) -> None:
    with Client(script.url) as client:
        client.detect(png, ["red circle", "ü; \n<loc0001>"], **OPTIONS)
    (asked,) = script.asked
    assert (asked.method, asked.path) == ("POST", "/v1/detect")  # the phrases are not in the address
    fields = form(asked)
    assert [text.decode() for name, text in fields if name == "object"] == ["red circle", "ü; \n<loc0001>"]
    sent = dict(fields)
    assert sent.pop("image") == png
    assert sent.pop("object")
    assert {name: text.decode() for name, text in sent.items()} == {
        "model": "large",
        "max_objects": "3",
        "region": "0.1,0.2,0.8,0.9",
        "min_score": "0.5",
        "dedupe": "false",
        "timeout_s": "5.5",
        "priority": "batch",
        "adapter": "cars",
        "id": "my own",
    }


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("https://example.org/a.png", {"image_url": "https://example.org/a.png"}),
        ("data:image/png;base64,AAAA", {"image_url": "data:image/png;base64,AAAA"}),
        (ImageHandle(image_id="i1"), {"image_id": "i1"}),
    ],
)
def test_an_image_that_is_elsewhere_is_named(script: Script, image: Any, named: dict[str, str]) -> None:
    with Client(script.url) as client:
        client.detect(image, "cat", **OPTIONS)
    expected = {**named, "objects": ["cat"], **OPTIONS, "region": [0.1, 0.2, 0.8, 0.9]}
    assert json.loads(script.asked[0].body) == expected


def test_images_are_uploaded_asked_about_and_deleted(script: Script, png: bytes) -> None:
    script.steps[:] = [
        lambda exchange: exchange.answer(201, {"image_id": "i?1", "width": 64, "height": 48, "notes": []}),
        lambda exchange: exchange.answer(204, b""),
    ]
    with Client(script.url) as client:
        handle = client.images.upload(png)
        assert handle == ImageHandle(image_id="i?1", width=64, height=48)
        client.images.delete(handle)
        client.images.delete("i?1")
        assert client.images.upload(handle) is handle
    upload, one, other = script.asked
    assert form(upload) == [("image", png)]
    assert (one.method, one.path) == (other.method, other.path) == ("DELETE", "/v1/images/i%3F1")


def test_where_the_service_is(script: Script, png: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTBOX_URL", f"{script.url}/v1/")
    monkeypatch.setenv("POINTBOX_API_KEY", "pb_secret")
    with Client(model="large") as client:
        client.detect(png, "cat")
        assert "pb_secret" not in repr(client) + repr(client._config)
    asked = script.asked[0]
    assert asked.path == "/v1/detect"
    assert asked.headers["authorization"] == "Bearer pb_secret"
    assert asked.headers["user-agent"] == f"pointbox-python/{pointbox.__version__}"
    assert dict(form(asked))["model"] == b"large"
    with Client(script.url, "another") as client:
        client.detect(png, "cat")
    assert script.asked[1].headers["authorization"] == "Bearer another"
    monkeypatch.setenv("POINTBOX_API_KEY", "")
    with Client(script.url) as client:
        client.detect(png, "cat")
    assert "authorization" not in script.asked[2].headers


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host", "http://", "http://host:port", "http://[1", "http://h?x=1"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="URL of the service"):
        Client(url)


@pytest.mark.parametrize(
    ("settings", "kind", "reason"),
    [
        ({"timeout": 0}, ValueError, "timeout must be a number of seconds greater than 0, not 0"),
        ({"timeout": float("inf")}, ValueError, "timeout must be a number of seconds"),
        ({"timeout": "x"}, TypeError, "timeout must be a number, not 'x'"),
        ({"timeout": None}, TypeError, "timeout must be a number, not None"),
        ({"retries": -1}, ValueError, "retries must be 0 or more, not -1"),
        ({"retries": 1.5}, TypeError, "retries must be a whole number, not 1.5"),
        ({"api_key": "two\nlines"}, ValueError, "API key"),
        ({"api_key": 5}, TypeError, "api_key must be a string, not 5"),
        ({"url": 5}, TypeError, "url must be a string, not 5"),
        ({"model": 5}, TypeError, "model must be a string, not 5"),
    ],
)
@pytest.mark.parametrize("kind_of_client", [Client, AsyncClient])
def test_settings_that_cannot_be_used(
    kind_of_client: Any, settings: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        kind_of_client(**settings)


@pytest.mark.parametrize(
    ("phrases", "options", "kind", "reason"),
    [
        ("cat", {"max_object": 3}, TypeError, "'max_object' is not known; there are model, max_objects"),
        (["cat", 3], {}, TypeError, "A phrase is a string, not int"),
        (5, {}, TypeError, "phrases must be a string or a list of strings, not int"),
        (b"cat", {}, TypeError, "phrases must be a string or a list of strings, not bytes"),
        ([], {}, ValueError, "there is no phrase"),
        ("cat", {"region": 5}, TypeError, "region must be x_min, y_min, x_max, y_max, not 5"),
        ("cat", {"region": (0, 0, 1)}, ValueError, "region must be x_min, y_min, x_max, y_max, not 3"),
        ("cat", {"timeout_s": "1"}, TypeError, "timeout_s must be a number, not '1'"),
    ],
)
def test_what_is_asked_wrongly_is_not_sent(
    script: Script, png: bytes, phrases: Any, options: Any, kind: type[Exception], reason: str
) -> None:
    async def ask_and_map() -> None:
        async with AsyncClient(script.url) as client:
            with pytest.raises(kind, match=reason):
                await client.detect(png, phrases, **options)
            with pytest.raises(kind, match=reason):
                client.map([png], phrases, **options)

    with Client(script.url) as client:
        for ask in (client.detect, client.point):
            with pytest.raises(kind, match=reason):
                ask(png, phrases, **options)
        with pytest.raises(kind, match=reason):
            client.map([png, png], phrases, **options)  # before the first picture, not once for each
    asyncio.run(ask_and_map())
    assert not script.asked


def test_names_that_are_none(script: Script) -> None:
    with Client(script.url) as client:
        for call in (
            lambda: client.jobs.submit(5, "labels", "cat"),  # type: ignore[arg-type]
            lambda: client.jobs.get(None),  # type: ignore[arg-type]
            lambda: client.images.delete(None),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match="must be a string, not"):
                call()
        for call in (lambda: client.jobs.get(""), lambda: client.images.delete("")):
            with pytest.raises(ValueError, match="must not be empty"):
                call()
        with pytest.raises(TypeError, match="phrases must be a string or a list"):
            client.jobs.submit("pictures", "labels", 5)  # type: ignore[arg-type]
    assert not script.asked


@pytest.mark.parametrize("image_id", ["x/../y", "i/1", ".", ".."])
def test_an_id_that_leads_elsewhere(script: Script, image_id: str) -> None:
    with Client(script.url) as client, pytest.raises(ValueError, match="image must be an id, not"):
        client.images.delete(image_id)
    assert not script.asked


def test_what_is_no_picture_for_the_stand_in_of_moondream(script: Script) -> None:
    with (
        md.vl(endpoint=script.url) as model,
        pytest.raises(ValueError, match=r"must be a PIL image .* not str"),
    ):
        model.detect("a.jpg", "cat")  # type: ignore[arg-type]
    assert not script.asked


def test_a_closed_client(script: Script, png: bytes) -> None:
    client = Client(script.url)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.detect(png, "cat")


def test_the_package_needs_none_of_the_server() -> None:
    program = (
        "import sys, pointbox, pointbox.compat.moondream\n"
        "print(*({name.partition('.')[0] for name in sys.modules} "
        "& {'app', 'engine', 'grammars', 'bench', 'torch', 'numpy', 'litestar', 'supervision'}))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
