"""`pointbox serve`: the API, engine workers and, when no Redis is given, a Valkey, as one service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from dataclasses import dataclass, replace

import structlog

from app import logs
from app.admission.connections import REDIS_ERRORS, producer
from app.admission.embedded import Embedded
from app.admission.faults import refuse_evicting
from app.admission.registry import by_model, is_live, workers
from app.admission.scripts import prefix
from app.admission.worker_queue import report_gone
from app.child import CannotTell, Child, GaveUp, Recipe
from app.jobs.opening import check_stores
from app.listening import claim_port
from app.misspelt import TOLD, warn_misspelt
from app.settings import Settings
from app.slots import Slots
from app.supervised import supervised

log = structlog.get_logger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_MARGIN_S = 5.0
"""A child that drains gets this much more than `drain_s` before it is killed."""
# -P: a folder named `app` where the user stands must not be taken for ours
_PYTHON = (sys.executable, "-P", "-m")


@dataclass(frozen=True, slots=True)
class Commands:
    """What the children run."""

    worker: tuple[str, ...] = (*_PYTHON, "app.cli", "worker")
    api: tuple[str, ...] = (*_PYTHON, "app.cli", "api")


def run_serve(settings: Settings, commands: Commands | None = None) -> int:
    """Runs until SIGINT, SIGTERM or SIGHUP. Returns the exit status.

    0 after an orderly end; 2 when a child says that the settings cannot work; 1 when one cannot be kept
    alive. Of engine workers, only when that is so of all.

    Raises:
        SettingsError: the stores cannot be used, or Redis may drop what is needed.
        ProblemError: the port is taken.
    """
    logs.configure(settings.log_level, "serve")
    warn_misspelt(os.environ)
    check_stores(settings)
    if settings.redis_url is not None:
        refuse_evicting(settings.redis_url)
    settings = replace(settings, port=claim_port(settings.host, settings.port))
    return asyncio.run(_Service(settings, commands or Commands()).run())


class _Service:
    """Starts the children and ends them in order: API, workers, Valkey."""

    def __init__(self, settings: Settings, commands: Commands) -> None:
        embedded = Embedded() if settings.redis_url is None else None
        self._settings = replace(settings, redis_url=embedded.url) if embedded else settings
        self._redis = producer(self._settings.redis_url or "")
        self._signals = 0
        self._stop = asyncio.Event()
        stall_s = settings.stall_s
        self._slots = Slots(self._redis, settings.namespace, len(settings.models) * settings.workers)
        self._children: list[Child] = [
            Child("API", lambda: self._api(commands.api), lambda _: _answers(settings, "/livez"), stall_s),
            *(
                self._worker(commands.worker, model, f"{number}-{copy}")
                for number, model in enumerate(settings.models)
                for copy in range(settings.workers)
            ),
        ]
        if embedded is not None:
            recipe = Recipe(embedded.command, {}, embedded.config, quiet=True)
            self._children.append(Child("embedded Valkey", lambda: recipe, lambda _: self._pings(), stall_s))

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        keeping = {asyncio.create_task(child.keep(), name=child.title) for child in self._children}
        stopping = asyncio.create_task(self._stop.wait())
        announcing = asyncio.create_task(supervised("announcement", self._announce))
        publishing = asyncio.create_task(supervised("failed workers", self._slots.keep_published))
        try:
            await asyncio.wait({*keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
            announcing.cancel()
            publishing.cancel()
            await self._end()
        finally:
            for child in self._children:
                child.kill()
            results = await asyncio.gather(*keeping, return_exceptions=True)
            stopping.cancel()
            await self._redis.aclose()
        return _status(results)

    async def _announce(self) -> None:
        for child in self._children:
            while not (child.ready.is_set() or self._slots.failed(child)):
                await asyncio.sleep(0.1)
        while not (names := await self._models()) or not await _answers(self._settings, "/readyz"):
            await asyncio.sleep(0.1)
        print(f"Pointbox is ready at {_url(self._settings)} (model {', '.join(names)})", flush=True)

    async def _models(self) -> list[str]:
        """By the names that callers use: a folder's is not what the settings say."""
        with contextlib.suppress(*REDIS_ERRORS):
            live = await workers(self._redis, prefix(self._settings.namespace))
            return [model.name for model in by_model(live)]
        return []

    async def _end(self) -> None:
        for child in self._children:
            await child.stop(self._settings.drain_s + STOP_MARGIN_S)

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            for child in self._children:
                child.kill()

    def _api(self, command: tuple[str, ...]) -> Recipe:
        return Recipe(list(command), _environ(self._settings))

    def _worker(self, command: tuple[str, ...], model: str, slot: str) -> Child:
        def recipe() -> Recipe:
            name = f"{socket.gethostname()}-{secrets.token_hex(6)}"
            settings = replace(self._settings, worker_id=name, model=model)
            return Recipe(list(command), _environ(settings), name=name)

        several = len(self._settings.models) > 1
        title = f"engine worker of {model}" if several else "engine worker"

        async def on_failure(child: Child, error: GaveUp, worker: str) -> None:
            await self._slots.on_failure(child, model, error, worker)

        return Child(
            title,
            recipe,
            self._registered,
            self._settings.stall_s,
            self._report,
            on_failure,
            self._slots.on_ready,
            slot,
        )

    async def _registered(self, recipe: Recipe) -> bool:
        """By its heartbeat. Raises CannotTell while Redis is away: no worker can be heard then."""
        try:
            return await is_live(self._redis, self._settings.namespace, recipe.name)
        except REDIS_ERRORS as error:
            raise CannotTell from error

    async def _pings(self) -> bool:
        try:
            return bool(await self._redis.ping())
        except REDIS_ERRORS:
            return False

    async def _report(self, worker_id: str) -> None:
        with contextlib.suppress(*REDIS_ERRORS):  # then the lease ends it
            await report_gone(self._redis, self._settings.namespace, worker_id)


def _environ(settings: Settings) -> dict[str, str]:
    """Of a child."""
    return {**os.environ, **settings.to_environ(), TOLD: "1"}


def _status(results: list[BaseException | None]) -> int:
    status = 0
    for result in results:
        if isinstance(result, GaveUp):
            print(f"pointbox: {result}", file=sys.stderr)
            status = max(status, result.status)
        elif result is not None:
            raise result
    return status


def _url(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}"


async def _answers(settings: Settings, path: str) -> bool:
    """Whether a GET answers 200."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(host, settings.port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
