"""Who answers a job's questions: the engine in this process, or a service elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from app.admission.translate import failure
from app.intake.decode import decode
from app.jobs.records import JobSpec, Result
from app.problems import ProblemError
from app.spatial.answers import build_answer
from app.spatial.from_engine import completed
from engine.answer import collect
from engine.errors import EngineError
from engine.request import Request

if TYPE_CHECKING:
    from engine.engine import Engine

DECODING_THREADS = 2


class Answerer(Protocol):
    """Answers about one image at a time, many at once.

    at_once: images that keep it busy.
    """

    at_once: int

    async def answer(self, key: str, data: bytes, phrases: Sequence[str], spec: JobSpec) -> Result:
        """Raises ProblemError for an image that cannot be answered."""
        ...


class EngineAnswerer:
    """An engine in this process; decoding has threads of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.at_once = 2 * engine.stats().rows_max
        self._decoding = ThreadPoolExecutor(DECODING_THREADS, thread_name_prefix="pointbox-decode")

    async def answer(self, key: str, data: bytes, phrases: Sequence[str], spec: JobSpec) -> Result:
        loop = asyncio.get_running_loop()
        decoded = await loop.run_in_executor(self._decoding, decode, data)
        request = Request(
            spec.task,
            decoded.image,
            tuple(phrases),
            max_objects=spec.max_objects,
            min_score=spec.min_score,
            dedupe=spec.dedupe,
            priority="batch",
        )
        try:
            events = [event async for event in self._engine.stream(request)]
            found = collect(self._engine.model_info, request, events)
        except EngineError as error:
            told = failure(error)
            raise ProblemError(told.problem, told.detail) from error
        answer = build_answer(
            spec.task,
            completed(found, decoded.notes, 0.0),
            request_id="",
            phrases=phrases,
            units="normalized",
        )
        return Result.of(key, answer)

    async def close(self) -> None:
        self._decoding.shutdown()
