"""Outlines of shapes and distractors, and their anti-aliased masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

CIRCLE = np.linspace(0, 2 * np.pi, 48, endpoint=False)


@dataclass(frozen=True, slots=True)
class Outline:
    """A filled polygon in units of its own box's longer side, the box centred on the origin."""

    points: np.ndarray
    """float64 [vertices, 2]: x, y; y grows downwards."""
    hole: float = 0.0
    """A concentric hole, as a fraction of the polygon."""

    def at(self, x: float, y: float, size: float) -> np.ndarray:
        """Vertices in pixels when the box's centre is x, y and its longer side `size` pixels."""
        return self.points * size + (x, y)


@dataclass(frozen=True, slots=True)
class Patch:
    """A mask and its place in the image, cut to the image."""

    alpha: np.ndarray
    """float32 [height, width]: coverage from 0 to 1."""
    x: int
    y: int
    whole: float
    """Pixels covered before the cut."""

    @property
    def window(self) -> tuple[slice, slice]:
        height, width = self.alpha.shape
        return slice(self.y, self.y + height), slice(self.x, self.x + width)


def polar(angles: np.ndarray, radii: np.ndarray | float) -> np.ndarray:
    return np.stack([np.cos(angles) * radii, np.sin(angles) * radii], axis=1)


def framed(points: np.ndarray, hole: float = 0.0) -> Outline:
    """Moves and scales the points so that their box has its centre at 0 and its longer side 1."""
    low, high = points.min(0), points.max(0)
    return Outline((points - (low + high) / 2) / (high - low).max(), hole)


def turned(points: np.ndarray, degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    cos, sin = np.cos(angle), np.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]])


def rounded(points: np.ndarray, share: float) -> np.ndarray:
    """Cuts each corner with a curve that starts at this share of the edges beside it."""
    before, after = np.roll(points, 1, 0), np.roll(points, -1, 0)
    start, end = points + share * (before - points), points + share * (after - points)
    curve = [(1 - t) ** 2 * start + 2 * t * (1 - t) * points + t * t * end for t in (0, 0.25, 0.5, 0.75, 1)]
    return np.stack(curve, axis=1).reshape(-1, 2)


def shape_outline(shape: str, rng: np.random.Generator) -> Outline:
    """A random individual of one of the eight shapes, turned as far as it keeps its name."""
    if shape in ("circle", "ring"):
        return framed(polar(CIRCLE, 1.0), rng.uniform(0.45, 0.72) if shape == "ring" else 0.0)
    points, freedom = _CORNERS[shape](rng)
    straight = rng.random() < 0.5
    if rng.random() < 0.15:
        points = rounded(points, rng.uniform(0.08, 0.2))
    return framed(points if straight else turned(points, rng.uniform(-freedom, freedom)))


def _square(_: np.random.Generator) -> tuple[np.ndarray, float]:
    return np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], float), 15


def _diamond(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    width = 1 if rng.random() < 0.35 else rng.uniform(0.6, 1)
    return np.array([[0, -1], [width, 0], [0, 1], [-width, 0]], float), 12


def _triangle(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    height = np.sqrt(3) * (1 if rng.random() < 0.6 else rng.uniform(0.75, 1.25))
    return np.array([[0, -height], [1, 0], [-1, 0]], float), 180


def _star(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    inner = 0.382 if rng.random() < 0.5 else rng.uniform(0.38, 0.52)
    angles = np.linspace(0, 2 * np.pi, 10, endpoint=False) - np.pi / 2
    return polar(angles, np.tile([1, inner], 5)), 180


def _cross(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    a = rng.uniform(0.26, 0.42)
    quarter = np.array([[-a, -1], [a, -1], [a, -a]])
    return np.concatenate([turned(quarter, 90 * i) for i in range(4)]), 20


def _hexagon(rng: np.random.Generator) -> tuple[np.ndarray, float]:
    angles = np.linspace(0, 2 * np.pi, 6, endpoint=False)
    return polar(angles + (np.pi / 6 if rng.random() < 0.5 else 0), 1.0), 180


_CORNERS = {
    "square": _square,
    "diamond": _diamond,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "hexagon": _hexagon,
}


def rasterise(points: np.ndarray, hole: float, width: int, height: int) -> Patch | None:
    """The mask of a polygon [vertices, 2] in pixels; None when it lies outside the image."""
    left, top = np.floor(points.min(0)).astype(int) - 1
    right, bottom = np.ceil(points.max(0)).astype(int) + 1
    scale = 4 if max(right - left, bottom - top) < 70 else 2
    picture = Image.new("L", (int(right - left) * scale, int(bottom - top) * scale))
    draw = ImageDraw.Draw(picture)
    local = (points - (left, top)) * scale - 0.5
    draw.polygon([tuple(p) for p in local.tolist()], fill=255)
    if hole:
        middle = (local.min(0) + local.max(0)) / 2
        draw.polygon([tuple(p) for p in (middle + hole * (local - middle)).tolist()], fill=0)
    alpha = np.asarray(picture.reduce(scale), np.float32) / 255
    return cut(alpha, int(left), int(top), width, height)


def cut(alpha: np.ndarray, left: int, top: int, width: int, height: int) -> Patch | None:
    x, y = max(left, 0), max(top, 0)
    inside = alpha[y - top : max(height - top, 0), x - left : max(width - left, 0)]
    return Patch(inside, x, y, float(alpha.sum())) if inside.size else None


def clipped_box(points: np.ndarray, width: float, height: float) -> tuple[float, float, float, float]:
    """The box of the part of a polygon [vertices, 2] inside 0..width, 0..height, in pixels."""
    for axis, limit, sign in ((0, 0.0, 1), (0, width, -1), (1, 0.0, 1), (1, height, -1)):
        points = _clip_half_plane(points, axis, limit, sign)
        if not len(points):
            return (0.0, 0.0, 0.0, 0.0)
    (x0, y0), (x1, y1) = points.min(0).tolist(), points.max(0).tolist()
    return max(x0, 0.0), max(y0, 0.0), min(x1, width), min(y1, height)  # against rounding


def _clip_half_plane(points: np.ndarray, axis: int, limit: float, sign: int) -> np.ndarray:
    depth = sign * (points[:, axis] - limit)
    if (depth >= 0).all():
        return points
    following, next_depth = np.roll(points, -1, 0), np.roll(depth, -1)
    crossing = (depth >= 0) != (next_depth >= 0)
    share = depth[crossing] / (depth[crossing] - next_depth[crossing])
    cuts = points[crossing] + share[:, None] * (following[crossing] - points[crossing])
    return np.concatenate([points[depth >= 0], cuts])
