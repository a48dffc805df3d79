"""Draws the example pictures and writes what they hold to truth.json.

    python examples/make_examples.py

They are made apart from the procedural scenes of training/: a drawing, a rendered photograph and a
flat poster. truth.json lists for each picture its objects as {label, x_min, y_min, x_max, y_max} in
fractions of the width and the height.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from outlines import RING_HOLE, outline
from PIL import Image, ImageDraw, ImageFont
from render import Camera, Token, photograph

HERE = Path(__file__).parent
OVERSAMPLED = 3

Box = dict[str, str | float]
Colour = tuple[int, int, int]


class Drawing:
    """A picture drawn large and shrunk at the end, with a list of the boxes on it."""

    def __init__(self, width: int, height: int, ground: Image.Image | Colour) -> None:
        self.size = (width, height)
        large = (width * OVERSAMPLED, height * OVERSAMPLED)
        self.image = (
            ground.resize(large) if isinstance(ground, Image.Image) else Image.new("RGB", large, ground)
        )
        self.boxes: list[Box] = []

    def add(
        self, label: str, x: float, y: float, radius: float, colour: Colour, degrees: float = 0.0
    ) -> None:
        """Draws a shape; x, y and radius in pixels of the finished picture."""
        unit = outline(label.split()[-1], degrees)
        points = unit * radius + (x, y)
        mask = Image.new("L", self.image.size)
        draw = ImageDraw.Draw(mask)
        draw.polygon([tuple(p) for p in (points * OVERSAMPLED).tolist()], fill=255)
        if label.endswith("ring"):
            draw.polygon(
                [tuple(p) for p in ((unit * radius * RING_HOLE + (x, y)) * OVERSAMPLED).tolist()], fill=0
            )
        self.image.paste(colour, mask=mask)
        self.boxes.append(boxed(label, points / self.size))

    def polygon(self, points: list[tuple[float, float]], colour: Colour) -> None:
        scaled = [(x * OVERSAMPLED, y * OVERSAMPLED) for x, y in points]
        ImageDraw.Draw(self.image).polygon(scaled, fill=colour)

    def write(self, x: float, y: float, words: str, size: int, colour: Colour) -> None:
        """Words with the middle of their top edge at x, y."""
        font = ImageFont.load_default(size * OVERSAMPLED)
        at = (x * OVERSAMPLED, y * OVERSAMPLED)
        ImageDraw.Draw(self.image).text(at, words, fill=colour, font=font, anchor="mt")

    def finished(self) -> Image.Image:
        return self.image.resize(self.size, Image.Resampling.LANCZOS)


def boxed(label: str, points: np.ndarray) -> Box:
    """The box of points [n, 2] given in fractions of the picture."""
    (x0, y0), (x1, y1) = points.min(0).round(5).tolist(), points.max(0).round(5).tolist()
    return {"label": label, "x_min": x0, "y_min": y0, "x_max": x1, "y_max": y1}


def scene() -> tuple[Image.Image, list[Box]]:
    """A child's landscape, 800 x 600: pale sky, hills, shapes standing and floating about."""
    rows = np.linspace(0, 1, 600)[:, None, None]
    sky = (1 - rows) * np.array([196, 222, 240]) + rows * np.array([240, 238, 226])
    drawing = Drawing(800, 600, Image.fromarray(np.broadcast_to(sky, (600, 800, 3)).astype(np.uint8)))
    xs = np.linspace(0, 800, 60)
    for base, swell, colour, phase in (
        (410, 34, (206, 214, 196), 0.4),
        (465, 26, (188, 200, 172), 2.4),
        (530, 16, (222, 208, 178), 4.4),
    ):
        crest = base - swell * np.sin(xs / 800 * 7 + phase)
        ridge = list(zip(xs.tolist(), crest.tolist(), strict=True))
        drawing.polygon([*ridge, (800, 600), (0, 600)], colour)
    drawing.add("yellow star", 130, 118, 74, (250, 212, 30), 8)
    drawing.add("red circle", 318, 214, 72, (214, 36, 40))
    drawing.add("white cross", 520, 104, 50, (252, 252, 252), 6)
    drawing.add("purple hexagon", 676, 204, 76, (126, 52, 186), 12)
    drawing.add("green triangle", 178, 420, 108, (38, 150, 62))
    drawing.add("blue square", 404, 450, 92, (36, 86, 214), -5)
    drawing.add("orange ring", 616, 442, 84, (246, 132, 22))
    drawing.add("black diamond", 726, 520, 44, (24, 24, 28))
    return drawing.finished(), drawing.boxes


