"""Backgrounds: `background` draws one of many kinds, sometimes two side by side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter

from training import patterns, places
from training.clutter import scatter, soft_discs
from training.colours import any_colour, hsv, muted, named
from training.queries import COLOURS
from training.textures import grain, noise, palette, ramp, slope, spread

Painter = Callable[[np.random.Generator, int, int], np.ndarray]


def background(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A background picture, float32 [height, width, 3], about 0..255."""
    picture = _one(rng, height, width)
    if rng.random() < 0.12:
        picture = _joined(rng, picture, _one(rng, height, width))
    if rng.random() < 0.22:
        picture = scatter(rng, picture)
    if rng.random() < 0.12:
        picture = picture * (1 - rng.uniform(0.2, 0.6) * spread(height, width, 0.5, 0.5)[..., None] ** 2)
    return picture.astype(np.float32, copy=False)


def _one(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    painter: Painter = PAINTERS[rng.choice(len(PAINTERS), p=SHARES)]
    return painter(rng, height, width)


def _joined(rng: np.random.Generator, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Two backgrounds, divided along a line or a noise contour, softly or sharply."""
    height, width = first.shape[:2]
    if rng.random() < 0.6:
        field = slope(height, width, rng.choice((0, 90, rng.uniform(0, 360)))) - rng.uniform(0.3, 0.7)
    else:
        field = noise(rng, height, width, height / 2, 2) - 0.5
    share = np.clip(field * rng.choice((4, 200)) + 0.5, 0, 1)[..., None]
    return first + share * (second - first)


def flat(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    colour = muted(rng) if rng.random() < 0.4 else any_colour(rng)
    if rng.random() < 0.2:
        colour = named(str(rng.choice(COLOURS)), rng)
    return np.broadcast_to(colour, (height, width, 3)).copy()


def white(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    value = 1 if rng.random() < 0.5 else rng.uniform(0.93, 1)
    return np.broadcast_to(hsv(rng.uniform(20, 240), rng.uniform(0, 0.04), value), (height, width, 3)).copy()


def light(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    return np.broadcast_to(
        hsv(rng.uniform(0, 360), rng.uniform(0, 0.18), rng.uniform(0.75, 0.97)), (height, width, 3)
    ).copy()


def dark(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    return np.broadcast_to(
        hsv(rng.uniform(0, 360), rng.uniform(0, 0.5), rng.uniform(0, 0.2)), (height, width, 3)
    ).copy()


def gradient(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    if rng.random() < 0.6:
        field = slope(height, width, rng.uniform(0, 360))
    else:
        field = spread(height, width, rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9))
    pick = muted if rng.random() < 0.4 else any_colour
    return palette(field, np.stack([pick(rng) for _ in range(rng.integers(2, 5))]))


def plasma(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Soft clouds of several colours."""
    field = noise(rng, height, width, height / rng.uniform(1, 4), int(rng.integers(1, 6)))
    pick = muted if rng.random() < 0.6 else any_colour
    return palette(field, np.stack([pick(rng) for _ in range(rng.integers(2, 5))]))


def paper(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Plaster, paper, felt: one colour with fine structure and grain."""
    colour = muted(rng) if rng.random() < 0.7 else any_colour(rng)
    field = noise(rng, height, width, rng.uniform(3, 40), 4) - 0.5
    return colour + field[..., None] * rng.uniform(10, 70) + grain(rng, height, width, rng.uniform(0, 10))


def static(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Strong noise of fine cells, gray or coloured."""
    cell = rng.uniform(1.5, 8)
    fields = [noise(rng, height, width, cell, 1) for _ in range(3 if rng.random() < 0.5 else 1)]
    return any_colour(rng) + (np.stack(fields, 2) - 0.5) * rng.uniform(40, 220)


def marble(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    field = noise(rng, height, width, height / 2, 4)
    veins = np.abs(np.sin(field * rng.uniform(6, 18) + slope(height, width, rng.uniform(0, 360)) * 4))
    return ramp(veins ** rng.uniform(0.3, 1.5), muted(rng), muted(rng))


def camouflage(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Flat patches with sharp contours."""
    field = noise(rng, height, width, height / rng.uniform(2, 6), int(rng.integers(1, 4)))
    colours = np.stack([(muted if rng.random() < 0.6 else any_colour)(rng) for _ in range(4)])
    return colours[(np.clip(field, 0, 0.999) * 4).astype(np.uint8)]


def bokeh(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Lights out of focus: faint soft discs on a dark or muted ground."""
    base = gradient(rng, height, width) * rng.uniform(0.2, 0.8)
    return soft_discs(rng, base)


def blurred(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Another background far out of focus."""
    inner: Painter = rng.choice(np.array([places.leaves, places.room, patterns.mosaic, patterns.cells]))
    source = np.clip(inner(rng, max(height // 3, 16), max(width // 3, 16)), 0, 255).astype(np.uint8)
    picture = Image.fromarray(source).filter(ImageFilter.GaussianBlur(rng.uniform(1, 4)))
    return np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC), np.float32)


WEIGHTED: tuple[tuple[Painter, float], ...] = (
    (flat, 10),
    (white, 12),
    (light, 5),
    (dark, 4),
    (gradient, 7),
    (plasma, 5),
    (paper, 6),
    (static, 3),
    (marble, 2),
    (camouflage, 2),
    (bokeh, 3),
    (blurred, 5),
    (patterns.checkerboard, 3),
    (patterns.stripes, 4),
    (patterns.bricks, 3),
    (patterns.tiles, 2),
    (patterns.weave, 2),
    (patterns.ruled, 3),
    (patterns.mosaic, 2),
    (patterns.cells, 2),
    (patterns.dots, 2),
    (places.sky, 3),
    (places.grass, 3),
    (places.sand, 2),
    (places.horizon, 4),
    (places.planks, 4),
    (places.skyline, 2),
    (places.room, 4),
    (places.floor, 3),
    (places.leaves, 6),
)
PAINTERS = tuple(painter for painter, _ in WEIGHTED)
SHARES = np.array([weight for _, weight in WEIGHTED]) / sum(weight for _, weight in WEIGHTED)
