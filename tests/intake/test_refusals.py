"""Every row of docs/images.md that ends in a problem."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from app.intake.decode import decode
from app.intake.sniff import MIN_SIDE, check
from app.problems import ProblemError
from tests.intake.pictures import encode, plain, png_claiming

NOT_IMAGES = {
    "text": b"hello, this is no picture at all",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "xml": b'\xef\xbb\xbf<?xml version="1.0"?><svg/>',
    "pdf": b"%PDF-1.7 ...",
    "zip": b"PK\x03\x04" + b"\0" * 60,
    "gzip": b"\x1f\x8b" + b"\0" * 60,
    "mp4": b"\0\0\0\x18ftypisom\0\0\0\0isommp42",
    "psd": b"8BPS" + b"\0" * 40,
    "starts with BM": b"BMW is a maker of cars and of motorcycles",
    "bytes": bytes(range(128, 200)),
}


def refused(data: bytes) -> ProblemError:
    """The problem of decoding; the header check alone may be content, but must not say something else."""
    with pytest.raises(ProblemError) as caught:
        decode(data)
    assert caught.value.field == "image"
    return caught.value


@pytest.mark.parametrize("data", NOT_IMAGES.values(), ids=list(NOT_IMAGES))
def test_what_is_no_image_is_unsupported_and_the_formats_are_named(data: bytes) -> None:
    problem = refused(data)
    assert (problem.slug, problem.status) == ("unsupported-media", 415)
    assert "JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC, AVIF" in problem.detail
    with pytest.raises(ProblemError, match="not an image"):
        check(data)


@pytest.mark.parametrize("data", [bytes(100), b"BM", b"GI", b"MM\0", b"\x01\x02\x03\x04"])
def test_what_is_no_text_is_not_called_one(data: bytes) -> None:
    assert refused(data).detail.startswith("The bytes are of an unknown format, not an image")
    assert refused(NOT_IMAGES["text"]).detail.startswith("The bytes are text, not an image")


def test_an_empty_image() -> None:
    assert (refused(b"").slug, refused(b"").status) == ("invalid-image", 422)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "HEIF", "AVIF"])
def test_half_a_file_is_truncated(format: str) -> None:
    noise = Image.effect_noise((160, 120), 80).convert("RGB")
    data = encode(noise, format)
    problem = refused(data[: len(data) // 2])
    assert (problem.slug, problem.status) == ("invalid-image", 422)
    assert "truncated" in problem.detail


@pytest.mark.parametrize(("width", "height"), [(13_500, 13_500), (1, 1_000_000), (9_000, 9_000)])
def test_claimed_sizes_are_refused_before_decoding(width: int, height: int) -> None:
    data = png_claiming(width, height)
    tracemalloc.start()
    for look in (check, decode):
        with pytest.raises(ProblemError) as caught:
            look(data)
        assert (caught.value.slug, caught.value.status) == ("image-too-large", 413)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("size", [(2, 2), (1, 201), (201, 1), (MIN_SIDE - 1, 50)])
def test_too_small(size: tuple[int, int]) -> None:
    problem = refused(encode(Image.new("RGB", size), "PNG"))
    assert (problem.slug, problem.status) == ("invalid-image", 422)
    assert f"at least {MIN_SIDE}" in problem.detail


def test_the_smallest_that_is_read() -> None:
    assert decode(encode(Image.new("RGB", (MIN_SIDE, 300)), "PNG")).height == 300


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "HEIF", "AVIF"])
def test_damaged_bytes_raise_only_problems(format: str) -> None:
    chance = random.Random(format)
    whole = encode(plain(48, 32), format)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 20))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        with suppress(ProblemError):
            decode(bytes(data))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_raise_only_problems(data: bytes) -> None:
    with pytest.raises(ProblemError):
        decode(data)
