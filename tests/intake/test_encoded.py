"""Base64 and data URIs as clients really write them."""

from __future__ import annotations

import base64
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.intake.encoded import image_bytes
from app.problems import ProblemError

DATA = bytes(range(256)) + b"\xfb\xff\xfe"
PLAIN = base64.b64encode(DATA).decode()

SPELLINGS = {
    "bare": PLAIN,
    "bare without padding": base64.b64encode(DATA + b"x").decode().rstrip("="),
    "data uri": f"data:image/png;base64,{PLAIN}",
    "upper case": f"DATA:IMAGE/PNG;BASE64,{PLAIN}",
    "parameters": f"data:image/png;charset=utf-8;base64,{PLAIN}",
    "no media type": f"data:;base64,{PLAIN}",
    "spaces between the parameters": f"data:image/png; charset=utf-8 ; base64 ,{PLAIN}",
    "a space before base64": f"data:image/png; base64,{PLAIN}",
    "no type": f"data:;base64,{PLAIN}",
    "newlines": f"data:image/png;base64,{PLAIN[:70]}\n{PLAIN[70:140]}\r\n{PLAIN[140:]}\n",
    "spaces after the comma": f"data:image/png;base64,  {PLAIN}",
    "url-safe": base64.urlsafe_b64encode(DATA).decode(),
    "percent": f"data:image/png;base64,{quote(PLAIN, safe='')}",
    "percent-encoded bytes": "data:image/png," + quote(DATA, safe=""),
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=list(SPELLINGS))
def test_spellings(text: str) -> None:
    assert image_bytes(text, field="image") in (DATA, DATA + b"x")


def test_percent_2b_is_a_plus() -> None:
    assert "%2B" in SPELLINGS["percent"]


@pytest.mark.parametrize(
    "text",
    ["QUJD!!!", "QUJD*", "A", "QUI=QUJD", "Ünïcode", "data:;base64,QUJD!!!", "data:image/png"],
)
def test_foreign_characters_are_not_dropped(text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        image_bytes(text, field="image_url")
    assert (caught.value.slug, caught.value.status) == ("invalid-request", 400)
    assert caught.value.field == "image_url"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/a.png", "HTTPS://[::1]/", " file:///etc/passwd", "s3://b/k"]
)
def test_other_urls_are_no_encoding(url: str) -> None:
    with pytest.raises(ProblemError, match="not read from") as caught:
        image_bytes(url, field="image_url")
    assert caught.value.status == 422


def test_nothing_is_no_bytes() -> None:
    assert image_bytes("", field="image") == b""
    assert image_bytes("data:image/png;base64,", field="image") == b""


@given(st.binary(max_size=300))
def test_round_trip(data: bytes) -> None:
    assert image_bytes(base64.b64encode(data).decode(), field="image") == data
    assert image_bytes(base64.urlsafe_b64encode(data).decode().rstrip("="), field="image") == data


@given(st.text(max_size=60))
def test_any_text_raises_only_problems(text: str) -> None:
    with suppress(ProblemError):
        image_bytes(text, field="image")
