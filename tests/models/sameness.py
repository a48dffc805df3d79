"""Answers of two schedules are the same, but where a rounding may decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.answer import Answer
from engine.models.base import Model
from engine.request import Request
from tests.engine.asking import said
from tests.models.checkpoints import TINY
from tests.models.reference import CLOSE, Stock

FOLDERS: dict[str, Path] = {}
"""Where a model that a test made lies, by its revision; the default model for any other."""


def smallest_gap(model: Model, request: Request, tokens: int) -> float:
    """Between the best two masked logits, over the whole answer as `generate` gives it."""
    stock = Stock(FOLDERS.get(model.info.revision, TINY), model)
    answers = [stock.answer(request.task, request.image, p, tokens) for p in request.phrases]
    return min(gap for reference in answers for gap in reference.gaps)


def assert_same(
    model: Model, requests: Sequence[Request], given: Sequence[Answer], expected: Sequence[Answer]
) -> None:
    """Equal, or in at most one of 1,000 tokens a choice between logits that are all but equal."""
    pairs = list(zip(requests, given, expected, strict=True))
    differing = [(r, a, b) for r, a, b in pairs if said(a) != said(b)]
    for request, ours, theirs in differing:
        assert smallest_gap(model, request, 200) < CLOSE, f"{said(ours)} is not {said(theirs)}"
    tokens = sum(answer.metrics.output_tokens for answer in expected)
    assert len(differing) <= max(1, tokens // 1000)
