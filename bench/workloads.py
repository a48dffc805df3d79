"""How many objects the sequences of a workload answer, and pictures to ask about."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from bench.emulated import TOKENS_PER_OBJECT

Workload = Literal["detect", "short"]
MEAN_TOKENS: dict[Workload, int] = {"detect": 110, "short": 6}
COLOURS = ("red", "blue", "green", "yellow", "purple")
SHAPES = ("circle", "square")


def objects_for(mean_tokens: float, seed: int = 0) -> Iterator[int]:
    """Object counts, spread evenly by half around the count that gives so many tokens on average."""
    chance = random.Random(seed)
    mean = (mean_tokens - 1) / TOKENS_PER_OBJECT
    while True:
        yield int(mean * (0.5 + chance.random()) + chance.random())


@dataclass(frozen=True, slots=True)
class Question:
    """image: uint8 [H, W, 3] RGB."""

    image: npt.NDArray[np.uint8]
    phrase: str


def questions(count: int, seed: int = 0, phrases: int = 1) -> list[Question]:
    """Pictures of a few plain shapes; each is asked about with so many phrases, one after the other.

    A picture's first phrase names some of its shapes, the others may or may not.
    """
    chance = random.Random(seed)
    asked: list[Question] = []
    while len(asked) < count:
        asked += _about_one_picture(chance, phrases)
    return asked[:count]


def _about_one_picture(chance: random.Random, phrases: int) -> list[Question]:
    width, height = chance.choice(((640, 480), (480, 640), (512, 512)))
    picture = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(picture)
    names = [(chance.choice(COLOURS), chance.choice(SHAPES)) for _ in range(chance.randint(1, 8))]
    for colour, shape in names:
        side = chance.randint(40, 120)
        x, y = chance.randint(0, width - side), chance.randint(0, height - side)
        paint = draw.ellipse if shape == "circle" else draw.rectangle
        paint((x, y, x + side, y + side), fill=colour)
    first = chance.choice(names)
    others = [name for name in product(COLOURS, SHAPES) if name != first]
    named = [first, *chance.sample(others, phrases - 1)]
    image = np.asarray(picture)
    return [Question(image, " ".join(name)) for name in named]
