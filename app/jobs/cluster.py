"""A batch on several machines: each of a Ray's actors has an engine and takes one shard after the other.

The extra `ray` is needed. Actors open source and destination themselves, so every machine must reach them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from app.admission.translate import failure
from app.jobs.answering import EngineAnswerer
from app.jobs.errors import JobError, StoreAway
from app.jobs.places import S3Options, destination
from app.jobs.progress import Meter
from app.jobs.records import Plan, ShardCount
from app.jobs.shards import ShardRunner
from app.jobs.stores import Store
from app.problems import ProblemError
from app.settings import Settings
from engine.errors import EngineError

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before the import: nothing is reported to anybody
try:
    import ray
except ModuleNotFoundError:
    raise ProblemError(
        "invalid-request", "--ray needs more packages: pip install '.[ray]' in Pointbox's repository."
    ) from None


TRIES = 4
"""Of a shard whose engine dies."""


@dataclass(frozen=True, slots=True)
class Places:
    """The URLs of source and destination, a folder's as its absolute path."""

    source: str
    out: str
    s3: S3Options


class ShardActor:
    """An engine on one of the machines."""

    def __init__(self, places: Places, settings: Settings) -> None:
        from engine.engine import Engine

        self._source = destination(places.source, places.s3)
        self._target = destination(places.out, places.s3)
        try:
            self._engine = Engine.load(settings.model, **settings.engine_options)
        except EngineError as error:
            raise JobError(failure(error).detail) from None

    def model(self) -> tuple[str, str]:
        """Name and revision."""
        return self._engine.model_info.name, self._engine.model_info.revision

    async def run(self, plan: Plan, number: int) -> ShardCount:
        """Answer a shard and write its results."""
        folder, answerer = self._target.within(plan.job), EngineAnswerer(self._engine)
        try:
            runner = ShardRunner(
                plan.spec, self._source, folder, answerer, _begun, lambda good: None, plan.parts
            )
            async for _, count in runner.run([number]):
                return count
            raise AssertionError("unreachable")
        finally:
            await answerer.close()


class Cluster:
    """The actors of one batch. An actor that dies is started again, and its shard with it."""

    def __init__(self, actors: list[Any]) -> None:
        self._actors = actors

    def model(self) -> tuple[str, str]:
        """Name and revision, the same everywhere.  Raises JobError."""
        models = {tuple(model) for model in _get([actor.model.remote() for actor in self._actors])}
        if len(models) > 1:
            raise JobError(f"the machines have different models: {sorted(models)}")
        name, revision = models.pop()
        return name, revision

    async def run(self, plan: Plan, folder: Store, left: list[int], meter: Meter) -> None:
        """Answer the shards that are left.  Raises JobError, StoreAway."""
        numbers = iter(left)

        async def feed(actor: Any) -> None:
            for number in numbers:
                try:
                    count: ShardCount = await actor.run.remote(plan, number)
                except ray.exceptions.RayTaskError as error:
                    raise _cause(error) from None
                except ray.exceptions.RayError as error:
                    raise JobError(f"shard {number} ended the engine {TRIES} times: {error}") from None
                meter.at(meter.done + count.images, meter.errors + count.errors)

        feeding = [asyncio.create_task(feed(actor)) for actor in self._actors]
        try:
            await asyncio.gather(*feeding)
        finally:
            for task in feeding:
                task.cancel()
            await asyncio.gather(*feeding, return_exceptions=True)


@contextmanager
def started(address: str, actors: int, places: Places, settings: Settings) -> Iterator[Cluster]:
    """A cluster whose actors end with the block.

    Args:
        address: as `ray.init` takes it.
        actors: how many; 0: one for each machine.

    Raises:
        ProblemError: there is no Ray at this address.
    """
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ProblemError("invalid-request", f"There is no Ray at {address}: {error}") from error
    try:
        needs = {"num_gpus": 1} if settings.device == "cuda" else {"num_cpus": 1}
        count = actors or sum(node["Alive"] for node in ray.nodes())
        kind = ray.remote(ShardActor).options(
            **needs,
            scheduling_strategy="SPREAD",
            max_concurrency=1,
            max_restarts=-1,
            max_task_retries=TRIES - 1,
        )
        yield Cluster([kind.remote(places, settings) for _ in range(count)])
    finally:
        ray.shutdown()


def _get(references: list[Any]) -> list[Any]:
    try:
        values: list[Any] = ray.get(references)
    except ray.exceptions.RayTaskError as error:
        raise _cause(error) from None
    except ray.exceptions.RayActorError as error:
        raise JobError(f"an actor could not start: {error}") from None
    return values


def _cause(error: Any) -> Exception:
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, JobError | StoreAway | ProblemError) else error


async def _begun(shard: int) -> None:
    """Nobody needs to know that a shard begins."""
