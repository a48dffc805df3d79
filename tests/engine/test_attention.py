"""Attention over pages against the same written plainly."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.attention import NAME, KvCache, Paged, attend, install, paged_attention
from tests.engine.paging import PAGE, Shape, naive, random_case

ROOT = Path(__file__).parents[2]
SCALING = 0.6
KINDS = pytest.mark.parametrize(
    ("softcap", "window"), [(None, None), (2.0, None), (None, 5), (2.0, 20)], ids=str
)


def close(output: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=1e-4)


@KINDS
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (4, 1)])
def test_decode(heads: int, kv_heads: int, softcap: float | None, window: int | None) -> None:
    case = random_case(Shape((0, 1, 15, 16, 17, 33), heads=heads, kv_heads=kv_heads), seed=heads)
    output = attend(case.paged, 0, case.query, case.key, case.value, SCALING, softcap, window)
    close(output, naive(case, SCALING, softcap, window))


@KINDS
def test_several_new_tokens(softcap: float | None, window: int | None) -> None:
    case = random_case(Shape((3, 16, 0), new=7), seed=1)
    output = attend(case.paged, 0, case.query, case.key, case.value, SCALING, softcap, window)
    close(output, naive(case, SCALING, softcap, window))


@KINDS
def test_a_prefix_sees_all_of_itself_and_nothing_after_it(softcap: float | None, window: int | None) -> None:
    case = random_case(Shape((0, 0, 0), new=20), seed=2, prefix=(20, 12, 0))
    output = attend(case.paged, 0, case.query, case.key, case.value, SCALING, softcap, window)
    close(output, naive(case, SCALING, softcap, window))


def test_new_tokens_are_written_to_their_pages() -> None:
    case = random_case(Shape((14, 31), new=4), seed=3)
    attend(case.paged, 0, case.query, case.key, case.value, SCALING)
    cache, table = case.paged.cache, case.paged.table
    for row, first in enumerate((14, 31)):
        for place in range(first, first + 4):
            flat = int(table[row, place // PAGE]) * PAGE + place % PAGE
            assert torch.equal(cache.keys[0][flat], case.keys[row, place])
            assert torch.equal(cache.values[0][flat], case.values[row, place])


def test_padding_goes_to_the_padding_page_even_past_the_table() -> None:
    cache = KvCache(1, 3, PAGE, 1, 4, torch.float32, torch.device("cpu"))
    index = torch.tensor([[30, 31, 32], [0, 1, 2]])
    valid = torch.tensor([[True, True, False], [True, True, True]])
    table = torch.tensor([[1, 1], [2, 2]])
    paged = Paged(cache, index, table, torch.zeros(2, dtype=torch.int64), valid)
    size = paged.cache.page_size
    assert paged.write.tolist() == [size + 14, size + 15, 0, 2 * size, 2 * size + 1, 2 * size + 2]


@KINDS
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2), (4, 1)])
@pytest.mark.parametrize("new", [1, 7])
@pytest.mark.parametrize("left", [math.nan, math.inf])
def test_what_a_row_does_not_see_may_be_anything(
    left: float, new: int, heads: int, kv_heads: int, softcap: float | None, window: int | None
) -> None:
    """NaN past the ends of rows, in pages of nobody and in the padding page."""
    case = random_case(Shape((3, 16, 0), new=new, heads=heads, kv_heads=kv_heads), seed=1)
    seen = torch.zeros(len(case.paged.cache.keys[0]), dtype=torch.bool)
    for row, last in enumerate(case.paged.index[:, -1].tolist()):
        for place in range(last + 1):
            seen[int(case.paged.table[row, place // PAGE]) * PAGE + place % PAGE] = True
    for layer in (case.paged.cache.keys[0], case.paged.cache.values[0]):
        layer[~seen] = left
    output = attend(case.paged, 0, case.query, case.key, case.value, SCALING, softcap, window)
    close(output, naive(case, SCALING, softcap, window))


def test_it_takes_what_transformers_passes() -> None:
    case = random_case(Shape((5, 40)), seed=4)
    module = torch.nn.Module()
    module.layer_idx = 0  # type: ignore[assignment]
    output, weights = paged_attention(
        module,
        case.query,
        case.key,
        case.value,
        None,
        scaling=SCALING,
        dropout=0.0,
        paged=case.paged,
        softcap=2.0,
        sliding_window=7,
    )
    assert weights is None
    close(output, naive(case, SCALING, 2.0, 7))


def test_install_registers_it() -> None:
    from transformers import AttentionInterface

    install()
    assert AttentionInterface()[NAME] is paged_attention


def test_the_device_check_needs_neither_transformers_nor_outlines_core() -> None:
    code = (
        "import sys, bench.device_check; sys.exit(bool({'transformers', 'outlines_core'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
