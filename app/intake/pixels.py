"""Pixels out of Pillow, a band of rows at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BAND_BYTES = 4 << 20
"""Pillow copies with the GIL held; so much takes a millisecond or two, and other threads go on in between."""


def array_of(image: Image.Image) -> NDArray[np.uint8]:
    """uint8 [height, width, 3], contiguous and writable, of an RGB image."""
    width, height = image.size
    pixels = np.empty((height, width, 3), np.uint8)
    rows = max(1, BAND_BYTES // (3 * width))
    for top in range(0, height, rows):
        bottom = min(height, top + rows)
        pixels[top:bottom] = np.asarray(image.crop((0, top, width, bottom)))
    return pixels
