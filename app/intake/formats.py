"""Which bytes count as an image: told by their signature, never by a name or a content type."""

from __future__ import annotations

from app.problems import ProblemError

ACCEPTED = ("JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF", "HEIC", "AVIF")
SPELLED = {name: name for name in ACCEPTED} | {"WEBP": "WebP", "HEIF": "HEIC"}
"""Pillow's name of a format -> how it is written to callers."""

_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_BMP_HEADER_SIZES = frozenset({12, 40, 52, 56, 64, 108, 124})
_OTHERS = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a zip archive or an office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"<svg", "an SVG drawing"),
    (b"<?xml", "an XML or SVG document"),
    (b"<", "a text document with markup"),
    (b"{", "JSON text"),
)
_PRINTED = frozenset(b"\t\n\f\r") | frozenset(range(0x20, 0x7F))
_SHORTEST_TEXT = 4
"""Fewer characters may as well be where a file was cut off."""


def format_of(data: bytes) -> str:
    """The name of an accepted format, as Pillow spells it.

    Raises:
        ProblemError: invalid-image when there are no bytes, unsupported-media when they are something else.
    """
    if not data:
        raise ProblemError("invalid-image", "The image is empty: it has no bytes.", field="image")
    found = _signature(data)
    if found is None:
        raise ProblemError(
            "unsupported-media",
            f"The bytes are {_describe(data)}, not an image that can be read. Send {', '.join(ACCEPTED)}.",
            field="image",
        )
    return found


def _signature(data: bytes) -> str | None:
    head = data[:32]
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES:
        return "BMP"
    if head[4:8] == b"ftyp":
        return _heif_or_avif(data)
    return None


def _heif_or_avif(data: bytes) -> str | None:
    """Tell HEIC from AVIF by the brands of the ISO file header: `mif1` alone says neither."""
    length = min(int.from_bytes(data[:4], "big"), 256, len(data))
    brands = {data[8:12]} | {data[at : at + 4] for at in range(16, length - 3, 4)}
    if brands & _AVIF_BRANDS:
        return "AVIF"
    return "HEIF" if brands & _HEIF_BRANDS else None


def _describe(data: bytes) -> str:
    head = data[:256].removeprefix(b"\xef\xbb\xbf").lstrip()
    for start, name in _OTHERS:
        if head.startswith(start):
            return name
    printed = all(byte in _PRINTED for byte in data[:64])
    return "text" if printed and len(data) >= _SHORTEST_TEXT else "of an unknown format"
