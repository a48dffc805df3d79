"""The named colours: ranges wide enough to be useful, narrow enough to keep their names."""

from __future__ import annotations

import colorsys

import numpy as np

# name: hue range in degrees, saturation range, value range; several variants of equal weight
RANGES: dict[str, tuple[tuple[float, float, float, float, float, float], ...]] = {
    "red": ((-10, 6, 0.8, 1, 0.62, 1), (-4, 4, 0.85, 1, 0.85, 1)),
    "green": ((95, 150, 0.5, 1, 0.38, 0.95), (105, 130, 0.75, 1, 0.45, 1)),
    "blue": ((208, 240, 0.6, 1, 0.45, 1), (218, 242, 0.75, 1, 0.75, 1)),
    "yellow": ((49, 61, 0.62, 1, 0.9, 1), (52, 60, 0.85, 1, 0.95, 1)),
    "purple": ((266, 288, 0.5, 1, 0.45, 0.88), (284, 301, 0.6, 1, 0.38, 0.62)),
    "orange": ((22, 38, 0.82, 1, 0.92, 1),),
    "black": ((0, 360, 0, 0.35, 0, 0.13),),
    "white": ((0, 360, 0, 0.035, 0.95, 1),),
    "pink": ((322, 348, 0.3, 0.58, 0.95, 1), (345, 358, 0.22, 0.4, 0.97, 1)),
    "brown": ((16, 30, 0.55, 0.88, 0.32, 0.58),),
    "gray": ((0, 360, 0, 0.06, 0.4, 0.68),),
    "cyan": ((176, 191, 0.55, 1, 0.82, 1),),
}


def hsv(hue: float, saturation: float, value: float) -> np.ndarray:
    """float32 [3] in 0..255 for a hue in degrees and two fractions."""
    red, green, blue = colorsys.hsv_to_rgb(hue / 360 % 1, saturation, value)
    return np.array([red, green, blue], np.float32) * 255


def named(colour: str, rng: np.random.Generator) -> np.ndarray:
    """float32 [3] in 0..255: a random individual of a named colour."""
    ranges = RANGES[colour]
    h0, h1, s0, s1, v0, v1 = ranges[rng.integers(len(ranges))]
    return hsv(rng.uniform(h0, h1), rng.uniform(s0, s1), rng.uniform(v0, v1))


def any_colour(rng: np.random.Generator) -> np.ndarray:
    """Any colour at all, float32 [3] in 0..255."""
    return hsv(rng.uniform(0, 360), rng.uniform(0, 1), rng.uniform(0.05, 1))


def muted(rng: np.random.Generator) -> np.ndarray:
    """A colour as most surfaces have it: little saturation, often warm; float32 [3] in 0..255."""
    hue = rng.uniform(15, 60) if rng.random() < 0.5 else rng.uniform(0, 360)
    return hsv(hue, rng.uniform(0, 0.4), rng.uniform(0.2, 0.95))


def near(colour: np.ndarray, rng: np.random.Generator, reach: float) -> np.ndarray:
    """A neighbour of a colour, up to `reach` away in brightness and a quarter of it in each channel."""
    step = rng.uniform(-reach, reach) + rng.uniform(-reach / 4, reach / 4, 3)
    return np.clip(colour + step, 0, 255).astype(np.float32)


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How different colours [..., 3] in 0..255 look: the redmean approximation, 0 to about 765."""
    mean = (a[..., 0] + b[..., 0]) / 2
    d = (a - b) ** 2
    return np.sqrt((2 + mean / 256) * d[..., 0] + 4 * d[..., 1] + (2 + (255 - mean) / 256) * d[..., 2])
