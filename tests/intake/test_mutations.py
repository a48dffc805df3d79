"""Damaged files of every format: each is a picture or a problem, and never anything else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake.mutations import mutated, originals

REFUSED = {
    ("invalid-image", 422, "image"),
    ("unsupported-media", 415, "image"),
    ("image-too-large", 413, "image"),
}


def judged(data: bytes) -> str:
    """What became of it; every promise of both doors is checked."""
    early, late = refusal(check, data), refusal(decode, data)
    if late is not None:
        assert early is None or early.slug == late.slug
        return late.slug
    picture, header = decode(data), check(data)
    assert picture.image.dtype == np.uint8
    assert picture.image.shape == (picture.height, picture.width, 3)
    if header.format != "HEIF":  # whose pixels, where it is damaged, may tell another size
        assert (header.width, header.height) == (picture.width, picture.height)
    return "a picture"


def refusal(look: Callable[[bytes], object], data: bytes) -> ProblemError | None:
    """The problem that `look` raises; nothing else may come out of it."""
    try:
        look(data)
    except ProblemError as problem:
        if (problem.slug, problem.status, problem.field) in REFUSED and problem.detail:
            return problem
        raise
    return None


def test_the_whole_files_are_what_they_seem() -> None:
    accepted = {"AVIF", "BMP", "DIB", "GIF", "HEIF", "JPEG", "MPO", "PNG", "TIFF", "WEBP"}
    for name, data in originals().items():
        format = name.split()[0].rstrip(",").upper()
        expected = "a picture" if format in accepted else "unsupported-media"
        assert judged(data) == expected or format == "DIB", name


@pytest.mark.parametrize("seed", range(3))
def test_a_few(seed: int) -> None:
    outcomes = [judged(data) for _, data in mutated(seed, 400)]
    assert {"a picture", "invalid-image", "unsupported-media"} <= set(outcomes)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_many(seed: int) -> None:
    for _, data in mutated(seed, 1000):
        judged(data)
