"""Procedural pictures whose contents are known: `make_scene(seed)`.

Seeds from 900_000 to 999_999 are held out for measuring; training uses seeds from 1_000_000.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.backgrounds import background
from training.colours import any_colour, distance, named
from training.distractors import distractor
from training.effects import finish
from training.paint import Style, blend, fill, make_style, stroke
from training.queries import COLOURS, SHAPES, Query, Scene, SceneObject, make_query, matches, phrase_for
from training.shapes import Outline, Patch, clipped_box, rasterise, shape_outline

__all__ = [
    "COLOURS",
    "SHAPES",
    "Query",
    "Scene",
    "SceneObject",
    "make_query",
    "make_scene",
    "matches",
    "phrase_for",
]

HELD_OUT = range(900_000, 1_000_000)
SMALL = 0.12
SIZES = (0.05, 0.40)
VISIBLE = 0.65
CUT = 0.25
CONTRAST = 75.0  # in units of colours.distance
COUNT_SHARES = (0.04, 0.13, 0.15, 0.16, 0.15, 0.13, 0.1, 0.08, 0.06)
ASPECTS = (4 / 3, 3 / 4, 16 / 9, 1.0, 3 / 2, 2 / 3, 9 / 16)
ASPECT_SHARES = (0.27, 0.14, 0.17, 0.22, 0.1, 0.05, 0.05)


def make_scene(seed: int) -> Scene:
    """The scene of this seed: the same for the same seed, library versions and machine type."""
    rng = np.random.default_rng(seed)
    width, height = _canvas_size(rng)
    stage = Stage(rng, background(rng, height, width), make_style(rng))
    if rng.random() < 0.4:
        for _ in range(int(rng.integers(1, 6))):
            stage.add_distractor()
    count = int(rng.choice(len(COUNT_SHARES), p=COUNT_SHARES))
    colours, shapes = _subset(rng, COLOURS), _subset(rng, SHAPES)
    for x, y, side in _places(rng, count, width, height):
        stage.add(shapes, colours, x, y, side)
    return Scene(finish(rng, stage.canvas, stage.style.clean), tuple(stage.objects))


def _canvas_size(rng: np.random.Generator) -> tuple[int, int]:
    """Width and height in pixels, 96 to 320 each."""
    if rng.random() < 0.75:
        aspect = float(rng.choice(ASPECTS, p=ASPECT_SHARES))
    else:
        aspect = float(np.exp(rng.uniform(np.log(0.42), np.log(2.4))))
    scale = rng.uniform(125, 265)
    width, height = scale * aspect**0.5, scale / aspect**0.5
    fit = min(1, 320 / max(width, height)) * max(1, 96 / min(width, height))
    return min(round(width * fit), 320), min(round(height * fit), 320)


def _subset(rng: np.random.Generator, words: tuple[str, ...]) -> list[str]:
    """All words, or a few of them, so that a scene holds near misses of its own objects."""
    if rng.random() < 0.5:
        return list(words)
    return [str(w) for w in rng.choice(words, int(rng.integers(1, 5)), replace=False)]


def _side(rng: np.random.Generator) -> float:
    low, high = (SIZES[0], SMALL) if rng.random() < 0.22 else (SMALL, SIZES[1])
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _places(
    rng: np.random.Generator, count: int, width: int, height: int
) -> list[tuple[float | None, float | None, float]]:
    """For each object its centre in pixels (None: anywhere) and its relative side."""
    if count < 3 or rng.random() > 0.18:
        return [(None, None, _side(rng)) for _ in range(count)]
    # in rank and file, all of one size, as on posters and test cards
    columns = int(np.clip(np.ceil((count * width / height) ** 0.5), 1, count))
    rows = -(-count // columns)
    cell_x, cell_y = width / columns, height / rows
    side = min(rng.uniform(0.4, 0.85) * min(cell_x, cell_y) / min(width, height), SIZES[1])
    spots = [((i % columns + 0.5) * cell_x, (i // columns + 0.5) * cell_y) for i in range(count)]
    return [(x, y, max(side, SIZES[0])) for x, y in spots]


@dataclass(slots=True)
class Placed:
    whole: float
    """Pixels of the full mask, also outside the image."""
    visible: float


class Stage:
    """A canvas that remembers which object owns each pixel."""

    def __init__(self, rng: np.random.Generator, canvas: np.ndarray, style: Style) -> None:
        self.rng = rng
        self.canvas = canvas
        self.style = style
        self.height, self.width = canvas.shape[:2]
        self.objects: list[SceneObject] = []
        self._placed: list[Placed] = []
        self._owner = np.zeros((self.height, self.width), np.uint8)  # 0: the background

    def add_distractor(self) -> None:
        rng = self.rng
        outline = distractor(rng, self.width / self.height)
        size = max(3.0, rng.uniform(0.05, 0.35) * min(self.width, self.height))
        points = outline.at(rng.uniform(0, self.width), rng.uniform(0, self.height), size)
        if patch := rasterise(points, 0.0, self.width, self.height):
            colour = any_colour(rng) if rng.random() < 0.3 else named(str(rng.choice(COLOURS)), rng)
            blend(self.canvas, patch, fill(rng, patch, colour, self.style), 1.0)

    def add(
        self, shapes: list[str], colours: list[str], x: float | None, y: float | None, side: float
    ) -> None:
        """Tries to place one object at x, y (pixels; None: anywhere) with this relative side."""
        shape = str(self.rng.choice(shapes))
        outline = shape_outline(shape, self.rng)
        size = side * min(self.width, self.height)
        for _ in range(12):
            points = outline.at(*self._spot(x, y, size), size)
            patch = rasterise(points, outline.hole, self.width, self.height)
            if patch is None or not self._fits(patch):
                continue
            colour, value, clear = self._colour(colours, patch)
            if clear or self.rng.random() < 0.15:
                self._paint(shape, colour, value, outline, points, patch, outlined=not clear)
                return

    def _spot(self, x: float | None, y: float | None, size: float) -> tuple[float, float]:
        if x is not None and y is not None:
            return x, y
        margin = size / 2 * (0.45 if self.rng.random() < 0.12 else 1.02)
        return (
            self.rng.uniform(margin, self.width - margin),
            self.rng.uniform(margin, self.height - margin),
        )

    def _fits(self, patch: Patch) -> bool:
        """Whether enough stays visible of the newcomer and of all that it would cover."""
        inside = float(patch.alpha.sum())
        if inside < (1 - CUT) * patch.whole:
            return False
        covered = np.bincount(self._owner[patch.window].ravel(), patch.alpha.ravel(), len(self._placed) + 1)
        return all(
            old.visible - lost >= VISIBLE * old.whole
            for old, lost in zip(self._placed, covered[1:], strict=True)
        )

    def _colour(self, colours: list[str], patch: Patch) -> tuple[str, np.ndarray, bool]:
        """A colour, its value, and whether it stands out from what lies beneath."""
        ground = self.canvas[patch.window][patch.alpha > 0.3]
        name, value = "", np.zeros(3, np.float32)
        for attempt in range(6):
            name = str(self.rng.choice(colours if attempt < 4 else COLOURS))
            value = named(name, self.rng)
            if not len(ground) or np.mean(distance(ground, value) < CONTRAST) < 0.25:
                return name, value, True
        return name, value, False

    def _paint(
        self,
        shape: str,
        colour: str,
        value: np.ndarray,
        outline: Outline,
        points: np.ndarray,
        patch: Patch,
        outlined: bool,
    ) -> None:
        rng, style = self.rng, self.style
        if style.shadow is not None:
            style.shadow.cast(self.canvas, patch)
        blend(self.canvas, patch, fill(rng, patch, value, style), style.opacity)
        if outlined or style.border:
            stroke(
                rng,
                self.canvas,
                points,
                outline.hole,
                value,
                contrasting=outlined or style.border == "contrast",
            )
        index = len(self.objects) + 1
        for old, lost in zip(
            self._placed,
            np.bincount(self._owner[patch.window].ravel(), patch.alpha.ravel(), index)[1:],
            strict=True,
        ):
            old.visible -= float(lost)
        self._owner[patch.window][patch.alpha > 0.5] = index
        self._placed.append(Placed(patch.whole, float(patch.alpha.sum())))
        self.objects.append(self._record(shape, colour, points))

    def _record(self, shape: str, colour: str, points: np.ndarray) -> SceneObject:
        x0, y0, x1, y1 = clipped_box(points, self.width, self.height)
        size = (self.width, self.height)
        return SceneObject(
            shape,
            colour,
            (x0 / size[0], y0 / size[1], x1 / size[0], y1 / size[1]),
            max(x1 - x0, y1 - y0) / min(size),
            tuple((float(px), float(py)) for px, py in points / size),
        )
