"""Forms as programs really write them."""

from __future__ import annotations

from typing import Any

import pytest

from app.forms import HEADER_LINE_BYTES, PART_HEADERS, PARTS, read_form
from app.problems import ProblemError

PNG = b"\x89PNG\r\n\x1a\n\0\0"
BMP = b"BM\x9a\0\0\0"


def form(*parts: tuple[bytes, bytes]) -> bytes:
    """Each part's headers and content."""
    written = (b"--b\r\n%s\r\n\r\n%s\r\n" % part for part in parts)
    return b"".join(written) + b"--b--\r\n"


def part(parameters: bytes, content: bytes, *headers: bytes) -> tuple[bytes, bytes]:
    return b"\r\n".join((b"Content-Disposition: form-data; " + parameters, *headers)), content


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (part(b'name="image"; filename="a.png"', PNG), PNG),
        (part(b'name="image"; filename="a.png"', b"AAAA", b"Content-Type: text/plain"), b"AAAA"),
        (part(b'name="image"', PNG), PNG),
        (part(b'name="image"', BMP), BMP),
        (part(b'name="image"', b"<svg>", b"Content-Type: image/svg+xml"), b"<svg>"),
        (part(b'name="image"', b"abc", b"Content-Type: application/octet-stream"), b"abc"),
        (part(b"name=\"image\"; filename*=UTF-8''bild%C3%A4.png", PNG), PNG),
        (part(b"name=\"image\"; filename*=UTF-8''a.png", b"abc"), b"abc"),
        (part(b'name="image"; filename=""', PNG, b"Content-Type: application/octet-stream"), PNG),
        (part(b'name="image"; filename=""', b"abc"), b"abc"),
        (part(b"name=image; filename=a.png", PNG), PNG),
    ],
)
def test_an_image_is_a_file_whatever_its_part_calls_it(image: tuple[bytes, bytes], found: bytes) -> None:
    texts, upload = read_form(form(part(b'name="object"', b"red circle"), image), "b")
    assert texts == [("object", "red circle")]
    assert upload == found


@pytest.mark.parametrize("text", [b"https://example.com/a.png", b"iVBORw0KGgo=", b"data:image/png;base64,AA"])
def test_an_image_as_text(text: bytes) -> None:
    texts, upload = read_form(form(part(b'name="image"', text)), "b")
    assert texts == [("image", text.decode())]
    assert upload is None


def test_a_file_input_where_nothing_was_chosen() -> None:
    empty = part(b'name="image"; filename=""', b"", b"Content-Type: application/octet-stream")
    assert read_form(form(empty, part(b'name="image_url"', b"x")), "b") == ([("image_url", "x")], None)


def test_texts_in_their_charset() -> None:
    sent = form(
        part(b'name="object"', "rötlich".encode()),
        part(b'name="object"', "rötlich".encode("latin-1"), b"Content-Type: text/plain; charset=latin-1"),
        part(b'name="id"; filename=""', b"mine"),
    )
    assert read_form(sent, "b") == ([("object", "rötlich"), ("object", "rötlich"), ("id", "mine")], None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (form(*[part(b'name="object"', b"x")] * (PARTS + 1)), "1,000 parts"),
        (form(part(b'name="object"; a="' + b"x" * HEADER_LINE_BYTES + b'"', b"x")), "4,096 bytes"),
        (b"--b\r\nX: " + b"x" * 9000, "4,096 bytes"),
        (form(part(b'name="object"', b"x", *[b"X-A: b"] * PART_HEADERS)), "8 headers"),
        (form(part(b'name="object"', b"x"))[:-8], "cannot be read"),
        (b"no form", "cannot be read"),
        (form((b"Content-Type: image/png", PNG)), "cannot be read"),
        (form(part(b'name="object"', b"\xff")), "not UTF-8"),
        (form(part(b'name="object"', b"x", b"Content-Type: text/plain; charset=zlib")), "not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_form(content: bytes, says: str) -> None:
    with pytest.raises(ProblemError) as refused:
        read_form(content, "b")
    assert (refused.value.slug, refused.value.status) == ("invalid-request", 400)
    assert says in refused.value.detail


@pytest.mark.parametrize("boundary", [None, ""])
def test_no_boundary(boundary: str | None) -> None:
    with pytest.raises(ProblemError, match="no boundary"):
        read_form(b"", boundary)


@pytest.mark.parametrize(
    "parts",
    [
        [part(b'name="image"; filename="a"', PNG), part(b'name="image"; filename="b"', PNG)],
        [part(b'name="picture"; filename="a"', PNG)],
    ],
)
def test_files_that_are_not_the_image(parts: list[Any]) -> None:
    with pytest.raises(ProblemError, match="named `image`"):
        read_form(form(*parts), "b")
