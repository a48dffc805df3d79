"""Small stuff strewn over a background: lines, curves, scribbles, letters, specks, soft lights."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from training.colours import any_colour, near

LETTERS = "abcefghijklmnrstuwyABCEFGHJKLMNPRSTUWYZ1234579?&"  # none that is a ring, a cross or a disc


def _ink(rng: np.random.Generator, picture: np.ndarray) -> tuple[int, int, int]:
    height, width = picture.shape[:2]
    ground = picture[rng.integers(height), rng.integers(width)]
    colour = any_colour(rng) if rng.random() < 0.4 else near(ground, rng, 90)
    red, green, blue = np.clip(colour, 0, 255).astype(int).tolist()
    return red, green, blue


def scatter(rng: np.random.Generator, picture: np.ndarray) -> np.ndarray:
    """The picture, float32 [height, width, 3], with one or two sorts of clutter drawn on it."""
    canvas = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(canvas)
    for _ in range(int(rng.integers(1, 3))):
        sort = (lines, curves, scribbles, text, specks, grid_lines)[rng.integers(6)]
        sort(rng, draw, canvas.width, canvas.height, _ink(rng, picture))
    if rng.random() < 0.4:
        canvas = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.4, 1.2)))
    return np.asarray(canvas, np.float32)


Ink = tuple[int, int, int]


def lines(rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, ink: Ink) -> None:
    for _ in range(int(rng.integers(2, 14))):
        ends = rng.random((2, 2)) * (width, height)
        draw.line([tuple(p) for p in ends.tolist()], fill=ink, width=int(rng.integers(1, 4)))


def curves(rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, ink: Ink) -> None:
    t = np.linspace(0, 1, 24)[:, None]
    for _ in range(int(rng.integers(1, 7))):
        a, b, c = rng.uniform(-0.1, 1.1, (3, 2)) * (width, height)
        path = (1 - t) ** 2 * a + 2 * t * (1 - t) * b + t * t * c
        draw.line([tuple(p) for p in path.tolist()], fill=ink, width=int(rng.integers(1, 4)))


def scribbles(rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, ink: Ink) -> None:
    """Rows of short strokes, like handwriting."""
    size = rng.uniform(3, 9)
    y = rng.uniform(0, height / 2)
    for _ in range(int(rng.integers(1, 7))):
        count = int(rng.integers(10, 50))
        xs = rng.uniform(0, width * 0.4) + np.arange(count) * size * 0.6
        ys = y + rng.uniform(-0.5, 0.5, count) * size * rng.choice((1, 0.3), count)
        draw.line([tuple(p) for p in np.stack([xs, ys], 1).tolist()], fill=ink, width=1)
        y += size * 2


@lru_cache(maxsize=64)
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def text(rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, ink: Ink) -> None:
    size = int(rng.integers(7, 30))
    for _ in range(int(rng.integers(1, 5))):
        word = "".join(rng.choice(list(LETTERS), int(rng.integers(1, 11))))
        at = (rng.uniform(-0.1, 0.8) * width, rng.uniform(0, 0.95) * height)
        draw.text(at, word, fill=ink, font=font(size))


def specks(rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, ink: Ink) -> None:
    for _ in range(int(rng.integers(10, 90))):
        x, y = rng.random(2) * (width, height)
        radius = rng.uniform(0.4, max(0.6, 0.012 * min(width, height)))
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)


def grid_lines(
    rng: np.random.Generator, draw: ImageDraw.ImageDraw, width: int, height: int, ink: Ink
) -> None:
    step, broad = rng.uniform(10, 60), int(rng.integers(1, 3))
    for x in np.arange(rng.uniform(0, step), width, step):
        draw.line((x, 0, x, height), fill=ink, width=broad)
    for y in np.arange(rng.uniform(0, step), height, step):
        draw.line((0, y, width, y), fill=ink, width=broad)


def soft_discs(rng: np.random.Generator, picture: np.ndarray) -> np.ndarray:
    """Faint, blurred lights added to the picture, float32 [height, width, 3]."""
    height, width = picture.shape[:2]
    glow = Image.new("RGB", (width // 2, height // 2))
    draw = ImageDraw.Draw(glow)
    for _ in range(int(rng.integers(4, 22))):
        x, y = rng.random(2) * (width / 2, height / 2)
        radius = rng.uniform(0.03, 0.16) * min(width, height) / 2
        colour = (any_colour(rng) * rng.uniform(0.2, 0.6)).astype(int).tolist()
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=tuple(colour))
    glow = glow.filter(ImageFilter.GaussianBlur(rng.uniform(2, 6)))
    return picture + np.asarray(glow.resize((width, height), Image.Resampling.BILINEAR), np.float32)
