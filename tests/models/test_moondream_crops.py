"""Which crops a picture is seen through, and that their features come together again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.models.moondream_crops import CropShape, crops, tiling
from engine.models.moondream_vision import patches, stitch

SHAPE = CropShape()


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (378, 378, (1, 1)),
        (379, 378, (1, 1)),
        (379, 379, (3, 3)),
        (200, 300, (1, 1)),
        (1000, 90, (1, 1)),
        (1, 1_000_000, (1, 1)),
        (480, 640, (2, 4)),
        (640, 480, (4, 2)),
        (720, 1280, (2, 4)),
        (1280, 720, (4, 2)),
        (1080, 1920, (2, 4)),
        (1024, 1024, (3, 3)),
        (3000, 500, (8, 1)),
        (8000, 400, (13, 1)),
        (400, 8000, (1, 13)),
    ],
)
def test_tilings(height: int, width: int, expected: tuple[int, int]) -> None:
    assert SHAPE.window == 266
    assert tiling(height - 112, width - 112, SHAPE.window, SHAPE.most) == expected


@given(st.integers(-111, 20_000), st.integers(-111, 20_000), st.integers(1, 20))
def test_more_than_there_may_be_only_in_a_single_line(height: int, width: int, most: int) -> None:
    rows, columns = tiling(height, width, 266, most)
    assert 1 <= rows * columns <= most or 1 in (rows, columns)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300))
def test_crops_overlap_by_twice_the_margin(height: int, width: int) -> None:
    shape = CropShape(side=42, margin=7, most=6)
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    parts, (rows, columns) = crops(image, shape)
    assert len(parts) == (1 if rows * columns == 1 else 1 + rows * columns)
    assert parts.shape[1:] == (42, 42, 3)
    if rows * columns > 1:
        grid = parts[1:].reshape(rows, columns, 42, 42, 3)
        assert (grid[:, 1:, :, :14] == grid[:, :-1, :, 28:]).all()
        assert (grid[1:, :, :14] == grid[:-1, :, 28:]).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 3), (4, 1), (2, 3)])
def test_stitching_undoes_the_cutting(rows: int, columns: int) -> None:
    grid, margin, step = 9, 2, 5
    height, width = rows * step + 2 * margin, columns * step + 2 * margin
    whole = torch.arange(height * width, dtype=torch.float32).view(height, width, 1)
    corners = [(step * r, step * c) for r in range(rows) for c in range(columns)]
    parts = torch.stack([whole[y : y + grid, x : x + grid] for y, x in corners])
    assert torch.equal(stitch(parts, rows, columns, margin), whole)


def test_each_crop_keeps_its_side_of_the_middle() -> None:
    parts = torch.stack([torch.full((9, 9, 1), float(i)) for i in range(2)])
    assert stitch(parts, 1, 2, 2)[0, :, 0].tolist() == [0] * 7 + [1] * 7


def test_a_patch_is_by_channel_row_and_column() -> None:
    pixels = torch.arange(2 * 4 * 4 * 3, dtype=torch.float32).view(2, 4, 4, 3)
    cut = patches(pixels, 2)
    assert cut.shape == (2, 4, 12)
    assert torch.equal(cut[1, 2].view(3, 2, 2), pixels[1, 2:, :2].permute(2, 0, 1))
