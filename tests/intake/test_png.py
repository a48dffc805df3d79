"""Every kind of PNG, one transparent colour in each, and files with fewer rows than they claim."""

from __future__ import annotations

import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from app.intake.decode import decode
from app.problems import ProblemError
from tests.intake.pictures import chunk, encode, plain
from tests.intake.pngs import png

WIDTH, HEIGHT = 37, 29
X, Y = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))


def shows(data: bytes, expected: np.ndarray) -> None:
    assert np.abs(decode(data).image.astype(int) - np.rint(expected)).max() <= 1


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_one_transparent_grey(bits: int, interlaced: bool) -> None:
    top = 2**bits - 1
    grey = ((X * 7 + Y * 3) * max(1, top // 200) % (top + 1))[..., None]
    shows(png(grey, bits, interlaced=interlaced), grey * 255 / top)
    key = int(grey[3, 3, 0])
    data = png(grey, bits, interlaced=interlaced, front=chunk(b"tRNS", struct.pack(">H", key)))
    shows(data, np.where(grey == key, 255, grey * 255 / top))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_one_transparent_colour(bits: int, interlaced: bool) -> None:
    top = 2**bits - 1
    colours = np.stack([X * top // (WIDTH - 1), Y * top // (HEIGHT - 1), (X + Y) * top // 64], axis=-1)
    key = colours[5, 5].tolist()
    data = png(colours, bits, interlaced=interlaced, front=chunk(b"tRNS", struct.pack(">3H", *key)))
    shows(data, np.where((colours == key).all(axis=-1, keepdims=True), 255, colours * 255 / top))


def test_nearly_the_transparent_colour_is_not_transparent() -> None:
    black = np.zeros((HEIGHT, WIDTH, 3), np.int64)
    black[10:, :, 1] = 1  # of 65535
    shows(png(black, 16, front=chunk(b"tRNS", bytes(6))), np.where(Y[..., None] < 10, 255, 0))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_rows_that_are_missing_are_no_black_ones(bits: int, interlaced: bool) -> None:
    """One byte is missing, a few rows, or the header claims more of them."""
    grey = (X * 7 + Y * 3)[..., None] % 2**bits
    whole = png(grey, bits, interlaced=interlaced)
    assert decode(whole).height == HEIGHT
    for options in ({"missing": 1}, {"missing": 20}, {"rows": HEIGHT + 1}, {"rows": 4000}):
        with pytest.raises(ProblemError) as caught:
            decode(png(grey, bits, interlaced=interlaced, **options))
        assert (caught.value.slug, caught.value.status) == ("invalid-image", 422)
        assert "truncated" in caught.value.detail


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P"])
def test_missing_rows_in_every_mode(mode: str) -> None:
    samples = np.asarray(plain().convert(mode)).reshape(40, 100, -1).astype(np.int64)
    palette = chunk(b"PLTE", bytes(range(256)) * 3) if mode == "P" else b""
    options = {"palette": mode == "P", "front": palette}
    assert decode(png(samples, 8, **options)).height == 40
    with pytest.raises(ProblemError, match="fewer rows of pixels than its header says"):
        decode(png(samples, 8, rows=45, **options))


@pytest.mark.parametrize("colour", [0, 255])
def test_rows_that_are_black_or_white_are_there(colour: int) -> None:
    """However narrow the picture is, and whether it has one bit or more."""
    for width in (8, 9, 64):
        for bits in (1, 8):
            flat = np.full((40, width, 1), min(colour, 2**bits - 1))
            for interlaced in (False, True):
                for _ in range(5):
                    shows(png(flat, bits, interlaced=interlaced), np.full((40, width, 3), colour))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("transparency", [None, 0])
def test_missing_rows_of_a_gif(transparency: int | None, interlaced: bool) -> None:
    noise = Image.effect_noise((96, 64), 80).point(lambda value: max(1, value)).convert("P")
    options = {} if transparency is None else {"transparency": transparency}
    data = bytearray(encode(noise, "GIF", interlace=int(interlaced), **options))
    shows(bytes(data), np.asarray(noise.convert("RGB")).astype(int))
    frame = data.index(b"\x2c\0\0\0\0")
    for at in (8, frame + 7):
        data[at : at + 2] = (200).to_bytes(2, "little")
    with pytest.raises(ProblemError, match="truncated"):
        decode(bytes(data))


def test_the_next_frame_of_a_gif_is_not_read_for_missing_rows() -> None:
    frames = [Image.effect_noise((96, 64), 80).convert("P") for _ in range(4)]
    data = bytearray(encode(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert np.abs(decode(bytes(data)).image.astype(int) - np.asarray(frames[0].convert("RGB"))).max() <= 1
    frame = data.index(b"\x2c\0\0\0\0")
    for at in (8, frame + 7):
        data[at : at + 2] = (90).to_bytes(2, "little")
    with pytest.raises(ProblemError, match="truncated"):
        decode(bytes(data))


def test_a_gif_frame_smaller_than_its_screen() -> None:
    """Is whole, though nothing is painted below it."""
    data = bytearray(encode(plain().convert("P"), "GIF", transparency=3))
    data[8:10] = (60).to_bytes(2, "little")
    assert Image.open(BytesIO(bytes(data))).size == (100, 60)
    assert decode(bytes(data)).height == 60


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 80}])
def test_missing_rows_of_a_webp(options: dict[str, object]) -> None:
    data = bytearray(encode(Image.effect_noise((96, 64), 80).convert("RGB"), "WEBP", **options))
    if "lossless" in options:
        sizes = int.from_bytes(data[21:25], "little") & ~(0x3FFF << 14)
        data[21:25] = (sizes | 199 << 14).to_bytes(4, "little")
    else:
        data[28:30] = (200).to_bytes(2, "little")
    with pytest.raises(ProblemError, match="truncated"):
        decode(bytes(data))
