"""Kinds of TIFF beyond unsigned bytes, and what decoding one may take."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from app.intake import tiff
from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake.pictures import plain
from tests.intake.profiles import swapped_profile

WIDTH, HEIGHT = 72, 45
X, Y = np.meshgrid(np.arange(WIDTH) / (WIDTH - 1), np.arange(HEIGHT) / (HEIGHT - 1))
COLOURS = np.stack([X, Y, (X + Y) / 2], axis=-1)
"""What a viewer shows, 0 to 1; the first channel alone is the grey of grey pictures."""
HALVES = np.broadcast_to(np.arange(WIDTH) % 3 / 2.0, (HEIGHT, WIDTH))[..., None]
"""Alpha: 0, a half and 1 by columns."""
COMPRESSIONS: dict[str, dict[str, Any]] = {
    "uncompressed": {},
    "strips": {"rowsperstrip": 7},
    "tiles": {"tile": (16, 32), "compression": "zlib"},
    "lzw, predictor": {"compression": "lzw", "predictor": True, "rowsperstrip": 9},
    "packbits": {"compression": "packbits"},
}


def numbers(values: np.ndarray, dtype: str) -> np.ndarray:
    """0 to 1 over the whole range of a number type."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return values.astype(kind)
    return np.floor(values * float(np.iinfo(kind).max)).astype(np.float64).astype(kind)


def written(samples: np.ndarray, photometric: str, **options: Any) -> bytes:
    """A TIFF of [height, width, samples]."""
    out = BytesIO()
    if options.get("planarconfig") == "separate":
        samples = np.ascontiguousarray(np.moveaxis(samples, -1, 0))
    elif samples.shape[-1] == 1:
        samples = samples[..., 0]
    tifffile.imwrite(out, samples, photometric=photometric, metadata=None, **options)
    return out.getvalue()


def shows(data: bytes, expected: np.ndarray, tolerance: int = 2) -> list[str]:
    """Check the pixels; `expected` is 0 to 1. Returns the notes."""
    found = decode(data)
    header = check(data)
    assert (header.width, header.height) == (found.width, found.height)
    assert np.abs(found.image.astype(int) - np.rint(expected * 255)).max() <= tolerance
    return found.notes


def refusal(data: bytes) -> ProblemError:
    """The problem, which the check of the header finds as well."""
    with pytest.raises(ProblemError) as early:
        check(data)
    with pytest.raises(ProblemError) as caught:
        decode(data)
    assert early.value.detail == caught.value.detail
    return caught.value


@pytest.mark.parametrize("layout", COMPRESSIONS)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", ["u2", "u4", "i2", "i4", "f2", "f4", "f8"])
def test_greys_either_way_up_in_either_byte_order(dtype: str, order: str, layout: str) -> None:
    grey, options = X[..., None], {"byteorder": order, **COMPRESSIONS[layout]}
    shows(written(numbers(grey, dtype), "minisblack", **options), grey)
    shows(written(numbers(grey, dtype), "miniswhite", **options), 1 - grey)


@pytest.mark.parametrize("layout", COMPRESSIONS)
@pytest.mark.parametrize("planes", ["contig", "separate"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "f4", "f8"])
def test_colours_in_one_plane_or_in_three(dtype: str, planes: str, layout: str) -> None:
    for order in "<>":
        options = {"planarconfig": planes, "byteorder": order, **COMPRESSIONS[layout]}
        shows(written(numbers(COLOURS, dtype), "rgb", **options), COLOURS)


@pytest.mark.parametrize("planes", ["contig", "separate"])
@pytest.mark.parametrize("kind", ["unassalpha", "assocalpha", "unspecified"])
@pytest.mark.parametrize("photometric", ["minisblack", "rgb"])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
def test_alpha(dtype: str, photometric: str, kind: str, planes: str) -> None:
    colours = COLOURS if photometric == "rgb" else X[..., None]
    expected = colours if kind == "unspecified" else colours * HALVES + 1 - HALVES
    stored = colours * HALVES if kind == "assocalpha" else colours
    samples = numbers(np.concatenate([stored, HALVES], axis=-1), dtype)
    data = written(samples, photometric, extrasamples=[kind], planarconfig=planes)
    notes = shows(data, expected, 4)
    assert ("transparency composited on white" in notes) == (kind != "unspecified")


