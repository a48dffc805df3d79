"""Moondream's region head: numbers as embeddings, and hidden states as bins of numbers.

A coordinate or a size is no token of the vocabulary.  Here each gets a number all the same, so that it
travels like a token, `vocab` + its number:

    a coordinate     its bin
    a size           SIZE + 1024 * bin of the width + bin of the height
    an exact value   of a point or a box that a request refers to, in millionths of the side: EXACT + value,
                     or EXACT_SIZE + MILLION * width + height
"""

from __future__ import annotations

import math

import torch
from torch import nn

from engine.models.moondream_text import Mlp, Shape
from grammars.symbols import BINS

MILLION = 1_000_001
"""Values of a millionth, 0 and 1 among them."""
SIZE = BINS
EXACT = SIZE + BINS * BINS
EXACT_SIZE = EXACT + MILLION


class Region(nn.Module):
    """Encoders and decoders of coordinates and sizes."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.coord_features = nn.Parameter(torch.empty(1, shape.coordinate_features // 2))
        self.coord_encoder = nn.Linear(shape.coordinate_features, shape.dim)
        self.coord_decoder = _decoder(shape, BINS)
        self.size_features = nn.Parameter(torch.empty(2, shape.size_features // 2))
        self.size_encoder = nn.Linear(shape.size_features, shape.dim)
        self.size_decoder = _decoder(shape, 2 * BINS)
        self.ln = nn.LayerNorm(shape.dim) if shape.region_norm else None

    def embed(self, numbers: torch.Tensor) -> torch.Tensor:
        """int64 [...], see the module -> [..., W]."""
        exact = numbers >= EXACT
        coordinate = torch.where(exact, (numbers - EXACT) / (MILLION - 1), numbers / BINS)
        size = numbers - SIZE
        bins = torch.stack([size // BINS, size % BINS], dim=-1)
        size = numbers - EXACT_SIZE
        millionths = torch.stack([size // MILLION, size % MILLION], dim=-1)
        sizes = torch.where(exact[..., None], millionths / (MILLION - 1), side(bins))
        is_size = (numbers >= EXACT_SIZE) | (numbers >= SIZE) & ~exact
        embeddings = (
            self.size_encoder(waves(sizes, self.size_features)),
            self.coord_encoder(waves(coordinate[..., None], self.coord_features)),
        )
        return torch.where(is_size[..., None], *embeddings)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, W] -> [B, 3 * bins]: of a coordinate, of a width and of a height."""
        if self.ln is not None:
            hidden = self.ln(hidden)
        return torch.cat([self.coord_decoder(hidden), self.size_decoder(hidden)], dim=-1)


def _decoder(shape: Shape, out: int) -> nn.Module:
    if shape.region_inner is None:
        return nn.Linear(shape.dim, out)
    return Mlp(shape.dim, shape.region_inner, out)


def side(bins: torch.Tensor) -> torch.Tensor:
    """Bins of sizes are spaced evenly in the logarithm, from 2**-10 to 1."""
    return torch.exp2(bins / (BINS - 1) * 10.0 - 10.0)


def waves(values: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """[..., n] and [n, F / 2] -> [..., F]."""
    angle = 2 * math.pi * (values @ features.float())
    return torch.cat((angle.cos(), angle.sin()), dim=-1).to(features.dtype)
