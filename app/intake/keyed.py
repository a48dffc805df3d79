"""The one transparent colour of a PNG (tRNS), where Pillow does not compare the numbers of the file."""

from __future__ import annotations

import imagecodecs
import numpy as np
from numpy.typing import NDArray
from PIL import Image

_BIT_DEPTH, _INTERLACE = 24, 28
"""Where the header of a PNG has its bits per sample, and whether it is interlaced."""
_NEEDED = frozenset({b"IHDR", b"tRNS", b"IDAT", b"IEND"})


def with_exact_key(image: Image.Image, data: bytes) -> Image.Image:
    """The same picture with a transparent colour that Pillow converts rightly, or with alpha instead.

    Args:
        image: decoded by Pillow from the PNG `data`.
    """
    key, bits = image.info.get("transparency"), data[_BIT_DEPTH]
    if image.mode == "L" and isinstance(key, int) and bits < 8:
        top = (1 << bits) - 1
        image.info["transparency"] = (key & top) * 255 // top  # as the samples were scaled
    elif image.mode == "RGB" and isinstance(key, tuple) and bits == 16:
        image.putalpha(Image.fromarray(_alpha(image, key, data)))
        del image.info["transparency"]
    return image


def _alpha(image: Image.Image, key: tuple[int, ...], data: bytes) -> NDArray[np.uint8]:
    """Of a picture with 16 bits per sample, of which Pillow keeps the high bytes only."""
    if data[_INTERLACE]:  # libpng's binding complains on stderr; equal high bytes are the nearest to equal
        same = (np.asarray(image) == np.asarray(key) >> 8).all(axis=-1)
        return np.where(same, 0, 255).astype(np.uint8)
    samples = imagecodecs.png_decode(_bare(data))
    return (samples[..., 3] >> 8).astype(np.uint8)


def _bare(data: bytes) -> bytes:
    """Without the metadata, about which libpng would complain on stderr."""
    kept, at = [data[:8]], 8
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] in _NEEDED:
            kept.append(data[at:end])
        at = end
    return b"".join(kept)
