"""Damaged files of every format: each is a picture or a problem, and never anything else."""

from __future__ import annotations

import numpy as np
import pytest

from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake.mutations import mutated, originals

REFUSALS = {"invalid-image": 422, "unsupported-media": 415, "image-too-large": 413}


def judged(data: bytes) -> str:
    """What became of it; every promise of both doors is checked."""
    try:
        decoded = decode(data)
    except ProblemError as problem:
        assert problem.status == REFUSALS[problem.slug]
        assert problem.field == "image"
        assert problem.detail
        try:
            check(data)
        except ProblemError as early:
            assert early.slug == problem.slug
        return problem.slug
    assert decoded.image.dtype == np.uint8
    assert decoded.image.shape == (decoded.height, decoded.width, 3)
    header = check(data)
    assert (header.width, header.height) == (decoded.width, decoded.height)
    return "a picture"


def test_the_whole_files_are_what_they_seem() -> None:
    accepted = {"AVIF", "BMP", "DIB", "GIF", "HEIF", "JPEG", "MPO", "PNG", "TIFF", "WEBP"}
    for name, data in originals().items():
        format = name.split()[0].rstrip(",").upper()
        expected = "a picture" if format in accepted else "unsupported-media"
        assert judged(data) == expected or format == "DIB", name


@pytest.mark.parametrize("seed", range(4))
def test_a_few(seed: int) -> None:
    outcomes = [judged(data) for _, data in mutated(seed, 100)]
    assert {"a picture", "invalid-image", "unsupported-media"} <= set(outcomes)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_many(seed: int) -> None:
    for _, data in mutated(seed, 1000):
        judged(data)
