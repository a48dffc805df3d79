"""Building blocks of backgrounds: noise fields, ramps between colours, coordinates."""

from __future__ import annotations

import numpy as np
from PIL import Image


def stretched(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """A small float32 grid [h, w] resized smoothly to [height, width]."""
    return np.asarray(Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC))


def noise(
    rng: np.random.Generator, height: int, width: int, cell: float, octaves: int = 3, aspect: float = 1.0
) -> np.ndarray:
    """Value noise, float32 [height, width], mean 0.5, most of it in 0..1.

    `cell` is the largest feature's height in pixels, `aspect` its width over its height.
    """
    field = np.zeros((height, width), np.float32)
    share = 1.0
    for _ in range(octaves):
        rows, columns = int(height / cell) + 2, int(width / (cell * aspect)) + 2
        field += share * stretched(rng.random((rows, columns), dtype=np.float32), height, width)
        share *= 0.55
        cell = max(cell / 2.2, 1.2)
    return (field - field.mean()) / (4 * field.std() + 1e-3) + 0.5


def grain(rng: np.random.Generator, height: int, width: int, strength: float) -> np.ndarray:
    """Per-pixel gaussian noise, float32 [height, width, 1]."""
    return rng.standard_normal((height, width, 1), dtype=np.float32) * np.float32(strength)


def ramp(field: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Colours [height, width, 3] that go from `low` where the field is 0 to `high` where it is 1."""
    return low + np.clip(field, 0, 1)[..., None] * (high - low)


def palette(field: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Colours [height, width, 3]: a 0..1 field through a smooth list of colours [n, 3]."""
    stops = np.linspace(0, 255, len(colours))
    table = np.stack([np.interp(np.arange(256), stops, colours[:, c]) for c in range(3)], 1)
    return table.astype(np.float32)[(np.clip(field, 0, 1) * 255).astype(np.uint8)]


def axes(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixel coordinates y [height, 1] and x [1, width], float32."""
    return np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None]


def slope(height: int, width: int, degrees: float) -> np.ndarray:
    """A linear field, float32 [height, width], from 0 to 1 along a direction."""
    y, x = axes(height, width)
    field = x * np.float32(np.cos(np.radians(degrees))) + y * np.float32(np.sin(np.radians(degrees)))
    return (field - field.min()) / (np.ptp(field) + 1e-6)


def spread(height: int, width: int, x: float, y: float) -> np.ndarray:
    """Distance from a point (fractions of the image), 1 at the farthest corner; float32 [height, width]."""
    rows, columns = axes(height, width)
    field = np.hypot(columns - np.float32(x * width), rows - np.float32(y * height))
    return field / field.max()
