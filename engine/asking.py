"""Questions as people write them."""

from __future__ import annotations

import time
from collections.abc import Sequence as Listing
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.errors import EngineError
from engine.request import Priority, Request
from grammars.types import Place, Region, Task

ImageLike = Image.Image | npt.NDArray[np.uint8]


class Asked(TypedDict, total=False):
    """What a question may say beside its image and its phrases; see `engine.request.Request`.

    timeout_s: seconds from now until the deadline.
    """

    max_objects: int
    region: Region | None
    min_score: float
    dedupe: bool
    timeout_s: float | None
    temperature: float
    top_p: float
    seed: int | None
    priority: Priority
    adapter: str | None
    spatial_refs: tuple[Place, ...]


def make_request(task: Task, image: ImageLike, phrase: str | Listing[str], asked: Asked) -> Request:
    """A request from what people have at hand.

    image: PIL image, or uint8 [H, W, 3] RGB, upright.
    Raises EngineError for anything else.
    """
    if not isinstance(image, Image.Image | np.ndarray):
        kind = type(image).__name__
        raise EngineError("invalid-request", f"image must be a PIL image or an array, not {kind}", "image")
    pixels = np.asarray(image.convert("RGB")) if isinstance(image, Image.Image) else image
    phrases = (phrase,) if isinstance(phrase, str) else tuple(phrase)
    rest = {name: value for name, value in asked.items() if name != "timeout_s"}
    timeout_s = asked.get("timeout_s")
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return Request(task, pixels, phrases, deadline=deadline, **rest)  # type: ignore[arg-type]
