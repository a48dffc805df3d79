"""Boxes, points and their labels on a picture: a colour for each phrase, legible on any ground."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from PIL import Image, ImageDraw, ImageFont

from pointbox.pictures import ImageSource, upright

if TYPE_CHECKING:
    from pointbox.results import Detection, Found, Point

Rectangle: TypeAlias = tuple[float, float, float, float]

# Okabe and Ito's palette, which people with any colour vision can tell apart.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442")
_DARK_INK = frozenset({"#e69f00", "#56b4e9", "#f0e442"})
LABEL_CHARS = 40


def canvas(image: ImageSource) -> Image.Image:
    """A copy to draw on: upright, RGB."""
    return upright(image).copy()


def draw_boxes(picture: Image.Image, boxes: Iterable[Detection]) -> None:
    """Draw onto `picture`; it may have another size than the one that was asked about."""
    pencil = _Pencil(picture)
    width, height = picture.size
    for box in boxes:
        corners = (box.x_min * width, box.y_min * height, box.x_max * width, box.y_max * height)
        pencil.frame(corners, _colour(box))
        pencil.label(_text(box), corners, _colour(box))


def draw_points(picture: Image.Image, points: Iterable[Point]) -> None:
    """Draw onto `picture`; it may have another size than the one that was asked about."""
    pencil = _Pencil(picture)
    width, height = picture.size
    for point in points:
        around = pencil.dot(point.x * width, point.y * height, _colour(point))
        pencil.label(_text(point), around, _colour(point))


class _Pencil:
    """Lines and letters in proportion to one picture; remembers where labels are."""

    def __init__(self, picture: Image.Image) -> None:
        self._ink = ImageDraw.Draw(picture)
        self._width, self._height = picture.size
        side = max(picture.size)
        self._stroke = max(2, side // 320)
        self._font = ImageFont.load_default(max(12, side // 50))
        self._labels: list[Rectangle] = []

    def frame(self, corners: Rectangle, colour: str) -> None:
        stroke = self._stroke
        x_min, y_min, x_max, y_max = corners
        halo = (x_min - stroke, y_min - stroke, x_max + stroke, y_max + stroke)
        self._ink.rectangle(halo, outline="white", width=3 * stroke)
        self._ink.rectangle(corners, outline=colour, width=stroke)

    def dot(self, x: float, y: float, colour: str) -> Rectangle:
        """The rectangle around the dot."""
        radius = 3 * self._stroke
        self._ink.circle((x, y), radius + self._stroke, fill="white")
        self._ink.circle((x, y), radius, fill=colour)
        return x - radius, y - radius, x + radius, y + radius

    def label(self, text: str, thing: Rectangle, colour: str) -> None:
        """Above the thing, below it, or inside it: the first place within the picture that is free."""
        left, top, right, bottom = self._ink.textbbox((0, 0), text, font=self._font)
        pad = self._stroke
        width, height = right - left + 2 * pad, bottom - top + 2 * pad
        x = max(0.0, min(thing[0], self._width - width))
        places = [
            (x, y, x + width, y + height)
            for wanted in (thing[1] - height, thing[3], thing[1])
            for y in [max(0.0, min(wanted, self._height - height))]
        ]
        place = next((place for place in places if not self._taken(place)), places[0])
        self._labels.append(place)
        self._ink.rectangle(place, fill=colour)
        ink = "black" if colour in _DARK_INK else "white"
        self._ink.text((place[0] + pad - left, place[1] + pad - top), text, font=self._font, fill=ink)

    def _taken(self, place: Rectangle) -> bool:
        return any(
            place[0] < other[2] and other[0] < place[2] and place[1] < other[3] and other[1] < place[3]
            for other in self._labels
        )


def _colour(found: Found) -> str:
    return COLOURS[found.phrase_index % len(COLOURS)]


def _text(found: Found) -> str:
    label = " ".join(found.label.split())
    if len(label) > LABEL_CHARS:
        label = label[: LABEL_CHARS - 1] + "…"
    return f"{label} {found.score:.2f}"
