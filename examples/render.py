"""A small renderer for one picture: flat tokens on a wooden table, seen by a tilted camera.

The table is a height field in centimetres. Rays march over it; an area light gives soft shadows;
a lens blurs what is not at the focal distance; film adds grain. Nothing is shared with the
procedural scenes that the default model learnt from.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from outlines import RING_HOLE, outline
from PIL import Image, ImageFilter

CM = 44  # samples of the height field per centimetre
HALF_X, HALF_Y = 23.0, 17.0
SKY = np.array([1.0, 0.97, 0.92], np.float32)


@dataclass(frozen=True, slots=True)
class Token:
    """A flat piece on the table; x to the right and y towards the viewer, in centimetres."""

    label: str
    x: float
    y: float
    radius: float
    colour: tuple[int, int, int]
    degrees: float = 0.0
    height: float = 0.45


@dataclass(slots=True)
class Table:
    """The height field, its colours and the number of the piece on each place, all [rows, columns]."""

    rng: np.random.Generator
    height: np.ndarray = field(init=False)
    colour: np.ndarray = field(init=False)
    piece: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rows, columns = int(2 * HALF_Y * CM), int(2 * HALF_X * CM)
        self.height = np.zeros((rows, columns), np.float32)
        self.colour = _wood(self.rng, rows, columns)
        self.piece = np.zeros((rows, columns), np.uint8)

    def lay(self, points: np.ndarray, item: Token, piece: int) -> None:
        """Puts a polygon [n, 2] (centimetres) with a rounded rim on the table, as this piece."""
        pad = 0.3
        x0, y0 = np.maximum(np.floor((points.min(0) - pad + (HALF_X, HALF_Y)) * CM).astype(int), 0)
        x1, y1 = np.ceil((points.max(0) + pad + (HALF_X, HALF_Y)) * CM).astype(int)
        window = np.s_[y0 : min(y1, self.height.shape[0]), x0 : min(x1, self.height.shape[1])]
        rows, columns = self.height[window].shape
        x = (np.arange(columns, dtype=np.float32) + x0 + 0.5) / CM - HALF_X
        y = (np.arange(rows, dtype=np.float32)[:, None] + y0 + 0.5) / CM - HALF_Y
        depth = inside_distance(points, x, y)
        if item.label.endswith("ring"):
            middle = points.mean(0)
            depth = np.minimum(depth, -inside_distance(middle + RING_HOLE * (points - middle), x, y))
        share = np.clip(depth / 0.12, 0, 1)
        rise = (item.height * np.sqrt(1 - (1 - share) ** 2)).astype(np.float32)
        grain = self.rng.normal(0, 0.012, rise.shape).astype(np.float32)
        paint = np.array(item.colour, np.float32) / 255 * (1 + grain[..., None])
        self.height[window] = np.where(depth > 0, rise, self.height[window])
        self.colour[window] = np.where(depth[..., None] > 0, paint, self.colour[window])
        self.piece[window] = np.where(depth > 0, piece, self.piece[window])


def inside_distance(points: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The distance to a polygon's edge, [rows, columns], positive inside."""
    nearest = np.full(np.broadcast_shapes(x.shape, y.shape), np.inf, np.float32)
    inside = np.zeros(nearest.shape, bool)
    for (ax, ay), (bx, by) in zip(points, np.roll(points, -1, 0), strict=True):
        ex, ey = bx - ax, by - ay
        t = np.clip(((x - ax) * ex + (y - ay) * ey) / (ex * ex + ey * ey), 0, 1)
        nearest = np.minimum(nearest, np.hypot(x - ax - t * ex, y - ay - t * ey))
        if ay != by:
            inside ^= ((y >= ay) != (y >= by)) & (x < ax + (y - ay) / ey * ex)
    return np.where(inside, nearest, -nearest)


def _cloud(rng: np.random.Generator, rows: int, columns: int, tall: int, wide: int) -> np.ndarray:
    """Smooth noise in 0..1 from a coarse grid."""
    grid = Image.fromarray(rng.random((tall, wide), dtype=np.float32))
    return np.asarray(grid.resize((columns, rows), Image.Resampling.BICUBIC))


