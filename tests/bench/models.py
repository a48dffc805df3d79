"""The emulated model, made once: compiling its grammar over 51,200 tokens takes seconds."""

from __future__ import annotations

from functools import cache

from bench.emulated import EmulatedModel


@cache
def emulated() -> EmulatedModel:
    return EmulatedModel()
