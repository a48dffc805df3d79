"""Names for intact images of accepted formats that are of a kind that is not read, from their headers."""

from __future__ import annotations

import re

_JPEG_PROCESSES = {
    0xC3: "lossless",
    0xC5: "hierarchical",
    0xC6: "hierarchical",
    0xC7: "hierarchical",
    0xC9: "arithmetic coding",
    0xCA: "arithmetic coding",
    0xCB: "lossless, arithmetic coding",
    0xCD: "hierarchical",
    0xCE: "hierarchical",
    0xCF: "hierarchical",
    0xF7: "JPEG-LS",
}
"""Start of frame marker -> what differs from baseline and progressive."""
_FRAMES = frozenset(_JPEG_PROCESSES) | {0xC0, 0xC1, 0xC2}
_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD9)})
_MAX_SEGMENTS = 10_000
_BMP_COMPRESSIONS = {
    4: "JPEG inside",
    5: "PNG inside",
    6: "bit fields with alpha",
    11: "CMYK",
    12: "CMYK, RLE8",
    13: "CMYK, RLE4",
}
_BMP_DEPTHS = frozenset({1, 4, 8, 16, 24, 32})
_OS2_HEADER = 64
_HEIF_ITEM = re.compile(rb"infe[\x02\x03]...(?:..|....)..([a-zA-Z0-9]{4})", re.DOTALL)
_HEIF_CODINGS = {
    b"avc1": "AVC",
    b"jpeg": "JPEG",
    b"j2k1": "JPEG 2000",
    b"unci": "uncompressed",
    b"vvc1": "VVC",
    b"evc1": "EVC",
}
_HEIF_HEAD = 1 << 16


def unread_kind(format: str, data: bytes) -> str | None:
    """What kind of image this is, asked only once reading it has failed.

    Args:
        format: as Pillow spells it.

    Returns:
        None where the header says that it should have been read, so that the data must be damaged.
    """
    if format == "JPEG":
        return _jpeg(data)
    if format == "BMP":
        return _bmp(data)
    if format == "PNG":
        return "Apple's CgBI" if data[12:16] == b"CgBI" else None
    return _heif(data) if format in ("HEIF", "AVIF") else None


def _jpeg(data: bytes) -> str | None:
    frame = _jpeg_frame(data)
    if frame is None:
        return None
    marker, at = frame
    bits, height, components = data[at + 4], int.from_bytes(data[at + 5 : at + 7], "big"), data[at + 9]
    named = [_JPEG_PROCESSES[marker]] if marker in _JPEG_PROCESSES else []
    if bits in (12, 16):  # others are damage
        named.append(f"{bits} bits per sample")
    if components not in (1, 3, 4):
        named.append(f"{components} components")
    if height == 0:
        named.append("number of rows given behind the pixels")
    return ", ".join(named) or None


def _jpeg_frame(data: bytes) -> tuple[int, int] | None:
    """The marker that starts the frame, and where it is."""
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if at + 10 > len(data) or data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker in _FRAMES:
            return marker, at
        if marker == 0xFF:
            at += 1
        elif marker in _BARE_MARKERS:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _bmp(data: bytes) -> str | None:
    header = int.from_bytes(data[14:18], "little")
    if header == 12:
        bits, compression = int.from_bytes(data[24:26], "little"), 0
    else:
        bits, compression = int.from_bytes(data[28:30], "little"), int.from_bytes(data[30:34], "little")
    if header == _OS2_HEADER and compression in (3, 4):
        return "Huffman coding" if compression == 3 else "RLE24"
    named = [] if bits in _BMP_DEPTHS else [f"{bits} bits per pixel"]
    if compression > 3:
        named.append(_BMP_COMPRESSIONS.get(compression, f"compression {compression}"))
    return ", ".join(named) or None


def _heif(data: bytes) -> str | None:
    """Only codings that the decoder lacks are named."""
    found = {_HEIF_CODINGS[item] for item in _HEIF_ITEM.findall(data[:_HEIF_HEAD]) if item in _HEIF_CODINGS}
    return f"{', '.join(sorted(found))} coding" if found else None