@pytest.mark.parametrize("bits", [2, 4, 6, 10, 12, 14])
def test_packed_greys_use_their_own_range(bits: int) -> None:
    grey = np.rint(X * (2**bits - 1)).astype("u1" if bits <= 8 else "u2")[..., None]
    expected = grey / (2**bits - 1)
    shows(written(grey, "minisblack", bitspersample=bits), expected)
    shows(written(grey, "miniswhite", bitspersample=bits), 1 - expected)


@pytest.mark.parametrize("bits", [8, 16])
def test_palettes(bits: int) -> None:
    """Of 16-bit colours, of 8-bit colours in their place, and with more than 256 of them."""
    table = np.random.default_rng(bits).integers(0, 256, (3, 2**bits)).astype("u2")
    index = np.arange(WIDTH * HEIGHT).reshape(HEIGHT, WIDTH, 1) % 2**bits
    expected = table.T[index[..., 0]] / 255
    for colours in (table * 257, table):
        shows(written(index.astype(f"u{bits // 8}"), "palette", colormap=colours), expected, 0)


@pytest.mark.parametrize("planes", ["contig", "separate"])
@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_cmyk(dtype: str, planes: str) -> None:
    inks = np.concatenate([COLOURS, np.full_like(HALVES, 0.2)], axis=-1)
    expected = (1 - COLOURS) * 0.8
    shows(written(numbers(inks, dtype), "separated", planarconfig=planes), expected, 3)
    more = np.concatenate([inks, HALVES], axis=-1)
    data = written(numbers(more, dtype), "separated", planarconfig=planes, extrasamples=["unassalpha"])
    shows(data, expected * HALVES + 1 - HALVES, 3)


def test_lab_of_8_and_16_bits_agree() -> None:
    light, a, b = 20 + 60 * X, 40 * Y - 20, 20 - 40 * Y
    cie = np.stack([light * 655.35, a * 256, b * 256], axis=-1).astype("i4").astype("u2")
    icc = np.stack([light * 652.8, a * 256 + 32768, b * 256 + 32768], axis=-1).astype("u2")
    narrow = np.stack([light * 2.55, np.rint(a), np.rint(b)], axis=-1).astype("i4").astype("u1")
    expected = decode(written(narrow, "cielab")).image / 255
    shows(written(cie, "cielab"), expected, 8)
    shows(written(icc, "icclab"), expected, 8)


def test_floats_from_0_to_1_are_shown_as_they_are_and_others_stretched() -> None:
    grey = 0.25 + X[..., None] / 2
    notes = shows(written(grey.astype("f4"), "minisblack"), grey)
    assert notes == ["floating point grey from 0 to 1 scaled to 8 bits"]
    notes = shows(written((COLOURS * 900 - 300).astype("f4"), "rgb"), COLOURS)
    assert notes == ["colours stretched from their own minimum and maximum to 8 bits"]
    spotted = grey.astype("f8")
    spotted[0, 0], spotted[1, 1], spotted[2, 2] = np.nan, np.inf, -np.inf
    shown = decode(written(spotted, "minisblack")).image
    assert shown[0, 0, 0] == shown[1, 1, 0] == shown[2, 2, 0] == 0
    huge = np.where(X[..., None] > 0.5, 1e308, -1e308)
    assert decode(written(huge, "minisblack")).image.shape == (HEIGHT, WIDTH, 3)


def test_integers_from_2_to_the_31() -> None:
    grey = (2**31 + np.rint(X * (2**31 - 1))).astype("u4")[..., None]
    assert shows(written(grey, "minisblack"), X[..., None]) == [
        "grey stretched from its own minimum and maximum to 8 bits"
    ]


@pytest.mark.parametrize("dtype", ["u1", "u2"])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_all_kinds_are_turned_and_say_so(orientation: int, dtype: str) -> None:
    image = np.asarray(plain())
    data = written(numbers(image / 255, dtype), "rgb", extratags=[(274, 3, 1, orientation, True)])
    upright = {
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: a.swapaxes(0, 1)[:, ::-1],
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: a.swapaxes(0, 1)[::-1],
    }[orientation](image)
    assert shows(data, upright / 255) == [f"turned upright (EXIF orientation {orientation})"]


