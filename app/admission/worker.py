"""The worker process: the engine with its thread, and the feeder that serves it from Redis."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import structlog
import uvloop

from app import logs, tracing
from app.admission.connections import REDIS_ERRORS, producer
from app.admission.decoding import DECODE_THREADS
from app.admission.execution import EngineDied, EngineLike
from app.admission.failed import leave_reason
from app.admission.faults import refuse_evicting
from app.admission.feeder import Feeder
from app.jobs.opening import check_stores, jobs_beside
from app.misspelt import warn_misspelt
from app.setting_names import as_flags
from app.settings import Settings, SettingsError

CLOSE_S = 5.0

log = structlog.get_logger(__name__)


def run_worker(settings: Settings) -> int:
    """Serves requests until SIGTERM or SIGINT. Returns the exit status: 0 after an orderly end.

    Raises:
        SettingsError: no worker can run with these settings; starting it again would not help.
    """
    if settings.redis_url is None:
        raise SettingsError("POINTBOX_REDIS_URL must be set: a worker takes its requests from there")
    logs.configure(settings.log_level, "worker")
    warn_misspelt(os.environ)
    tracing.configure("worker")
    if len(settings.models) > 1:
        raise SettingsError("--model must name one: start a worker for each")
    threading.excepthook = _end_process
    from app.intake.decode import decode
    from engine.engine import Engine
    from engine.errors import EngineError

    def load() -> EngineLike:
        # As many as decode, so that a costly picture does not take the last of these threads either.
        return Engine.load(settings.model, prepare_threads=DECODE_THREADS, **settings.engine_options)

    check_stores(settings)
    refuse_evicting(settings.redis_url)
    try:
        uvloop.run(work(settings, load, decode))
    except EngineError as error:  # the model, the device or a limit cannot be had
        reason = as_flags(str(error))
        asyncio.run(_leave_reason(settings, reason))
        raise SettingsError(reason) from None
    except EngineDied as error:
        log.error("the engine ended", error=str(error))
        return 1
    return 0


async def _leave_reason(settings: Settings, reason: str) -> None:
    """For the supervisor, which sees the exit status only."""
    if settings.worker_id and settings.redis_url:
        redis = producer(settings.redis_url)
        with contextlib.suppress(*REDIS_ERRORS):
            await leave_reason(redis, settings.namespace, settings.worker_id, reason)
        await redis.aclose()


def _end_process(uncaught: threading.ExceptHookArgs) -> None:
    """A thread of the engine has died, and nobody would be answered any more: let another process try."""
    log.critical("thread died", exc_info=uncaught.exc_value)
    os._exit(1)


async def work(settings: Settings, load: Callable[[], EngineLike], decode: Callable[[bytes], Any]) -> None:
    """Loads the engine and feeds it until a signal comes. Raises what `load` raises."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    engine = await asyncio.to_thread(load)
    gc.freeze()  # or every full collection walks all that was imported, and holds up the engine
    try:
        feeder = Feeder(settings, engine, decode)
        log.info("worker is ready", worker=feeder.id, model=engine.model_info.name)
        async with jobs_beside(settings, stop):
            await feeder.run(stop)
        log.info("worker ended", worker=feeder.id)
    finally:
        gc.unfreeze()
        await _close(engine)


async def _close(engine: EngineLike) -> None:
    """A hanging engine cannot be closed, and would keep the process."""
    closing = asyncio.create_task(asyncio.to_thread(engine.close))
    await asyncio.wait({closing}, timeout=CLOSE_S)
    if not closing.done():
        log.critical("the engine does not end")
        os._exit(1)
    closing.result()
