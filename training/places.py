"""Backgrounds that recall photographs. All return float32 [height, width, 3], about 0..255."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from training.colours import hsv, muted, near
from training.shapes import polar
from training.textures import axes, grain, noise, ramp, slope, stretched


def sky(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    top = hsv(rng.uniform(195, 225), rng.uniform(0.3, 0.8), rng.uniform(0.5, 1))
    low = hsv(rng.uniform(190, 215), rng.uniform(0.05, 0.4), rng.uniform(0.8, 1))
    if rng.random() < 0.2:  # dusk
        low = hsv(rng.uniform(0, 45), rng.uniform(0.3, 0.8), rng.uniform(0.7, 1))
    clouds = np.clip(noise(rng, height, width, height / 2, 4, 1.8) * 2 - rng.uniform(0.6, 1.6), 0, 1)
    air = ramp(slope(height, width, 90), top, low)
    return air + clouds[..., None] * (hsv(210, 0.04, rng.uniform(0.8, 1)) - air)


def grass(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    blades = noise(rng, height, width, rng.uniform(6, 16), 2, rng.uniform(0.2, 0.5))
    patches = noise(rng, height, width, height / 3, 2)
    hue = rng.uniform(65, 115)
    dark, bright = (
        hsv(hue, 0.7, rng.uniform(0.15, 0.4)),
        hsv(hue - 12, rng.uniform(0.4, 0.7), rng.uniform(0.5, 0.8)),
    )
    return ramp(blades * 0.7 + patches * 0.4 - 0.05, dark, bright)


def sand(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    ripples = noise(rng, height, width, rng.uniform(6, 24), 3, rng.uniform(2, 5))
    base = hsv(rng.uniform(24, 44), rng.uniform(0.15, 0.45), rng.uniform(0.6, 0.92))
    return (
        base
        + (ripples[..., None] - 0.5) * rng.uniform(20, 70)
        + grain(rng, height, width, rng.uniform(4, 14))
    )


def water(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    waves = noise(rng, height, width, rng.uniform(4, 12), 3, rng.uniform(3, 7))
    hue = rng.uniform(175, 220)
    low = hsv(hue, rng.uniform(0.5, 0.9), rng.uniform(0.2, 0.5))
    return ramp(waves, low, hsv(hue - 8, rng.uniform(0.2, 0.5), rng.uniform(0.6, 0.95)))


def horizon(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Sky above sea, sand or meadow, sometimes with hills between."""
    line = int(height * rng.uniform(0.25, 0.75))
    ground = (water, sand, grass)[rng.integers(3)](rng, height - line, width)
    picture = np.concatenate([sky(rng, line, width), ground])
    if rng.random() < 0.5:
        ridge = stretched(rng.random((1, int(rng.integers(4, 10))), dtype=np.float32), 1, width)
        y, _ = axes(height, width)
        hill = (y > line - ridge * height * rng.uniform(0.05, 0.25)) & (y <= line)
        picture[hill] = hsv(rng.uniform(80, 240), rng.uniform(0.1, 0.5), rng.uniform(0.25, 0.6))
    return picture


def planks(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Wooden boards, along or across."""
    if upright := rng.random() < 0.5:
        height, width = width, height
    board = height / rng.uniform(2, 9)
    y, _ = axes(height, width)
    row = np.floor(y / board)
    fibres = noise(rng, height, width, rng.uniform(3, 8), 3, rng.uniform(8, 25))
    tone = (np.sin(row * 91.7 + rng.uniform(0, 6)) * 4758.5 % 1 - 0.5) * rng.uniform(10, 60)
    base = hsv(rng.uniform(14, 40), rng.uniform(0.15, 0.65), rng.uniform(0.3, 0.88))
    wood = base + (tone + (fibres - 0.5) * rng.uniform(25, 80))[..., None]
    wood = np.where((y - row * board < 1.2)[..., None], wood * 0.5, wood)
    return wood.transpose(1, 0, 2) if upright else wood


def skyline(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Towers before a sky, with or without lit windows."""
    picture = sky(rng, height, width)
    base = hsv(rng.uniform(0, 360), rng.uniform(0, 0.3), rng.uniform(0.1, 0.6))
    lit = rng.random() < 0.4
    x = 0
    while x < width:
        wide, top = int(rng.uniform(0.08, 0.2) * width), int(height * rng.uniform(0.35, 0.9))
        picture[top:, x : x + wide] = near(base, rng, 25)
        if lit:
            picture[top + 4 : -3 : 6, x + 3 : x + wide - 2 : 5] = hsv(48, 0.5, 0.9)
        x += wide + int(rng.uniform(-0.02, 0.08) * width)
    return picture


def room(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A wall and a floor, sometimes with a skirting board and light from one side."""
    line = int(height * rng.uniform(0.5, 0.85))
    wall = muted(rng) + (noise(rng, line, width, height / 2, 4)[..., None] - 0.5) * rng.uniform(0, 25)
    base = muted(rng)
    if rng.random() < 0.5:
        below = planks(rng, height - line, width)
    else:
        below = base + (noise(rng, height - line, width, 8, 2, 2)[..., None] - 0.5) * rng.uniform(5, 50)
    picture = np.concatenate([wall, below]).astype(np.float32)
    if rng.random() < 0.4:
        picture[line : line + max(2, height // 40)] = muted(rng)
    shade = 1 - rng.uniform(0, 0.5) * slope(height, width, rng.uniform(0, 360))
    return picture * shade[..., None]


def floor(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A chequered or tiled ground in perspective below a plain wall."""
    line = int(height * rng.uniform(0.1, 0.6))
    y, x = axes(height - line, width)
    depth = rng.uniform(0.6, 2) * height / (y + 3)
    across = (x - width * rng.uniform(0.2, 0.8)) / width * depth
    squares = (np.floor(across * rng.uniform(2, 6)) + np.floor(depth * rng.uniform(2, 6))) % 2
    fade = np.clip(y / (height * 0.15), 0, 1)
    first = muted(rng)
    ground = ramp(squares * fade + 0.5 * (1 - fade), first, near(first, rng, 90))
    return np.concatenate([np.broadcast_to(muted(rng), (line, width, 3)), ground]).astype(np.float32)


def leaves(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Irregular patches of all sizes over one another, each shaded: statistics of natural pictures."""
    colours = np.stack([muted(rng) for _ in range(5)])
    picture = Image.new("RGB", (width, height), tuple(colours[0].astype(int).tolist()))
    draw = ImageDraw.Draw(picture)
    longest = max(height, width)
    for _ in range(int(rng.integers(25, 90))):
        radius = longest * min(0.4, 0.02 * rng.random() ** -0.8)
        corners = int(rng.integers(5, 10))
        angles = np.sort(rng.uniform(0, 6.283, corners))
        points = polar(angles, radius * rng.uniform(0.4, 1.3, corners)) * rng.uniform(0.4, 1, 2)
        points += rng.random(2) * (width, height)
        colour = near(colours[rng.integers(5)], rng, 40)
        draw.polygon([tuple(p) for p in points.tolist()], fill=tuple(colour.astype(int).tolist()))
    light = noise(rng, height, width, height / 4, 4) - 0.5
    return np.asarray(picture, np.float32) + light[..., None] * rng.uniform(20, 80)
