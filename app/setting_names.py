"""What a setting is called where its user wrote it: as a flag or as an environment variable."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ENGINE_OPTIONS = ("max_batch", "kv_memory", "batch_share")
_WORD = re.compile(r"(?<![\w.])(\w+)")


def flag(name: str) -> str:
    """`kv_memory` -> `--kv-memory`"""
    return f"--{name.replace('_', '-')}"


def as_flags(text: str) -> str:
    """A message of the engine, with its options as they are written on the command line."""
    return renamed(text, {name: flag(name) for name in _ENGINE_OPTIONS})


def renamed(text: str, called: Mapping[str, str]) -> str:
    """Settings by other names: the first word of a message, and every other that is no word of prose."""
    words = _WORD.split(text)
    return "".join(called.get(w, w) if n == 1 or "_" in w else w for n, w in enumerate(words))
