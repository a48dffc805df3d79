"""An answer drawn on its picture, by the client, which draws what services answer."""

from __future__ import annotations

import msgspec
from PIL import Image

from app.client import pointbox
from app.spatial.schemas import DetectAnswer, PointAnswer


def draw_answer(image: Image.Image, answer: DetectAnswer | PointAnswer) -> Image.Image:
    """A copy of `image` (upright, RGB) with boxes or points on it; the answer is in fractions."""
    kind = pointbox.DetectResult if isinstance(answer, DetectAnswer) else pointbox.PointResult
    return msgspec.json.decode(msgspec.json.encode(answer), type=kind).draw(image)
