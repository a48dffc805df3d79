"""What a caller asks of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from grammars.types import TASKS, Place, Region, Task

Priority = Literal["interactive", "batch"]
MAX_PHRASES = 32
MAX_PHRASE_CHARS = 256
MAX_PLACES = 32


@dataclass(frozen=True, slots=True)
class Request:
    """One image and one or more phrases.

    image: uint8 [H, W, 3], upright RGB.
    max_objects: per phrase, at least 1.
    region: only items wholly inside it are answered; the image is not cropped.
    min_score: items below it are left out.
    temperature: 0 takes the most likely token, more takes others too, among the most likely that together
        have probability top_p; one seed gives one answer, whatever runs beside it.
    dedupe: leave out an item that repeats an earlier one of its phrase, and stop after three in a row.
    priority: batch rows yield to interactive ones, see `engine.scheduler`.
    deadline: `time.monotonic()` seconds, None for no limit.
    adapter: name of one of the model's adapters; None for the model as it is.
    spatial_refs: points and boxes that the phrases refer to, for models that take them.
    """

    task: Task
    image: npt.NDArray[np.uint8]
    phrases: tuple[str, ...]
    max_objects: int = 50
    region: Region | None = None
    min_score: float = 0.0
    dedupe: bool = True
    deadline: float | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    priority: Priority = "interactive"
    adapter: str | None = None
    spatial_refs: tuple[Place, ...] = ()

    def check(self) -> None:
        """Raises EngineError for a request that no model could answer."""
        if self.task not in TASKS:
            raise EngineError(
                "unsupported-task", f"unknown task {self.task!r}: use one of {', '.join(TASKS)}"
            )
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8:
            raise EngineError("invalid-request", "image must be a uint8 array of shape [H, W, 3]", "image")
        if 0 in self.image.shape:
            raise EngineError("invalid-request", "image has no pixels", "image")
        if not 1 <= len(self.phrases) <= MAX_PHRASES:
            raise EngineError("invalid-phrase", f"send 1 to {MAX_PHRASES} phrases", "objects")
        for phrase in self.phrases:
            if not phrase.strip():
                raise EngineError("invalid-phrase", "a phrase must not be blank", "object")
            if not phrase.isascii() and any("\ud800" <= c <= "\udfff" for c in phrase):
                raise EngineError("invalid-phrase", "a phrase must be Unicode text", "object")
            if len(phrase) > MAX_PHRASE_CHARS:
                raise EngineError(
                    "invalid-phrase",
                    f"a phrase has at most {MAX_PHRASE_CHARS} characters, this one {len(phrase)}",
                    "object",
                )
        if self.max_objects < 1:
            raise EngineError("invalid-request", "max_objects must be at least 1", "max_objects")
        if not 0 <= self.temperature <= 10:
            raise EngineError("invalid-request", "temperature must be between 0 and 10", "temperature")
        if not 0 < self.top_p <= 1:
            raise EngineError("invalid-request", "top_p must be above 0 and at most 1", "top_p")
        if self.region is not None:
            x_min, y_min, x_max, y_max = self.region
            if not (0 <= x_min < x_max <= 1 and 0 <= y_min < y_max <= 1):
                raise EngineError(
                    "invalid-request", "region must be x_min < x_max and y_min < y_max in [0, 1]", "region"
                )
        self._check_places()

    def _check_places(self) -> None:
        if len(self.spatial_refs) > MAX_PLACES:
            raise EngineError("invalid-request", f"send at most {MAX_PLACES} spatial_refs", "spatial_refs")
        for place in self.spatial_refs:
            inside = len(place) in (2, 4) and all(0 <= value <= 1 for value in place)
            ordered = len(place) == 2 or (inside and place[0] <= place[2] and place[1] <= place[3])
            if not (inside and ordered):
                raise EngineError(
                    "invalid-request",
                    "a spatial reference is x, y or x_min, y_min, x_max, y_max in [0, 1]",
                    "spatial_refs",
                )
