"""How objects are filled, outlined and shadowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from training.shapes import Patch, cut
from training.textures import noise, slope, spread

FILLS = ("flat", "linear", "radial", "noise", "grain")


@dataclass(frozen=True, slots=True)
class Shadow:
    """A soft shadow: offset in pixels, blur radius in pixels, strength from 0 to 1."""

    x: int
    y: int
    blur: float
    strength: float

    def cast(self, canvas: np.ndarray, patch: Patch) -> None:
        """Darkens the canvas [height, width, 3] where the patch's shadow falls."""
        pad = int(2 * self.blur) + 1
        mask = Image.fromarray((np.pad(patch.alpha, pad) * 255).astype(np.uint8))
        soft = np.asarray(mask.filter(ImageFilter.GaussianBlur(self.blur)), np.float32) / 255
        height, width = canvas.shape[:2]
        fallen = cut(soft, patch.x - pad + self.x, patch.y - pad + self.y, width, height)
        if fallen is not None:
            canvas[fallen.window] *= 1 - self.strength * fallen.alpha[..., None]


@dataclass(frozen=True, slots=True)
class Style:
    """What the objects of one scene share."""

    clean: bool
    """Flat fills and no camera effects, as in drawings."""
    fill: str | None
    """One fill for all objects; None: each has its own."""
    border: str
    """`hue`, `contrast` or empty."""
    shadow: Shadow | None
    opacity: float


def make_style(rng: np.random.Generator) -> Style:
    if rng.random() < 0.3:
        return Style(True, "flat", "contrast" if rng.random() < 0.12 else "", None, 1.0)
    shadow = None
    if rng.random() < 0.25:
        x, y = rng.integers(-5, 6, 2).tolist()
        shadow = Shadow(x, y, rng.uniform(0.8, 4), rng.uniform(0.2, 0.6))
    border = ("", "hue", "contrast")[rng.choice(3, p=(0.75, 0.17, 0.08))]
    one_fill = str(rng.choice(FILLS)) if rng.random() < 0.6 else None
    return Style(False, one_fill, border, shadow, rng.uniform(0.82, 0.95) if rng.random() < 0.06 else 1.0)


def fill(rng: np.random.Generator, patch: Patch, colour: np.ndarray, style: Style) -> np.ndarray:
    """Colours for a patch: float32 [3], or [height, width, 3]; never far from `colour`."""
    kind = style.fill or str(rng.choice(FILLS))
    height, width = patch.alpha.shape
    if kind == "flat" or min(height, width) < 4:
        return colour
    if kind == "linear":
        field = slope(height, width, rng.uniform(0, 360)) - 0.5
    elif kind == "radial":
        field = 0.5 - spread(height, width, rng.uniform(0.2, 0.6), rng.uniform(0.2, 0.6))
    elif kind == "noise":
        field = noise(rng, height, width, rng.uniform(3, 20), 3, rng.choice((1, 1, 4))) - 0.5
    else:
        field = rng.standard_normal((height, width), dtype=np.float32) / 4
    return colour * (1 + np.float32(rng.uniform(0.1, 0.34)) * field[..., None]) + 10 * field[..., None]


def blend(canvas: np.ndarray, patch: Patch, colours: np.ndarray, opacity: float) -> None:
    """Lays colours ([3] or the patch's [height, width, 3], 0..255) over the canvas."""
    ground = canvas[patch.window]
    ground += patch.alpha[..., None] * np.float32(opacity) * (colours - ground)


def stroke(
    rng: np.random.Generator,
    canvas: np.ndarray,
    points: np.ndarray,
    hole: float,
    colour: np.ndarray,
    contrasting: bool,
) -> None:
    """Draws the polygon's edge, inside it, darker or lighter than its colour [3]."""
    size = float(np.ptp(points, 0).max())
    thick = max(1.0, rng.uniform(0.03, 0.07) * size)
    bright = float(colour @ np.array([0.3, 0.59, 0.11], np.float32)) > 110
    if contrasting:
        ink = colour * 0.15 if bright else colour * 0.2 + 190
    else:
        ink = colour * rng.uniform(0.55, 0.75) if bright else colour + rng.uniform(25, 50)
    low, high = points.min(0), points.max(0)
    left, top = np.floor(low).astype(int).tolist()
    right, bottom = np.ceil(high).astype(int).tolist()
    scale = 3
    picture = Image.new("L", ((right - left) * scale, (bottom - top) * scale))
    whole = Image.new("L", picture.size)
    local, middle = (points - (left, top)) * scale - 0.5, ((low + high) / 2 - (left, top)) * scale - 0.5
    edges = [local] + ([middle + hole * (local - middle)] if hole else [])
    for edge in edges:
        path = [tuple(p) for p in np.concatenate([edge, edge[:2]]).tolist()]
        ImageDraw.Draw(picture).line(path, fill=255, width=round(2 * thick * scale), joint="curve")
    ImageDraw.Draw(whole).polygon([tuple(p) for p in local.tolist()], fill=255)
    if hole:
        ImageDraw.Draw(whole).polygon([tuple(p) for p in edges[1].tolist()], fill=0)
    inside = np.minimum(np.asarray(picture.reduce(scale)), np.asarray(whole.reduce(scale)))
    patch = cut(inside.astype(np.float32) / 255, left, top, canvas.shape[1], canvas.shape[0])
    if patch is not None:
        blend(canvas, patch, ink.astype(np.float32), 1.0)
