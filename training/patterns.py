"""Man-made patterns as backgrounds. All return float32 [height, width, 3], about 0..255."""

from __future__ import annotations

import numpy as np

from training.colours import any_colour, hsv, muted, near
from training.textures import axes, grain, noise, ramp, slope


def _pair(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two colours of a pattern: mostly close to each other."""
    first = muted(rng) if rng.random() < 0.5 else any_colour(rng)
    return first, near(first, rng, 70) if rng.random() < 0.75 else any_colour(rng)


def checkerboard(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    y, x = axes(height, width)
    size = min(height, width) / rng.uniform(5, 22)
    odd = ((x + rng.uniform(0, size)) // size + (y + rng.uniform(0, size)) // size) % 2
    return ramp(odd, *_pair(rng)).astype(np.float32)


def stripes(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    field = slope(height, width, rng.choice((0, 90, 45, rng.uniform(0, 180)))) * rng.uniform(4, 30)
    if rng.random() < 0.25:
        field = field + noise(rng, height, width, height / 2, 2) * rng.uniform(0.5, 2)
    wave = (
        field % 1 if rng.random() < 0.1 else np.clip(np.sin(field * 6.283) * rng.choice((0.5, 4)) + 0.5, 0, 1)
    )
    return ramp(wave, *_pair(rng))


def _course(
    rng: np.random.Generator, height: int, width: int, brick: float, ratio: float, shift: float
) -> tuple[np.ndarray, np.ndarray]:
    """A wall's tone per brick [height, width] in -0.5..0.5 and its joints as 0 or 1."""
    y, x = axes(height, width)
    row = np.floor(y / brick)
    along = x + (row % 2) * shift * brick * ratio
    column = np.floor(along / (brick * ratio))
    tone = np.sin(row * 78.233 + column * 12.9898 + rng.uniform(0, 6)) * 43758.5453 % 1 - 0.5
    joint = (y - row * brick < max(1, brick * 0.09)) | (along - column * brick * ratio < max(1, brick * 0.09))
    return tone.astype(np.float32), joint.astype(np.float32)


def bricks(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    tone, joint = _course(rng, height, width, height / rng.uniform(7, 20), rng.uniform(2.2, 3.2), 0.5)
    base = (
        hsv(rng.uniform(5, 30), rng.uniform(0.2, 0.6), rng.uniform(0.4, 0.8))
        if rng.random() < 0.6
        else muted(rng)
    )
    wall = base + tone[..., None] * rng.uniform(10, 60) + grain(rng, height, width, rng.uniform(0, 12))
    return wall + joint[..., None] * (muted(rng) - wall)


def tiles(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    tone, joint = _course(rng, height, width, min(height, width) / rng.uniform(4, 12), 1, 0)
    base = muted(rng) if rng.random() < 0.7 else any_colour(rng)
    wall = base + tone[..., None] * rng.uniform(0, 30) + grain(rng, height, width, rng.uniform(0, 5))
    return wall + joint[..., None] * (near(base, rng, 80) - wall)


def weave(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Plaid or cloth: two sets of bands multiplied."""
    y, x = axes(height, width)
    first, second = _pair(rng)
    one, two = rng.uniform(3, 40, 2)
    bands = (np.sin(x / one * 6.283 + rng.uniform(0, 6)) > 0) * 0.5 + (np.sin(y / two * 6.283) > 0) * 0.5
    return ramp(bands.astype(np.float32), first, second) + grain(rng, height, width, rng.uniform(0, 8))


def ruled(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Squared or lined paper."""
    y, x = axes(height, width)
    step = rng.uniform(6, 26)
    lines = ((y + rng.uniform(0, step)) % step < rng.uniform(1, 2)).astype(np.float32) + np.zeros_like(x)
    if rng.random() < 0.65:
        lines = np.maximum(lines, ((x + rng.uniform(0, step)) % step < rng.uniform(1, 2)).astype(np.float32))
    sheet = hsv(rng.uniform(30, 220), rng.uniform(0, 0.12), rng.uniform(0.85, 1))
    ink = near(sheet - 60, rng, 60)
    return ramp(lines, *((sheet, ink) if rng.random() < 0.8 else (ink * 0.3, sheet)))


def mosaic(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Large rectangles of several colours, split at random."""
    picture = np.empty((height, width, 3), np.float32)
    wild = rng.random() < 0.4
    stack = [(0, 0, width, height)]
    while stack:
        x0, y0, x1, y1 = stack.pop()
        wide, tall = x1 - x0, y1 - y0
        if max(wide, tall) > 24 and rng.random() < min(0.95, wide * tall * 9 / (height * width)):
            split = rng.uniform(0.2, 0.8)
            if wide > tall:
                middle = x0 + int(wide * split)
                stack += [(x0, y0, middle, y1), (middle, y0, x1, y1)]
            else:
                middle = y0 + int(tall * split)
                stack += [(x0, y0, x1, middle), (x0, middle, x1, y1)]
        else:
            picture[y0:y1, x0:x1] = any_colour(rng) if wild else muted(rng)
    return picture


def cells(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Cracked ground or low-poly facets: the nearest of some points decides the colour."""
    count = int(rng.integers(6, 22))
    y, x = axes(height, width)
    sites = rng.random((count, 2)).astype(np.float32) * (height, width)
    nearest = np.full((height, width), np.inf, np.float32)
    owner = np.zeros((height, width), np.uint8)
    for index, (row, column) in enumerate(sites.astype(np.float32)):
        squared = (y - row) ** 2 + (x - column) ** 2
        closer = squared < nearest
        owner[closer] = index
        np.minimum(nearest, squared, out=nearest)
    base, reach = (muted(rng), rng.uniform(10, 60)) if rng.random() < 0.7 else (any_colour(rng), 120)
    return np.stack([near(base, rng, reach) for _ in range(count)])[owner]


def dots(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A regular pattern of tiny dots."""
    y, x = axes(height, width)
    step = rng.uniform(4, 14)
    wave = np.sin(x / step * 6.283) * np.sin(y / step * 6.283)
    return ramp(np.clip((wave - rng.uniform(0.1, 0.7)) * 5, 0, 1), *_pair(rng))
