"""Things in a scene that are none of the eight shapes."""

from __future__ import annotations

import numpy as np

from training.shapes import CIRCLE, Outline, framed, polar, turned


def distractor(rng: np.random.Generator, aspect: float) -> Outline:
    """A random outline for an image of this width over height.

    The model sees every image squeezed to a square, so a long shape lies along the image's shorter
    side, where the squeeze cannot turn an ellipse into a circle.
    """
    return KINDS[rng.integers(len(KINDS))](rng, aspect)


def _lengthwise(rng: np.random.Generator, points: np.ndarray, aspect: float) -> Outline:
    """Turns points whose long side is horizontal to where squeezing makes them longer still."""
    if 0.85 < aspect < 1.18:
        return framed(turned(points, rng.uniform(0, 180)))
    return framed(turned(points, (90 if aspect > 1 else 0) + rng.uniform(-22, 22)))


def ellipse(rng: np.random.Generator, aspect: float) -> Outline:
    return _lengthwise(rng, polar(CIRCLE, 1.0) * (1, 1 / rng.uniform(2.0, 4)), aspect)


def bar(rng: np.random.Generator, aspect: float) -> Outline:
    half = 1 / rng.uniform(2.4, 12)
    return _lengthwise(rng, np.array([[-1, -half], [1, -half], [1, half], [-1, half]]), aspect)


def half_disc(rng: np.random.Generator, _: float) -> Outline:
    return framed(turned(polar(np.linspace(0, np.pi, 24), 1.0), rng.uniform(0, 360)))


def crescent(rng: np.random.Generator, _: float) -> Outline:
    t = np.linspace(-np.pi / 2, np.pi / 2, 20)
    outer, inner = polar(t, 1.0), polar(t, 1.0) * (rng.uniform(0.1, 0.6), 1)
    return framed(turned(np.concatenate([outer, inner[::-1]]), rng.uniform(0, 360)))


def arc(rng: np.random.Generator, _: float) -> Outline:
    t = np.linspace(0, np.radians(rng.uniform(60, 220)), 24)
    band = np.concatenate([polar(t, 1.0), polar(t, rng.uniform(0.7, 0.92))[::-1]])
    return framed(turned(band, rng.uniform(0, 360)))


def blob(rng: np.random.Generator, _: float) -> Outline:
    """A smooth irregular body with two to four bulges."""
    radius = 1 + sum(
        rng.uniform(0.15, 0.4) / k * np.cos(k * CIRCLE + rng.uniform(0, 6.283))
        for k in (2, 3, rng.integers(4, 7))
    )
    return framed(polar(CIRCLE, radius) * (1, rng.uniform(0.55, 0.8)))


def heart(rng: np.random.Generator, _: float) -> Outline:
    t = CIRCLE
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    return framed(turned(np.stack([x, y], 1), rng.uniform(-40, 40)))


def arrow(rng: np.random.Generator, _: float) -> Outline:
    a, neck = rng.uniform(0.12, 0.25), rng.uniform(0.0, 0.4)
    points = [[-1, -a], [neck, -a], [neck, -0.6], [1, 0], [neck, 0.6], [neck, a], [-1, a]]
    return framed(turned(np.array(points, float), rng.uniform(0, 360)))


def letter(rng: np.random.Generator, _: float) -> Outline:
    """An L, T, U or Z of thick strokes."""
    a = rng.uniform(0.22, 0.4)
    forms = (
        [[0, 0], [a, 0], [a, 1.4 - a], [1, 1.4 - a], [1, 1.4], [0, 1.4]],
        [
            [0, 0],
            [1, 0],
            [1, a],
            [0.5 + a / 2, a],
            [0.5 + a / 2, 1.4],
            [0.5 - a / 2, 1.4],
            [0.5 - a / 2, a],
            [0, a],
        ],
        [[0, 0], [a, 0], [a, 1.4 - a], [1.2 - a, 1.4 - a], [1.2 - a, 0], [1.2, 0], [1.2, 1.4], [0, 1.4]],
        [
            [0, 0],
            [1, 0],
            [1, a],
            [a, 1.4 - a],
            [1, 1.4 - a],
            [1, 1.4],
            [0, 1.4],
            [0, 1.4 - a],
            [1 - a, a],
            [0, a],
        ],
    )
    return framed(turned(np.array(forms[rng.integers(4)]), rng.uniform(-30, 30)))


KINDS = (ellipse, bar, bar, half_disc, crescent, arc, blob, blob, heart, arrow, letter)
