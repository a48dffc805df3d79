"""The Lua scripts, loaded from the files beside this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

from app.admission.connections import Producer
from app.admission.wire import Command

_FOLDER = files("app.admission").joinpath("lua")
_NAMES = (
    "admit",
    "beat",
    "cancel",
    "emit",
    "figures",
    "finish",
    "gone",
    "leave",
    "reclaim",
    "take",
    "watch",
)

Argument = str | bytes | int | float


class Scripts:
    """Every script bound to one client and one namespace. A restarted Redis gets them again by itself."""

    def __init__(self, redis: Producer, namespace: str) -> None:
        self._redis = redis
        self.prefix = prefix(namespace)
        common = _read("common")
        self._scripts: dict[str, AsyncScript] = {
            name: redis.register_script(_head(name) + common + _read(name)) for name in _NAMES
        }

    async def run(self, name: str, *arguments: Argument) -> Any:
        """What the script returns, strings as bytes. Raises RedisError or OSError when Redis is away."""
        return await self._scripts[name](keys=[self.prefix], args=list(arguments))

    async def run_after(
        self, command: Command, name: str, arguments: Callable[[], Awaitable[tuple[Argument, ...]]]
    ) -> Any:
        """As `run`, behind a command whose answer is not waited for: it travels while `arguments` run."""

        async def script() -> Command:
            return "EVALSHA", self._scripts[name].sha, 1, self.prefix, *await arguments()

        try:
            return await self._redis.execute_both(command, script)
        except NoScriptError:
            return await self.run(name, *await arguments())


def prefix(namespace: str) -> str:
    """What every key of the namespace starts with."""
    return f"pb1:{{{namespace}}}:"


def _head(name: str) -> str:
    """A Redis without memory refuses what makes it fuller, and lets what is there be ended."""
    return "" if name == "admit" else "#!lua flags=allow-oom\n"


def _read(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8")