def test_the_profile_of_a_wide_kind_is_used() -> None:
    red = np.zeros((HEIGHT, WIDTH, 3))
    red[..., 0] = 1
    profile = swapped_profile()
    data = written(numbers(red, "u2"), "rgb", extratags=[(34675, 7, len(profile), profile, True)])
    notes = shows(data, red[..., ::-1], 6)
    assert notes == ["colours converted from the embedded profile to sRGB"]


def test_the_first_of_several_pages() -> None:
    out = BytesIO()
    with tifffile.TiffWriter(out) as writer:
        for grey in (X, 1 - X):
            writer.write(numbers(grey, "u2"), photometric="minisblack", metadata=None)
    shows(out.getvalue(), X[..., None])


UNREAD = {
    "complex64": (np.ones((9, 9, 1), "c8"), "minisblack", {}),
    "float64, 5 samples": (np.ones((9, 9, 5)), "minisblack", {"planarconfig": "contig"}),
    "uint8, 5 samples": (np.ones((9, 9, 5), "u1"), "minisblack", {"planarconfig": "contig"}),
    "uint16, camera raw": (np.ones((9, 9, 1), "u2"), "cfa", {}),
    "float32, 4 samples, CMYK": (np.ones((9, 9, 4), "f4"), "separated", {}),
    "uint16, 3 samples, LERC compression": (np.ones((9, 9, 3), "u2"), "rgb", {"compression": "lerc"}),
    "uint8, 3 samples, JPEG2000 compression": (np.ones((9, 9, 3), "u1"), "rgb", {"compression": "jpeg2000"}),
    "uint8, 3 samples, WEBP compression": (np.ones((9, 9, 3), "u1"), "rgb", {"compression": "webp"}),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_kinds_that_are_not_read_are_called_by_name(kind: str) -> None:
    samples, photometric, options = UNREAD[kind]
    problem = refusal(written(samples, photometric, **options))
    assert (problem.slug, problem.status) == ("unsupported-media", 415)
    assert problem.detail.startswith(f"This kind of TIFF ({kind}) is not read.")


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4"])
@pytest.mark.parametrize("layout", COMPRESSIONS)
def test_fewer_rows_than_claimed(layout: str, dtype: str) -> None:
    """Also where the last part of the file is missing."""
    samples = numbers(np.random.default_rng(1).random((HEIGHT, WIDTH, 3)), dtype)
    data = written(samples, "rgb", **COMPRESSIONS[layout])
    for damaged in (_claiming(data, 200), data[: len(data) * 2 // 3]):
        with pytest.raises(ProblemError) as caught:
            decode(damaged)
        assert (caught.value.slug, caught.value.status) == ("invalid-image", 422)
        assert "truncated" in caught.value.detail


def _claiming(data: bytes, rows: int) -> bytes:
    """With another height, and strips as long as before or, where there is one, as the height."""
    changed = bytearray(data)
    tags = tifffile.TiffFile(BytesIO(data)).pages[0].tags
    for name in ("ImageLength", "RowsPerStrip"):
        if name in tags and tags[name].value == HEIGHT:
            changed[tags[name].valueoffset : tags[name].valueoffset + 2] = struct.pack("<H", rows)
    return bytes(changed)


def test_tiles_that_cost_more_than_they_show() -> None:
    """A few bytes that are one tile many times larger than the picture, and a tile for each pixel."""
    data = bytearray(written(numbers(COLOURS, "u2"), "rgb", tile=(16, 16), compression="zlib"))
    tags = tifffile.TiffFile(BytesIO(bytes(data))).pages[0].tags
    for name in ("TileWidth", "TileLength"):
        data[tags[name].valueoffset : tags[name].valueoffset + 2] = struct.pack("<H", 65520)
    assert refused(bytes(data)) == (413, "image-too-large")
    wide = Image.new("RGB", (20_000, 2_000))
    out = BytesIO()
    tifffile.imwrite(
        out, np.asarray(wide), photometric="rgb", tile=(16, 16), metadata=None, compression="zlib"
    )
    assert tiff.MAX_SEGMENTS < (20_000 // 16) * (2_000 // 16)
    assert refused(out.getvalue()) == (413, "image-too-large")


def refused(data: bytes) -> tuple[int, str]:
    """The status and the slug of the problem."""
    with pytest.raises(ProblemError) as caught:
        decode(data)
    return caught.value.status, caught.value.slug
