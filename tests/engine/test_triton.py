"""The Triton kernel in Triton's interpreter against the torch path.

The interpreter has to be chosen before Triton is imported, and other tests import it: so the cases run in a
process of their own, which is this file again.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from engine.attention import attend
from tests.engine.paging import PAGE, Case, Shape, random_case

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SCALING = 0.6
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
inside = pytest.mark.skipif(not INTERPRETED, reason="runs in the process that test_in_the_interpreter starts")


@pytest.mark.skipif(INTERPRETED, reason="this is that process")
def test_in_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def kernel(case: Case, softcap: float | None, window: int | None) -> torch.Tensor:
    """[B, 1, H, D]; the new token's key and value are in the cache already."""
    from engine.triton_attention import paged_decode

    cache = case.paged.cache
    return paged_decode(
        case.query[:, :, 0].contiguous(),
        cache.keys[0],
        cache.values[0],
        case.paged.table,
        case.paged.lengths,
        cache.page_size,
        SCALING,
        softcap,
        window,
    )[:, None]


def compare(case: Case, softcap: float | None = None, window: int | None = None) -> None:
    expected = attend(case.paged, 0, case.query, case.key, case.value, SCALING, softcap, window)
    torch.testing.assert_close(kernel(case, softcap, window), expected, atol=1e-5, rtol=1e-4)


@inside
@pytest.mark.parametrize(("softcap", "window"), [(None, None), (2.0, None), (None, 5), (2.0, 70)], ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(2, 2, 8), (6, 2, 8), (4, 1, 16)])
def test_page_boundaries(
    heads: int, kv_heads: int, dim: int, softcap: float | None, window: int | None
) -> None:
    lengths = (0, 1, PAGE - 1, PAGE, PAGE + 1, 63, 64, 65)
    compare(random_case(Shape(lengths, heads=heads, kv_heads=kv_heads, dim=dim), seed=dim), softcap, window)


@inside
@pytest.mark.parametrize("window", [None, 3, 100, 300])
def test_more_than_one_split(window: int | None) -> None:
    compare(random_case(Shape((0, 254, 255, 256, 257, 600)), seed=5), window=window)


@inside
@pytest.mark.parametrize("seed", range(6))
def test_random_shapes(seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)

    def pick(*choices: int) -> int:
        return choices[int(torch.randint(len(choices), (1,), generator=chance))]

    lengths = tuple(torch.randint(0, 400, (pick(1, 2, 5),), generator=chance).tolist())
    kv_heads = pick(1, 2, 3)
    shape = Shape(lengths, heads=kv_heads * pick(1, 2, 3, 8), kv_heads=kv_heads, dim=pick(4, 8, 24))
    softcap, window = (None, 3.0)[pick(0, 1)], (None, pick(1, 17, 200))[pick(0, 1)]
    compare(random_case(shape, seed), softcap, window)


@inside
def test_padding_rows_read_the_padding_page_and_change_nothing() -> None:
    case = random_case(Shape((40, 0, 0)), seed=6)
    case.paged.cache.values[0][:PAGE] = 7.0
    case.paged.cache.keys[0][:PAGE] = 0.5
    expected = attend(case.paged, 0, case.query, case.key, case.value, SCALING)
    case.paged.table[1:] = 0
    output = kernel(case, None, None)
    torch.testing.assert_close(output[0], expected[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(output[1:], torch.full_like(output[1:], 7.0))


@inside
def test_a_row_is_the_same_whatever_its_neighbours() -> None:
    case = random_case(Shape((40, 300, 7)), seed=7)
    attend(case.paged, 0, case.query, case.key, case.value, SCALING)
    together = kernel(case, None, None)
    case.paged.table[1:] = 0
    case.query[1:] = 0.1
    assert torch.equal(kernel(case, None, None)[0], together[0])
