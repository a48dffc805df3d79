"""Samples of any number type -> 8 bits, a band of rows at a time so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.generic]
Bytes = NDArray[np.uint8]
_BAND = 1 << 20
"""Samples converted at a time."""


def full_range(samples: Samples, bits: int) -> Bytes:
    """Unsigned integers: 0 becomes 0 and the largest number of `bits` bits 255, rounded to nearest."""
    if bits == 8:
        return samples.astype(np.uint8, copy=False)
    if bits == 16:
        return _banded(samples, lambda band: (band.astype(np.uint32) * 255 + 32895) >> 16)  # rint(v / 257)
    if bits > 16:
        return unit_range(samples, 1.0 / ((1 << bits) - 1))
    top = (1 << bits) - 1
    return _banded(samples, lambda band: (band.astype(np.uint32) * 255 + top // 2) // top)


def unit_range(samples: Samples, scale: float = 1.0) -> Bytes:
    """Numbers times `scale`, of which 0 becomes 0 and 1 becomes 255; what is outside is clipped."""
    return _banded(samples, lambda band: np.rint(np.clip(_finite(band) * scale, 0.0, 1.0) * 255.0))


def stretched(samples: Samples, low: float, high: float) -> Bytes:
    """`low` becomes 0 and `high` 255; all samples must lie between them."""
    scale = 255.0 / ((high - low) or 1.0)
    return _banded(samples, lambda band: np.clip(np.rint((_finite(band) - low) * scale), 0, 255))


def extremes(samples: Samples) -> tuple[float, float]:
    """The least and the greatest sample; not-a-number and infinities count as 0."""
    if samples.dtype.kind != "f":
        return float(samples.min()), float(samples.max())
    with np.errstate(all="ignore"):  # signalling not-a-numbers complain
        found = [(band.min(), band.max()) for band in map(_finite, _bands(samples))]
    return float(min(low for low, _ in found)), float(max(high for _, high in found))


def _finite(band: Samples) -> NDArray[np.float64]:
    return np.nan_to_num(band.astype(np.float64), copy=False, nan=0.0, posinf=0.0, neginf=0.0)


def _bands(samples: Samples) -> list[Samples]:
    """Views of `samples`, which has one dimension or more, cut along the first."""
    rows = max(1, _BAND // max(1, samples[0].size))
    return [samples[start : start + rows] for start in range(0, len(samples), rows)]


def _banded(samples: Samples, convert: Callable[..., NDArray[np.generic]]) -> Bytes:
    done = np.empty(samples.shape, np.uint8)
    with np.errstate(all="ignore"):  # a difference of two numbers may be more than a float64 can say
        for band, target in zip(_bands(samples), _bands(done), strict=True):
            target[...] = convert(band).astype(np.uint8)
    return done