def _wood(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Oak boards along x, float32 [rows, columns, 3] in 0..1."""
    y = np.arange(rows, dtype=np.float32)[:, None] / CM
    board = np.floor(y / 7.3)
    bend = _cloud(rng, rows, columns, 5, 7) * 5 + y + board * 31.7
    rings = 0.5 + 0.5 * np.sin(bend * (2.2 + 0.4 * np.sin(board * 5)))
    fibre = _cloud(rng, rows, columns, rows // 4, 60)
    tone = 0.62 + 0.1 * rings + 0.16 * (fibre - 0.5) + 0.05 * np.sin(board * 9.1)
    tone *= np.where(y - board * 7.3 < 0.07, 0.45, 1.0)
    return (tone[..., None] * np.array([0.86, 0.66, 0.46], np.float32)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Camera:
    """A pinhole above the near edge of the table, looking at its middle."""

    width: int
    height: int
    distance: float = 62.0
    tilt: float = 20.0
    focal: float = 1.72
    """Focal length over the picture's width."""

    def frame(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Position and the right, down and forward axes (x right, y near, z up)."""
        sin, cos = np.sin(np.radians(self.tilt)), np.cos(np.radians(self.tilt))
        position = self.distance * np.array([0, sin, cos])
        return position, np.array([1, 0, 0.0]), np.array([0, cos, -sin]), np.array([0, -sin, -cos])

    def rays(self) -> np.ndarray:
        """Directions, float32 [height, width, 3]."""
        _, right, down, forward = self.frame()
        u = (np.arange(self.width) + 0.5 - self.width / 2)[None, :, None] / (self.focal * self.width)
        v = (np.arange(self.height) + 0.5 - self.height / 2)[:, None, None] / (self.focal * self.width)
        return (forward + u * right + v * down).astype(np.float32)


def _look(table: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The table's entry at x, y in centimetres."""
    column = np.clip((x + HALF_X) * CM, 0, table.shape[1] - 1).astype(np.int32)
    row = np.clip((y + HALF_Y) * CM, 0, table.shape[0] - 1).astype(np.int32)
    return table[row, column]


def _march(
    height: np.ndarray, camera: Camera, ceiling: float, steps: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Where each ray meets the height field: x and y, [rows, columns]."""
    position, rays = camera.frame()[0].astype(np.float32), camera.rays()
    hit = np.zeros(rays.shape[:2], bool)
    found = -position[2] / rays[..., 2]
    for level in np.linspace(ceiling, 0, steps):
        t = (np.float32(level) - position[2]) / rays[..., 2]
        x, y = position[0] + t * rays[..., 0], position[1] + t * rays[..., 1]
        fresh = ~hit & (_look(height, x, y) >= level)
        found[fresh] = t[fresh]
        hit |= fresh
    return position[0] + found * rays[..., 0], position[1] + found * rays[..., 1]


def _shade(height: np.ndarray, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Light received at each place: an area light at the upper left and a dim sky, [rows, columns, 1]."""
    slope_y, slope_x = np.gradient(height, 1 / CM)
    normal = np.stack([-_look(slope_x, x, y), -_look(slope_y, x, y), np.ones_like(x)], -1)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    base = _look(height, x, y)
    light = np.zeros(x.shape, np.float32)
    lamps = 20
    for _ in range(lamps):
        lamp = np.array([-34, -22, 40]) + rng.normal(0, 5, 3)
        way = np.stack([lamp[0] - x, lamp[1] - y, lamp[2] - base], -1)
        far = np.linalg.norm(way, axis=-1)
        open_sky = np.ones(x.shape, bool)
        for rise in np.linspace(0.05, 0.5, 9):
            t = rise / way[..., 2]
            open_sky &= _look(height, x + t * way[..., 0], y + t * way[..., 1]) <= base + rise
        slant = np.clip((normal * way).sum(-1) / far, 0, 1)
        light += open_sky * slant * (62 / far) ** 2
    return (0.27 + 0.75 * light / lamps)[..., None]


def _lens(picture: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Blurs rows by their distance from the focus, a little before the middle of the table."""
    image = Image.fromarray((np.clip(picture, 0, 1) * 255).astype(np.uint8))
    circle = np.clip(np.abs(y - 1.5) - 3.5, 0, None) * 0.28
    layers = [np.asarray(image.filter(ImageFilter.GaussianBlur(r)), np.float32) / 255 for r in range(5)]
    result = layers[0] * 0
    for radius, layer in enumerate(layers):
        result += np.clip(1 - np.abs(np.minimum(circle, 4) - radius), 0, 1)[..., None] * layer
    return result


def photograph(
    tokens: list[Token], clutter: list[Token], camera: Camera, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens on the table, clutter below them: a picture, uint8 [height, width, 3], and for each
    pixel the token's index plus one, uint8 [height, width].

    Clutter with the label `bar` or `sheet` is a rectangle `radius` long.
    """
    rng = np.random.default_rng(seed)
    table = Table(rng)
    for item in clutter:
        stretch = np.sqrt(2) * item.radius * np.array([1, {"bar": 0.055, "sheet": 0.7}[item.label]])
        table.lay(moved(outline("square") * stretch, item), item, 0)
    for piece, item in enumerate(tokens, 1):
        table.lay(moved(outline(item.label.split()[-1]) * item.radius, item), item, piece)
    x, y = _march(table.height, camera, float(table.height.max()))
    picture = _look(table.colour, x, y) ** 1.5 * _shade(table.height, x, y, rng) * SKY
    picture = _lens(np.clip(picture * 1.2, 0, 1) ** (1 / 1.5), y)
    return _film(picture, rng), _look(table.piece, x, y)


def _film(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Darker corners and grain; from floats in 0..1 to uint8."""
    height, width = picture.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : 1j * height, -1 : 1 : 1j * width]
    picture = picture * (1 - 0.16 * (rows**2 + columns**2))[..., None]
    picture += rng.normal(0, 0.016, (height, width, 1)) + rng.normal(0, 0.006, picture.shape)
    return (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)


def moved(points: np.ndarray, item: Token) -> np.ndarray:
    """Points [n, 2] turned by the item's angle and put at its place."""
    cos, sin = np.cos(np.radians(item.degrees)), np.sin(np.radians(item.degrees))
    return points @ np.array([[cos, sin], [-sin, cos]]) + (item.x, item.y)
