"""Draw an answer on its picture: a colour per phrase, a label that stays readable on any ground."""

from __future__ import annotations

from PIL import Image, ImageDraw, ImageFont

from app.spatial.schemas import Box, DetectAnswer, Point, PointAnswer

Colour = tuple[int, int, int]
Corner = tuple[float, float]

# Distinct to people with any colour vision (Okabe and Ito), in an order that starts with the loudest.
COLOURS: tuple[Colour, ...] = (
    (213, 94, 0),
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
)


def draw_answer(image: Image.Image, answer: DetectAnswer | PointAnswer, *, pixels: bool) -> Image.Image:
    """A copy of `image` (upright, RGB) with boxes or points on it.

    Args:
        pixels: the coordinates of the answer are in pixels, not in [0,1].
    """
    picture = image.convert("RGB")
    width, height = (1, 1) if pixels else picture.size
    pen = _Pen(picture)
    if isinstance(answer, DetectAnswer):
        for box in answer.objects:
            pen.box(box, (box.x_min * width, box.y_min * height, box.x_max * width, box.y_max * height))
    else:
        for point in answer.points:
            pen.point(point, (point.x * width, point.y * height))
    return picture


class _Pen:
    """Lines and letters sized for one picture. Labels keep clear of each other where they can."""

    def __init__(self, picture: Image.Image) -> None:
        self._size = picture.size
        self._draw = ImageDraw.Draw(picture)
        scale = max(picture.size)
        self._line = max(2, round(scale / 320))
        self._font = ImageFont.load_default(max(12, round(scale / 50)))
        self._labels: list[tuple[float, float, float, float]] = []

    def box(self, box: Box, corners: tuple[float, float, float, float]) -> None:
        colour = _colour_of(box)
        self._draw.rectangle(_grown(corners, self._line), outline="white", width=self._line * 3)
        self._draw.rectangle(corners, outline=colour, width=self._line)
        self._label(_text_of(box), (corners[0], corners[1]), corners[3], colour)

    def point(self, point: Point, at: Corner) -> None:
        (x, y), radius, colour = at, self._line * 3, _colour_of(point)
        for reach, fill in ((radius + self._line, "white"), (radius, colour)):
            self._draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=fill)
        self._label(_text_of(point), (x + radius * 2, y - radius * 2), y + radius * 2, colour)

    def _label(self, text: str, corner: Corner, below: float, colour: Colour) -> None:
        """White on colour: above the corner, else below the object, always inside the picture."""
        left, top, right, bottom = self._draw.textbbox((0, 0), text, font=self._font)
        pad = self._line
        width, height = right - left + 2 * pad, bottom - top + 2 * pad
        x = min(max(corner[0], 0), max(self._size[0] - width, 0))
        places = [
            min(max(y, 0), max(self._size[1] - height, 0)) for y in (corner[1] - height, below, corner[1])
        ]
        y = next((y for y in places if not self._taken((x, y, x + width, y + height))), places[0])
        self._labels.append((x, y, x + width, y + height))
        self._draw.rectangle((x, y, x + width, y + height), fill=colour)
        ink = "black" if sum(colour) > 380 else "white"
        self._draw.text((x + pad - left, y + pad - top), text, font=self._font, fill=ink)

    def _taken(self, place: tuple[float, float, float, float]) -> bool:
        x_min, y_min, x_max, y_max = place
        return any(
            x_min < other[2] and other[0] < x_max and y_min < other[3] and other[1] < y_max
            for other in self._labels
        )


def _grown(corners: tuple[float, float, float, float], by: int) -> tuple[float, float, float, float]:
    return corners[0] - by, corners[1] - by, corners[2] + by, corners[3] + by


def _colour_of(found: Box | Point) -> Colour:
    return COLOURS[found.phrase_index % len(COLOURS)]


def _text_of(found: Box | Point) -> str:
    label = " ".join(found.label.split())
    return f"{label[:39]}… {found.score:.2f}" if len(label) > 40 else f"{label} {found.score:.2f}"
