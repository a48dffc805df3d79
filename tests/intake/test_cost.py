"""What decoding will cost, told from the header alone."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image

from app.intake.cost import COSTLY, Cost, unknown_cost
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake.pictures import chunk, encode

MB = 1_000_000


def png(side: int, depth: int = 8, colour: int = 2, interlaced: bool = False) -> bytes:
    """A header that claims so much, and hardly any pixels."""
    head = struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, int(interlaced))
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 64)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, body) for kind, body in parts)


def jpeg(side: int, scans: int = 0, progressive: bool = False) -> bytes:
    """A small JPEG whose header claims `side`, with its last scan so many times more."""
    data = encode(Image.new("RGB", (64, 64)), "JPEG", progressive=progressive)
    at = data.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5
    data = data[:at] + struct.pack(">HH", side, side) + data[at + 4 :]
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * scans + data[-2:]


def gif(side: int) -> bytes:
    data = encode(Image.new("P", (64, 64)), "GIF")
    at = data.index(b"\x2c\0\0\0\0") + 5
    size = struct.pack("<HH", side, side)
    return data[:6] + size + data[10:at] + size + data[at + 4 :]


def tiff(side: int, strips: int, size: int, compression: int = 8, padding: int = 0) -> bytes:
    """A TIFF of so many strips that all claim the same `size` bytes."""
    entries = [
        (256, 3, 1, side), (257, 3, 1, side), (258, 3, 1, 8), (259, 3, 1, compression), (262, 3, 1, 1),
        (273, 4, strips, 0), (277, 3, 1, 1), (278, 3, 1, -(-side // strips)), (279, 4, strips, 0),
    ]  # fmt: skip
    lists = 8 + 2 + 12 * len(entries) + 4
    places = {273: lists, 279: lists + 4 * strips}
    data = lists + 8 * strips
    body = b"II*\0" + struct.pack("<IH", 8, len(entries))
    for tag, kind, count, value in entries:
        body += struct.pack("<HHI", tag, kind, count)
        here = data if tag == 273 else value or size
        body += struct.pack("<I", places.get(tag, value) if count > 1 else here)
    body += b"\0\0\0\0" + struct.pack("<I", data) * strips + struct.pack("<I", size) * strips
    return body + zlib.compress(b"\0" * 64) + b"\0" * padding


@pytest.mark.parametrize(
    ("data", "least", "most"),
    [
        (encode(Image.new("RGB", (640, 480)), "JPEG"), 1, 1),
        (encode(Image.new("RGB", (1200, 1200)), "PNG"), 1, 1),
        (encode(Image.new("RGBA", (512, 512)), "WEBP"), 1, 1),
        (jpeg(3500), 4, COSTLY - 1),
        (jpeg(8192), 25, 60),
        (jpeg(8192, progressive=True), 30, 80),
        (png(8192), 30, 60),
        (png(8192, interlaced=True), 50, 90),
        (png(8192, depth=16, colour=6), 80, 160),
        (gif(8192), 35, 80),
        (tiff(8192, 1, 100), 40, 90),
    ],
    ids=lambda value: value if isinstance(value, int) else f"{len(value)} bytes",
)  # fmt: skip
def test_prices(data: bytes, least: int, most: int) -> None:
    cost = check(data).cost
    assert least <= cost.price <= most
    assert cost.costly == (cost.price >= COSTLY)


def test_memory_follows_the_pixels() -> None:
    small, large = check(png(1000)).cost, check(png(8000)).cost
    assert small.memory < 30 * MB
    assert 64 * 10 * MB < large.memory < 64 * 30 * MB


def test_a_handle_of_unknown_kind_costs_at_least_what_usual_kinds_do() -> None:
    for data in (png(4000), jpeg(4000), gif(4000), png(4000, interlaced=True)):
        cost, unknown = check(data).cost, unknown_cost(4000, 4000, len(data))
        assert unknown.price >= cost.price
        assert unknown.memory >= cost.memory


def test_scans_of_a_jpeg_are_priced() -> None:
    """A scan of a few bytes visits every coefficient of the picture."""
    assert check(jpeg(4000, scans=90, progressive=True)).cost.price > check(jpeg(4000)).cost.price + 5
    only_the_first_is_read = check(jpeg(4000, scans=90)).cost.price
    assert only_the_first_is_read == check(jpeg(4000)).cost.price


def test_strips_of_a_tiff_that_share_their_bytes_are_priced() -> None:
    apart = check(tiff(4000, 2000, 50, padding=MB)).cost.price
    shared = check(tiff(4000, 2000, MB, padding=MB)).cost.price
    assert shared > apart + 100


def test_what_would_take_minutes_is_refused() -> None:
    """Strips that share their bytes."""
    with pytest.raises(ProblemError) as caught:
        check(tiff(8000, 8000, 4 * MB, padding=4 * MB))
    assert caught.value.slug == "image-too-large"
    assert "would take too long" in caught.value.detail


def test_a_turned_picture_costs_the_same() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    Image.new("RGB", (64, 40)).save(out, "JPEG", exif=exif)
    assert check(out.getvalue()).cost == Cost(1, 64 * 40 * 14 + len(out.getvalue()))
