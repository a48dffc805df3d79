"""Parts and places of an image that a caller names: the same rule over HTTP and on the command line."""

from __future__ import annotations

from app.problems import ProblemError
from app.spatial.schemas import Units

Region = tuple[float, float, float, float]
"""x_min, y_min, x_max, y_max."""


def in_fractions(region: Region, units: Units, width: int, height: int) -> Region:
    """In [0,1] of the upright image, whose size is in pixels.

    Raises:
        ProblemError: it is not one of this image.
    """
    right, bottom = (width, height) if units == "pixels" else (1, 1)
    x_min, y_min, x_max, y_max = region
    if not (0 <= x_min < x_max <= right and 0 <= y_min < y_max <= bottom):
        detail = (
            f"A region is x_min, y_min, x_max, y_max with 0 <= x_min < x_max <= {right} and "
            f"0 <= y_min < y_max <= {bottom}."
        )
        raise ProblemError("invalid-request", detail, field="region")
    return x_min / right, y_min / bottom, x_max / right, y_max / bottom


def place_in_fractions(place: list[float], units: Units, width: int, height: int) -> list[float]:
    """A point (x, y) or a box in [0,1] of the upright image, whose size is in pixels.

    Raises:
        ProblemError: it is not one of this image.
    """
    sizes = (width, height) if units == "pixels" else (1, 1)
    inside = len(place) in (2, 4) and all(0 <= value <= sizes[i % 2] for i, value in enumerate(place))
    if not inside or (len(place) == 4 and not (place[0] <= place[2] and place[1] <= place[3])):
        detail = (
            "A spatial reference is x, y or x_min, y_min, x_max, y_max with x_min <= x_max and "
            f"y_min <= y_max, x from 0 to {sizes[0]} and y from 0 to {sizes[1]}."
        )
        raise ProblemError("invalid-request", detail, field="spatial_refs")
    return [value / sizes[i % 2] for i, value in enumerate(place)]