def poster() -> tuple[Image.Image, list[Box]]:
    """A flat design on white, 600 x 900: rows of shapes under a title."""
    drawing = Drawing(600, 900, (255, 255, 255))
    drawing.write(300, 56, "FORMS & TINTS", 54, (40, 44, 60))
    drawing.polygon([(80, 132), (520, 132), (520, 137), (80, 137)], (40, 44, 60))
    for row, entries in enumerate(
        (
            (
                ("pink circle", (255, 134, 178)),
                ("cyan square", (20, 206, 236)),
                ("brown hexagon", (122, 74, 36)),
            ),
            (("green ring", (40, 168, 74)), ("red star", (222, 30, 44)), ("blue triangle", (30, 80, 220))),
            (
                ("gray diamond", (130, 130, 132)),
                ("orange cross", (250, 140, 20)),
                ("red square", (222, 30, 44)),
            ),
        )
    ):
        for column, (label, colour) in enumerate(entries):
            drawing.add(label, 120 + 180 * column, 250 + 200 * row, 72, colour)
    drawing.polygon([(80, 770), (520, 770), (520, 775), (80, 775)], (40, 44, 60))
    drawing.write(300, 806, "nine pieces, each with a name", 26, (90, 96, 112))
    return drawing.finished(), drawing.boxes


def table() -> tuple[Image.Image, list[Box]]:
    """A rendered photograph, 1024 x 683: painted wooden tokens beside a sheet and a pencil."""
    tokens = [
        Token("red circle", -11.2, -6.4, 2.6, (196, 28, 32)),
        Token("yellow star", -2.6, -6.6, 3.1, (244, 202, 20), 14),
        Token("blue square", 5.6, -5.6, 3.0, (26, 62, 182), 8),
        Token("white ring", 12.6, -6.2, 2.7, (240, 240, 238)),
        Token("green triangle", -8.4, 3.6, 3.6, (24, 128, 52), -6),
        Token("purple hexagon", 0.6, 3.0, 2.8, (104, 36, 156), 10),
        Token("orange cross", 9.6, 3.6, 2.9, (240, 120, 14), -9),
        Token("red diamond", 14.6, 6.8, 1.8, (196, 28, 32), 5),
    ]
    clutter = [
        Token("sheet", -14.5, 7.5, 7.5, (232, 228, 216), -24, 0.02),
        Token("bar", 4.5, 8.8, 6.0, (58, 92, 84), -7, 0.4),
    ]
    pixels, pieces = photograph(tokens, clutter, Camera(1536, 1024), seed=4)
    boxes = []
    for index, token in enumerate(tokens, 1):
        seen = np.argwhere(pieces == index)[:, ::-1]
        boxes.append(boxed(token.label, np.concatenate([seen, seen + 1]) / (1536, 1024)))
    picture = Image.fromarray(pixels)
    return picture.resize((1024, 683), Image.Resampling.LANCZOS), boxes


def main() -> None:
    truth = {}
    for name, make in (("scene.jpg", scene), ("table.jpg", table), ("poster.png", poster)):
        picture, truth[name] = make()
        options = {"quality": 90} if name.endswith("jpg") else {"optimize": True}
        picture.save(HERE / name, **options)
    (HERE / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main()
