"""One child process, restarted when it dies, and gone when its parent is."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from app.supervised import supervised

DEATHS = 5
PROBE_S = 0.1
RETRY_S = 5.0
"""Before a child that failed, whose failure others survive, is started again; doubled each time."""
LONGEST_RETRY_S = 300.0
WATCH_S = 1.0
"""Between two looks at a process that has been ready."""
USAGE_ERROR = 2
"""A child that exits so has said why on stderr; starting it again would not help."""

log = structlog.get_logger(__name__)
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


class GaveUp(Exception):
    """A child cannot be kept alive. `status` is what the service should exit with."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class CannotTell(Exception):
    """Whether a process does its work is not to be known now, and that is not its fault."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start a process."""

    command: list[str]
    environ: dict[str, str]
    stdin: bytes = b""
    quiet: bool = False
    """Its output goes nowhere."""
    name: str = ""
    """Told to `on_death`."""


class Child:
    """Owns one process at a time.

    Args:
        title: for messages.
        recipe: called for each start.
        probe: whether the process does its work; may raise OSError for "no", and CannotTell.
        stall_s: a process that was ready and for so long does not do its work is killed, and started again.
        on_death: told the name of the recipe whose process ended.
        on_failure: told why it cannot be kept alive, and the name of the recipe. If it returns, the child is
            tried again after a while. None: its failure is the end of the service.
        on_ready: told when it does its work.
        slot: a name of its own.
    """

    def __init__(
        self,
        title: str,
        recipe: Callable[[], Recipe],
        probe: Callable[[Recipe], Awaitable[bool]],
        stall_s: float,
        on_death: Callable[[str], Awaitable[None]] | None = None,
        on_failure: Callable[[Child, GaveUp, str], Awaitable[None]] | None = None,
        on_ready: Callable[[Child], Awaitable[None]] | None = None,
        slot: str = "",
    ) -> None:
        self.title = title
        self.slot = slot
        self.ready = asyncio.Event()
        """Set while the present process does its work."""
        self._recipe = recipe
        self._probe = probe
        self._stall_s = stall_s
        self._on_death = on_death
        self._on_failure = on_failure
        self._on_ready = on_ready
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._stopped = asyncio.Event()
        """Ends a pause before the next start."""
        self._retry_s = RETRY_S
        self.early_deaths = 0
        """In a row, without having been ready."""

    async def keep(self) -> None:
        """Starts it again whenever it ends, until `stop`. Raises GaveUp."""
        while not self._stopping:
            recipe = self._recipe()
            status, was_ready = await self._live(recipe)
            if self._stopping:
                return
            log.warning("child ended", child=self.title, status=status)
            if self._on_death is not None:
                await self._on_death(recipe.name)
            await self._rest(await self._next_pause(recipe, status, was_ready))

    async def stop(self, patience_s: float) -> None:
        """SIGTERM, and SIGKILL when that has no effect for `patience_s`."""
        self._stopping = True
        self._stopped.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
        except TimeoutError:
            log.warning("child had to be killed", child=self.title)
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """At once, for good."""
        self._stopping = True
        self._stopped.set()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _live(self, recipe: Recipe) -> tuple[int, bool]:
        process = await _spawn(recipe)
        self._process = process
        if self._stopping:
            process.kill()
        watching = asyncio.create_task(
            supervised(f"watch of the {self.title}", lambda: self._watch(recipe, process))
        )
        try:
            status = await process.wait()
        finally:
            watching.cancel()
            was_ready = self.ready.is_set()
            self.ready.clear()
        return status, was_ready or await self._passes(recipe)

    async def _watch(self, recipe: Recipe, process: asyncio.subprocess.Process) -> None:
        """Says when it is ready. One that is stopped, or whose loop is blocked, does not end by itself."""
        while not await self._passes(recipe):
            await asyncio.sleep(PROBE_S)
        self.ready.set()
        if self._on_ready is not None:
            await self._on_ready(self)
        silent_since: float | None = None  # by looks that were taken: this process may have been stopped, too
        while not self._stopping:
            await asyncio.sleep(WATCH_S)
            now = time.monotonic()
            if await self._passes(recipe, unless_told=True):
                silent_since = None
            elif silent_since is None:
                silent_since = now
            elif now > silent_since + self._stall_s and not self._stopping:
                log.error("child does not answer and is killed", child=self.title, silent_s=self._stall_s)
                process.kill()
                return

    async def _passes(self, recipe: Recipe, unless_told: bool = False) -> bool:
        """A process may have been ready and died between two probes, if its probe still tells.

        unless_told: what to take for the answer where the probe cannot tell.
        """
        try:
            return await self._probe(recipe)
        except OSError:
            return False
        except CannotTell:
            return unless_told

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

    async def _next_pause(self, recipe: Recipe, status: int, was_ready: bool) -> float:
        """As `_pause`, for a child whose failure others survive."""
        if was_ready:
            self._retry_s = RETRY_S
        try:
            return self._pause(status, was_ready)
        except GaveUp as error:
            if self._on_failure is None:
                raise
            await self._on_failure(self, error, recipe.name)
        pause, self._retry_s = self._retry_s, min(2 * self._retry_s, LONGEST_RETRY_S)
        return pause

    def _pause(self, status: int, was_ready: bool) -> float:
        """How long to wait before the next start."""
        self.early_deaths = 0 if was_ready else self.early_deaths + 1
        if status == USAGE_ERROR:
            raise GaveUp(f"The {self.title} cannot start.", USAGE_ERROR)
        if was_ready:
            return 0.0
        if self.early_deaths >= DEATHS:
            raise GaveUp(f"The {self.title} ended {DEATHS} times without ever being ready; giving up.", 1)
        return 0.1 * 2.0**self.early_deaths


async def _spawn(recipe: Recipe) -> asyncio.subprocess.Process:
    parent = os.getpid()
    process = await asyncio.create_subprocess_exec(
        *recipe.command,
        env=recipe.environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL if recipe.quiet else None,
        stderr=asyncio.subprocess.DEVNULL if recipe.quiet else None,
        start_new_session=True,  # a Ctrl-C in the terminal reaches the parent only, which ends all in order
        preexec_fn=lambda: die_with(parent),
    )
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):
        process.stdin.write(recipe.stdin)
        await process.stdin.drain()
        process.stdin.close()
    return process


def die_with(parent: int) -> None:
    """In the child, before its program starts: the kernel shall kill it when the parent dies."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os.kill(os.getpid(), signal.SIGKILL)
