"""Points and boxes, in fractions of the upright image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Task = Literal["detect", "point"]
TASKS: tuple[Task, ...] = ("detect", "point")


@dataclass(frozen=True, slots=True)
class Box:
    """An axis-aligned box; every value in [0, 1], x_min < x_max and y_min < y_max."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float
    score: float

    def repeats(self, other: Box) -> bool:
        """Whether both say the same object: intersection over union of at least 0.9."""
        width = min(self.x_max, other.x_max) - max(self.x_min, other.x_min)
        height = min(self.y_max, other.y_max) - max(self.y_min, other.y_min)
        if width <= 0 or height <= 0:
            return False
        shared = width * height
        return shared / (self.area + other.area - shared) >= 0.9

    def repeats_any(self, others: Iterable[Box]) -> bool:
        """Whether it `repeats` one of them: none whose left side is an eighth of the width away."""
        left, near = self.x_min, (self.x_max - self.x_min) / 8
        close = [other for other in others if -near <= other.x_min - left <= near]
        return any(self.repeats(other) for other in close)

    @property
    def area(self) -> float:
        return (self.x_max - self.x_min) * (self.y_max - self.y_min)

    def within(self, region: Region) -> bool:
        x_min, y_min, x_max, y_max = region
        return self.x_min >= x_min and self.y_min >= y_min and self.x_max <= x_max and self.y_max <= y_max


@dataclass(frozen=True, slots=True)
class Point:
    """A point; both values in [0, 1]."""

    x: float
    y: float
    score: float

    def repeats(self, other: Point) -> bool:
        """Whether both say the same object: within 0.01 of each other on both axes."""
        return abs(self.x - other.x) <= 0.01 and abs(self.y - other.y) <= 0.01

    def repeats_any(self, others: Iterable[Point]) -> bool:
        return any(self.repeats(other) for other in others)

    def within(self, region: Region) -> bool:
        x_min, y_min, x_max, y_max = region
        return x_min <= self.x <= x_max and y_min <= self.y <= y_max


Item = Box | Point
Region = tuple[float, float, float, float]
"""x_min, y_min, x_max, y_max in [0, 1]."""
Place = tuple[float, float] | Region
"""x and y of a point, or a box."""
Frame = tuple[int, int]
"""Highest x and highest y that numbers may have which are spelled out; they stand for 1."""
