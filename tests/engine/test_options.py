"""An engine says which of its options cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from engine.engine import Engine
from engine.errors import EngineError
from engine.options import Options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_batch", 0),
        ("kv_memory", 0),
        ("kv_memory", -1),
        ("prefill_tokens", 0),
        ("prepare_threads", 0),
        ("max_tokens", 0),
        ("batch_share", 0.0),
        ("batch_share", 1.01),
        ("batch_share", float("nan")),
    ],
)
def test_values_that_cannot_be_used(name: str, value: Any) -> None:
    with pytest.raises(EngineError, match=name) as caught:
        Options(**{name: value})
    assert (caught.value.kind, caught.value.field) == ("invalid-request", name)


@pytest.mark.parametrize("size", [1, 1 << 60])
def test_memory_that_is_too_little_or_not_there(size: int) -> None:
    with pytest.raises(EngineError, match="kv_memory") as caught:
        Engine.load("tiny", kv_memory=size)
    assert caught.value.kind == "out-of-memory"


def test_the_pages_are_those_of_the_memory_given() -> None:
    with Engine.load("tiny", kv_memory=4 << 20) as small, Engine.load("tiny", kv_memory=8 << 20) as large:
        pages = small.stats().pages_total + 1
        assert 0 <= large.stats().pages_total + 1 - 2 * pages <= 1
