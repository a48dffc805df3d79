"""What Moondream sees of a picture: all of it, and overlapping crops of it enlarged."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

RGB = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class CropShape:
    """side: of a crop, pixels.  margin: pixels that a crop shares with each neighbour.  most: crops."""

    side: int = 378
    margin: int = 56
    most: int = 12

    @property
    def window(self) -> int:
        """Pixels from a crop to the next."""
        return self.side - 2 * self.margin


def tiling(height: int, width: int, window: int, most: int) -> tuple[int, int]:
    """Rows and columns of crops for an area: as many as there may be, nearly of its aspect, and covering it.

    Of an area that needs more than `most`, fewer that are enlarged less.
    """
    if height <= window or width <= window:
        return 1, 1
    rows, columns = math.ceil(height / window), math.ceil(width / window)
    if rows * columns > most:
        shrink = math.sqrt(most / (rows * columns))
        return max(1, math.floor(rows * shrink)), max(1, math.floor(columns * shrink))
    rows = max(rows, math.floor(math.sqrt(most * height / width)))
    columns = max(columns, math.floor(math.sqrt(most * width / height)))
    if rows * columns > most:
        if columns > rows:
            columns = most // rows
        else:
            rows = most // columns
    return rows, columns


def crops(image: RGB, shape: CropShape) -> tuple[RGB, tuple[int, int]]:
    """[H, W, 3] -> [1 + rows * columns, side, side, 3], and rows and columns.

    The first is the whole picture; a picture of a single crop has no other.
    """
    both = 2 * shape.margin
    height, width = image.shape[:2]
    rows, columns = tiling(height - both, width - both, shape.window, shape.most)
    whole = _resized(image, shape.side, shape.side)
    if rows * columns == 1:
        return np.stack([whole]), (1, 1)
    large = _resized(image, rows * shape.window + both, columns * shape.window + both)
    corners = [(r * shape.window, c * shape.window) for r in range(rows) for c in range(columns)]
    return np.stack([whole, *(large[y : y + shape.side, x : x + shape.side] for y, x in corners)]), (
        rows,
        columns,
    )


def _resized(image: RGB, height: int, width: int) -> RGB:
    """Lanczos; the aspect may change."""
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS))
