"""Errors that the engine gives to its callers."""

from __future__ import annotations

from typing import Literal

ErrorKind = Literal[
    "invalid-request",
    "invalid-phrase",
    "unknown-model",
    "unsupported-task",
    "deadline-exceeded",
    "cancelled",
    "out-of-memory",
    "too-large",
    "closed",
    "internal",
]


class EngineError(Exception):
    """A request that cannot be answered; `kind` says why, the message what to change."""

    def __init__(self, kind: ErrorKind, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


def closed() -> EngineError:
    """Said to everyone who still waits for an engine that has ended, and to those who come later."""
    return EngineError("closed", "the engine was closed")


class ModelNotFound(EngineError):
    """No such model: not a name in the package, not a folder, not to be fetched."""

    def __init__(self, message: str) -> None:
        super().__init__("unknown-model", message, "model")
