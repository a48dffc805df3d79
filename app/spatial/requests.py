"""What a caller of /detect and /point asks, checked as far as that goes without its image."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Request

from app.admission.messages import Priority, SpatialParams
from app.bodies import IMAGE_FIELDS, INLINE_BYTES, invalid, read_body
from app.images.picture import Picture
from app.intake.sources import Source, read_source
from app.settings import Settings
from app.spatial.phrases import check_phrases
from app.spatial.regions import Region, in_fractions, place_in_fractions
from app.spatial.schemas import DEFAULT_MAX_OBJECTS, SamplingSettings, SpatialBody, Units


@dataclass(frozen=True, slots=True)
class SpatialRequest:
    """A request that is well formed. Nothing is said yet of its image."""

    phrases: list[str]
    max_objects: int
    region: Region | None
    """In `units`, as it was sent."""
    min_score: float
    dedupe: bool
    units: Units
    priority: Priority
    adapter: str | None
    temperature: float
    top_p: float
    spatial_refs: list[list[float]]
    """In `units`, as they were sent."""
    timeout_s: float
    stream: bool
    model: str | None
    id: str | None
    source: Source
    names: dict[str, str]
    """What the caller called `image` and `object`: a problem found later names the field that it sent."""
    began: float
    """time.monotonic() seconds; `timeout_s` counts from here."""

    @property
    def remaining_s(self) -> float:
        """Until the deadline; never quite nothing, so that the queue may say that it is over."""
        return max(self.began + self.timeout_s - time.monotonic(), 0.001)

    def params(self, picture: Picture) -> SpatialParams:
        """What the worker is asked of this picture.

        Raises:
            ProblemError: the region or a place is not one of this picture.
        """
        return SpatialParams(
            phrases=self.phrases,
            max_objects=self.max_objects,
            region=self._region(picture),
            min_score=self.min_score,
            dedupe=self.dedupe,
            adapter=self.adapter,
            temperature=self.temperature,
            top_p=self.top_p,
            spatial_refs=[
                place_in_fractions(place, self.units, picture.width, picture.height)
                for place in self.spatial_refs
            ],
        )

    def fingerprint(self) -> str:
        """Equal for requests that ask the same, however they were written: JSON or form, defaults or not."""
        asked = (
            *(self.phrases, self.max_objects, self.region, self.min_score, self.dedupe, self.units),
            *(self.priority, self.adapter, self.timeout_s, self.stream, self.model, self.id),
            *(self.temperature, self.top_p, self.spatial_refs),
            self.source.identity(),
        )
        return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()

    def _region(self, picture: Picture) -> Region | None:
        """In [0,1] of the upright image."""
        if self.region is None:
            return None
        return in_fractions(self.region, self.units, picture.width, picture.height)


async def read_request(request: Request[Any, Any, Any], settings: Settings) -> SpatialRequest:
    """Read and check everything that can be checked without the image.

    Raises:
        ProblemError: with the field that is wrong.
    """
    began = time.monotonic()
    body, upload = await read_body(request, SpatialBody)
    if len(await request.body()) <= INLINE_BYTES:
        return _checked(body, upload, settings, began)
    return await asyncio.to_thread(_checked, body, upload, settings, began)


def _checked(body: SpatialBody, upload: bytes | None, settings: Settings, began: float) -> SpatialRequest:
    phrases = _phrases(body)
    source = read_source({field: getattr(body, field) for field in IMAGE_FIELDS}, upload)
    nested = body.settings or SamplingSettings()
    temperature = nested.temperature if body.temperature is None else body.temperature
    timeout_s = body.timeout_s or settings.default_timeout_s
    if not timeout_s <= settings.max_timeout_s:
        invalid(f"At most {settings.max_timeout_s:g} seconds can be asked for.", "timeout_s")
    return SpatialRequest(
        phrases=phrases,
        max_objects=body.max_objects or nested.max_objects or DEFAULT_MAX_OBJECTS,
        region=body.region,
        min_score=body.min_score,
        dedupe=body.dedupe,
        units=body.units,
        priority=body.priority,
        adapter=body.adapter,
        temperature=temperature or 0.0,
        top_p=body.top_p or nested.top_p or 1.0,
        spatial_refs=body.spatial_refs or [],
        timeout_s=timeout_s,
        stream=body.stream,
        model=body.model,
        id=body.id,
        source=source,
        names={"image": source.field, "object": "object" if body.objects is None else "objects"},
        began=began,
    )


def _phrases(body: SpatialBody) -> list[str]:
    if body.objects is not None:
        if body.object is not None:
            invalid("Send either `object` or `objects`, not both.", "objects")
        return check_phrases(body.objects, field="objects")
    if body.object is None:
        invalid("The phrase is missing: what to look for.", "object")
    return check_phrases([body.object], field="object")
