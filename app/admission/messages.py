"""What travels between the API and the workers, as msgpack. Fields may be added, never renamed."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from app.admission.unreadable import skipped

Priority = Literal["interactive", "batch"]
ENTRY_VERSION = "1"
"""`v` of a queue entry. A worker leaves entries of a version it does not know alone."""


class SpatialParams(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for. `region` is x_min, y_min, x_max, y_max in [0,1].

    `spatial_refs`: places of two or four numbers in [0,1] that the phrases refer to.
    """

    phrases: list[str]
    max_objects: int = 50
    region: tuple[float, float, float, float] | None = None
    min_score: float = 0.0
    dedupe: bool = True
    adapter: str | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    spatial_refs: list[list[float]] = []


class ObjectEvent(msgspec.Struct, frozen=True, tag="object"):
    """One object. `box` is x_min, y_min, x_max, y_max for detect and x, y for point, in [0,1]."""

    phrase_index: int
    box: tuple[float, ...]
    score: float


class PhraseEvent(msgspec.Struct, frozen=True, tag="phrase"):
    """No further object follows for this phrase."""

    phrase_index: int
    finish_reason: str


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Times in milliseconds. `queue_ms`: admission to worker; `intake_ms`: fetching and decoding."""

    queue_ms: float = 0.0
    intake_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class Completed(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The whole answer. `objects` are ordered by phrase, then as the model wrote them."""

    model: str
    width: int
    height: int
    objects: list[ObjectEvent]
    finish_reasons: list[str]
    """One per phrase."""
    metrics: Metrics
    notes: list[str] = []
    """Remarks of the image decoder, such as "first frame of 12", and of the model."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="error"):
    """The request has no answer. `problem` is the slug under /problems/, or "cancelled"."""

    problem: str
    detail: str
    field: str | None = None
    retry_after_s: float | None = None


Terminal: TypeAlias = Completed | Failure
Event: TypeAlias = ObjectEvent | PhraseEvent | Completed | Failure


class EngineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """engine.stats.Stats of a worker: a moment's counts, and what happened since its start."""

    rows_active: int
    rows_max: int
    waiting: int
    pages_free: int
    pages_cached: int
    pages_held: int
    pages_total: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    idle_s: float
    device_s: float = 0.0


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a live worker publishes about itself. `capacity` and `load` count phrases."""

    id: str
    version: str
    name: str
    family: str
    revision: str
    tasks: list[str]
    capacity: int
    load: int
    adapters: list[str] = []
    runs_jobs: bool = False
    uptime_s: float = 0.0
    engine: EngineCounts | None = None
    unreadable: dict[str, int] = {}
    """Readings of records that it could not read, by kind."""
    restarts: dict[str, int] = {}
    """How often its tasks were begun again, by name."""


class WorkerModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model and the live workers that serve it. `capacity` and `load` count phrases, summed.

    `job_runners` counts the workers that run jobs beside it.
    """

    name: str
    family: str
    revision: str
    tasks: list[str]
    workers: int
    capacity: int
    load: int
    adapters: list[str] = []
    job_runners: int = 0


_encoder = msgspec.msgpack.Encoder()
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_terminal_decoder: msgspec.msgpack.Decoder[Terminal] = msgspec.msgpack.Decoder(Terminal)
_params_decoder = msgspec.msgpack.Decoder(SpatialParams)
_worker_decoder = msgspec.msgpack.Decoder(WorkerInfo)


def encode(message: msgspec.Struct) -> bytes:
    """Any message above as msgpack."""
    return _encoder.encode(message)


def decode_event(data: bytes) -> Event:
    """Raises msgspec.DecodeError when `data` is none of the events."""
    return _event_decoder.decode(data)


def decode_terminal(data: bytes) -> Terminal:
    """A final answer; one that this version cannot read becomes a Failure."""
    try:
        return _terminal_decoder.decode(data)
    except msgspec.DecodeError as error:
        skipped("answer", error)
        return Failure(problem="internal", detail=f"The worker's answer cannot be read: {error}")


def decode_params(data: bytes) -> SpatialParams:
    """Raises msgspec.DecodeError when `data` is not a SpatialParams."""
    return _params_decoder.decode(data)


def decode_worker(data: bytes) -> WorkerInfo:
    """Raises msgspec.DecodeError when `data` is not a WorkerInfo."""
    return _worker_decoder.decode(data)
