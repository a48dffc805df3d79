"""What a service answers, as typed values. Coordinates are fractions of the upright image, 0 to 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr
from PIL import Image

from pointbox import drawing, exports, interop
from pointbox.pictures import ImageSource

if TYPE_CHECKING:
    import supervision

_SOURCE = "source"


class PixelBox(NamedTuple):
    """The corners of a box in pixels of the upright image."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float


class PixelPoint(NamedTuple):
    """A point in pixels of the upright image."""

    x: float
    y: float


class Found(Struct, frozen=True, kw_only=True):
    """What boxes and points have in common."""

    label: str
    """The phrase that asked for it, exactly as it was sent."""
    score: float
    """0 to 1, from the model's own probabilities."""
    phrase_index: int = 0
    """Which of the phrases of the call asked for it."""
    image_width: int = 0
    """Of the upright image, in pixels; 0 while a stream has not told it."""
    image_height: int = 0

    def _frame(self) -> tuple[int, int]:
        if not self.image_width:
            raise ValueError("The size of the image is not known before the stream has ended.")
        return self.image_width, self.image_height


class Detection(Found, frozen=True, kw_only=True):
    """A box around one object."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float

    @property
    def pixels(self) -> PixelBox:
        """The corners in pixels, rounded to 0.01."""
        width, height = self._frame()
        corners = (self.x_min * width, self.y_min * height, self.x_max * width, self.y_max * height)
        return PixelBox(*(round(value, exports.PIXEL_DIGITS) for value in corners))

    @property
    def area(self) -> float:
        """The share of the image that the box covers, 0 to 1."""
        return (self.x_max - self.x_min) * (self.y_max - self.y_min)

    def iou(self, other: Detection) -> float:
        """Intersection over union with another box of the same image, 0 to 1."""
        width = min(self.x_max, other.x_max) - max(self.x_min, other.x_min)
        height = min(self.y_max, other.y_max) - max(self.y_min, other.y_min)
        common = max(width, 0.0) * max(height, 0.0)
        union = self.area + other.area - common
        return common / union if union > 0 else 0.0


class Point(Found, frozen=True, kw_only=True):
    """A point on one object."""

    x: float
    y: float

    @property
    def pixels(self) -> PixelPoint:
        """The point in pixels, rounded to 0.01."""
        width, height = self._frame()
        return PixelPoint(
            round(self.x * width, exports.PIXEL_DIGITS), round(self.y * height, exports.PIXEL_DIGITS)
        )


class ImageInfo(Struct, frozen=True, kw_only=True):
    """The upright image that the answer is about; sizes in pixels."""

    width: int
    height: int
    id: str | None = None


class PhraseResult(Struct, frozen=True, kw_only=True):
    """How the search for one phrase ended."""

    object: str
    finish_reason: str
    """stop, repetition, max_objects, length or deadline."""
    truncated: bool
    """Whether there may be more: true for max_objects, length and deadline."""


class Metrics(Struct, frozen=True, kw_only=True):
    """Where the time went on the service's side, in milliseconds, and what was computed, in tokens."""

    queue_ms: float = 0.0
    intake_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Result(Struct, frozen=True, kw_only=True, dict=True):
    """What both kinds of answer have in common. Two results are equal when their answers are."""

    request_id: str
    model: str
    image: ImageInfo
    phrases: list[PhraseResult]
    finish_reason: str
    """That of the phrase that ended worst."""
    truncated: bool
    """Whether any phrase may have more."""
    metrics: Metrics
    id: str | None = None
    """The `id` that the call was given."""
    notes: list[str] = []
    """What to know of this answer: how its image was read, how its model answers."""

    def with_source(self, image: ImageSource) -> None:
        """Remember the picture for `draw`. It is no part of the answer: not compared, encoded or pickled."""
        self.__dict__[_SOURCE] = image

    def to_json(self) -> str:
        """The answer as the service worded it."""
        values = msgspec.to_builtins(self)
        if self.id is None:
            del values["id"]
        if not self.notes:
            del values["notes"]
        for found in values.get("objects") or values.get("points") or ():
            del found["image_width"], found["image_height"]
        return msgspec.json.encode(values).decode()

    def _picture(self, image: ImageSource | None) -> Image.Image:
        source = self.__dict__.get(_SOURCE) if image is None else image
        if source is None:
            raise ValueError("The picture is not known to this result: pass it, as draw(image).")
        return drawing.canvas(source)

    def _placed(self, found: list[Any]) -> None:
        for one in found:
            force_setattr(one, "image_width", self.image.width)
            force_setattr(one, "image_height", self.image.height)


class DetectResult(Result, frozen=True, kw_only=True, dict=True):
    """The boxes of one image, ordered by phrase, then as the model wrote them; empty if nothing was found."""

    objects: list[Detection]

    def __post_init__(self) -> None:
        self._placed(self.objects)

    def __iter__(self) -> Iterator[Detection]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, index: int) -> Detection:
        return self.objects[index]

    def draw(self, image: ImageSource | None = None) -> Image.Image:
        """A copy of the picture with the boxes on it.

        Args:
            image: needed when the call had a URL or a handle, and after unpickling.
        """
        picture = self._picture(image)
        drawing.draw_boxes(picture, self.objects)
        return picture

    def to_supervision(self) -> supervision.Detections:
        """As `supervision.Detections`, in pixels; needs `pip install supervision`."""
        return interop.detections(self)

    def to_coco(self, file_name: str = "") -> dict[str, Any]:
        """As a COCO data set of one image; `pointbox.exports.coco` makes one of many."""
        return exports.coco([(file_name, self)])

    def to_yolo(self, names: list[str] | None = None) -> str:
        """As the lines of a YOLO label file: class, centre x, centre y, width, height, all fractions.

        Args:
            names: the classes in order; the phrases of the call when not given.
        """
        return exports.yolo(self, names)

    def to_label_studio(self, image: str) -> dict[str, Any]:
        """As a Label Studio task with this answer as its prediction.

        Args:
            image: where Label Studio finds the picture: a URL, or a path under its local storage.
        """
        return exports.label_studio(image, self)


class PointResult(Result, frozen=True, kw_only=True, dict=True):
    """The points of one image, ordered as in `DetectResult`; empty if nothing was found."""

    points: list[Point]

    def __post_init__(self) -> None:
        self._placed(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> Point:
        return self.points[index]

    def draw(self, image: ImageSource | None = None) -> Image.Image:
        """A copy of the picture with the points on it; see `DetectResult.draw`."""
        picture = self._picture(image)
        drawing.draw_points(picture, self.points)
        return picture

    def to_supervision(self) -> supervision.KeyPoints:
        """As `supervision.KeyPoints` of one point each, in pixels; `pip install supervision`."""
        return interop.key_points(self)

    def to_coco(self, file_name: str = "") -> dict[str, Any]:
        """As a COCO data set of one image, each point a keypoint."""
        return exports.coco([(file_name, self)])

    def to_yolo(self, names: list[str] | None = None) -> NoReturn:
        """Raises TypeError: YOLO's label files hold boxes."""
        raise TypeError(exports.NO_POINTS)

    def to_label_studio(self, image: str) -> dict[str, Any]:
        """As a Label Studio task; see `DetectResult.to_label_studio`."""
        return exports.label_studio(image, self)
