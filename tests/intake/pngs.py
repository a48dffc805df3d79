"""PNG files built chunk by chunk, to have kinds that no library writes."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from tests.intake.pictures import chunk

_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def png(
    samples: np.ndarray, bits: int, *, interlaced: bool = False, front: bytes = b"", back: bytes = b"",
    palette: bool = False, rows: int | None = None, missing: int = 0,
) -> bytes:  # fmt: skip
    """A PNG of [height, width, 1 to 4].

    Args:
        front: chunks in front of the pixels.
        back: chunks behind them.
        rows: the height that the header claims, where it is another.
        missing: bytes left out at the end of the pixels, before they are compressed.
    """
    height, width, count = samples.shape
    kind = 3 if palette else {1: 0, 2: 4, 3: 2, 4: 6}[count]
    steps = _PASSES if interlaced else ((0, 0, 1, 1),)
    parts = [samples[top::down, left::right] for left, top, right, down in steps]
    data = b"".join(_rows(part, bits) for part in parts if part.size)
    data = data[: len(data) - missing]
    header = struct.pack(">IIBBBBB", width, rows or height, bits, kind, 0, 0, int(interlaced))
    body = chunk(b"IHDR", header) + front + chunk(b"IDAT", zlib.compress(data)) + back + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _rows(part: np.ndarray, bits: int) -> bytes:
    flat = part.reshape(len(part), -1)
    if bits == 16:
        packed = flat.astype(">u2").view(np.uint8)
    else:
        each = (flat[..., None] >> np.arange(bits - 1, -1, -1)) & 1
        packed = np.packbits(each.reshape(len(part), -1).astype(np.uint8), axis=1)
    return np.pad(packed.reshape(len(part), -1), ((0, 0), (1, 0))).tobytes()
