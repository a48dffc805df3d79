"""A stand-in for Moondream's client: `import pointbox.compat.moondream as md` in the place of `moondream`.

`detect` and `point` have its arguments and its answers: plain dictionaries, in fractions of the picture's
pixels as they lie, whatever its EXIF data says. What Pointbox does not do (`caption`, `query`, `chat`,
`segment`) raises `NotImplementedError`. Errors are those of `pointbox`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import TracebackType
from typing import Any, NoReturn, Self, TypedDict

from PIL import Image

from pointbox.calls import Options
from pointbox.client import Client


class Region(TypedDict):
    """A box; fractions of the picture."""

    x_min: float
    y_min: float
    x_max: float
    y_max: float


class Point(TypedDict):
    """A point; fractions of the picture."""

    x: float
    y: float


class DetectOutput(TypedDict):
    """What `detect` returns."""

    objects: list[Region]


class PointOutput(TypedDict):
    """What `point` returns."""

    points: list[Point]


class SamplingSettings(TypedDict, total=False):
    """`max_tokens` has no effect: an answer ends with its objects."""

    temperature: float
    top_p: float
    max_tokens: int
    max_objects: int


@dataclass
class Base64EncodedImage:
    """A picture that need not be encoded again."""

    image_url: str


def vl(
    api_key: str | None = None, endpoint: str | None = None, local: bool = False, model: str | None = None
) -> VL:
    """A model behind a Pointbox service.

    Args:
        api_key: POINTBOX_API_KEY by default.
        endpoint: where the service is, with or without `/v1`; POINTBOX_URL by default.
        local: not possible here: start `pointbox serve` and leave it out.
        model: the service's own by default.
    """
    if local:
        raise ValueError(
            "There is no model inside this client: start `pointbox serve` and leave out `local`."
        )
    return VL(Client(endpoint, api_key, model=model))


class VL:
    """Detects and points through a Pointbox service; a client of its own is inside."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def encode_image(self, image: Image.Image | Base64EncodedImage) -> Base64EncodedImage:
        """The picture as it is sent, for several questions about it.  Raises ValueError for anything else."""
        if isinstance(image, Base64EncodedImage):
            return image
        if not isinstance(image, Image.Image):
            kind = type(image).__name__
            raise ValueError(f"image must be a PIL image or what encode_image returned, not {kind}.")
        sink = BytesIO()
        image.convert("RGB").save(sink, "JPEG", quality=95)
        return Base64EncodedImage(f"data:image/jpeg;base64,{base64.b64encode(sink.getvalue()).decode()}")

    def detect(
        self,
        image: Image.Image | Base64EncodedImage,
        object: str,
        settings: SamplingSettings | None = None,
    ) -> DetectOutput:
        """Boxes around everything that `object` names."""
        found = self._client.detect(self.encode_image(image).image_url, object, **_options(settings))
        return {
            "objects": [
                {"x_min": box.x_min, "y_min": box.y_min, "x_max": box.x_max, "y_max": box.y_max}
                for box in found
            ]
        }

    def point(
        self,
        image: Image.Image | Base64EncodedImage,
        object: str,
        settings: SamplingSettings | None = None,
        spatial_refs: list[list[float]] | None = None,
    ) -> PointOutput:
        """A point on everything that `object` names.

        spatial_refs: points and boxes, fractions, that it refers to; a Moondream model takes them.
        """
        options = _options(settings)
        if spatial_refs:
            options["spatial_refs"] = spatial_refs
        found = self._client.point(self.encode_image(image).image_url, object, **options)
        return {"points": [{"x": point.x, "y": point.y} for point in found]}

    def caption(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not what Pointbox does."""
        _not_here("caption pictures")

    def query(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not what Pointbox does."""
        _not_here("answer questions")

    def chat(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not what Pointbox does."""
        _not_here("chat")

    def segment(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not what Pointbox does."""
        _not_here("segment pictures")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _options(settings: Mapping[str, Any] | None) -> Options:
    options: Options = {}
    for name in ("max_objects", "temperature", "top_p"):
        if (value := (settings or {}).get(name)) is not None:
            options[name] = value
    return options


def _not_here(what: str) -> NoReturn:
    raise NotImplementedError(f"Pointbox detects and points; it does not {what}.")
