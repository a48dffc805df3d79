"""Moondream's vision tower: crops -> one grid of image tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from engine.models.moondream_text import Mlp

CHANNELS = 3


@dataclass(frozen=True, slots=True)
class VisionShape:
    """Sizes, by default those of Moondream 2 and 3.

    side: of a crop, pixels.  margin: patches that a crop shares with each neighbour.
    """

    dim: int = 1152
    patch: int = 14
    layers: int = 27
    ff_dim: int = 4304
    heads: int = 16
    side: int = 378
    most_crops: int = 12
    margin: int = 4
    inner: int = 8192

    @property
    def grid(self) -> int:
        """Patches along a side of a crop."""
        return self.side // self.patch


class VisionAttention(nn.Module):
    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self._heads = shape.heads
        self.qkv, self.proj = nn.Linear(shape.dim, 3 * shape.dim), nn.Linear(shape.dim, shape.dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self._heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value)
        output: torch.Tensor = self.proj(seen.transpose(1, 2).flatten(2))
        return output


class VisionBlock(nn.Module):
    """Norm first, attention and then the MLP."""

    def __init__(self, shape: VisionShape) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(shape.dim), nn.LayerNorm(shape.dim)
        self.attn, self.mlp = VisionAttention(shape), Mlp(shape.dim, shape.ff_dim, shape.dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln1(x))
        output: torch.Tensor = x + self.mlp(self.ln2(x))
        return output


class Vision(nn.Module):
    """out: width of an image token."""

    def __init__(self, shape: VisionShape, out: int) -> None:
        super().__init__()
        self._shape = shape
        self.patch_emb = nn.Linear(CHANNELS * shape.patch**2, shape.dim)
        self.pos_emb = nn.Parameter(torch.empty(1, shape.grid**2, shape.dim))
        self.blocks = nn.ModuleList(VisionBlock(shape) for _ in range(shape.layers))
        self.post_ln = nn.LayerNorm(shape.dim)
        self.proj_mlp = Mlp(2 * shape.dim, shape.inner, out)

    def forward(self, crops: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        """uint8 [1 + rows * columns, side, side, 3], the whole picture first -> [grid * grid, out].

        A picture of a single crop is there once.
        """
        grid = self._shape.grid
        pixels = (crops.float() / 255 - 0.5) / 0.5
        hidden = self.patch_emb(patches(pixels, self._shape.patch).to(self.pos_emb.dtype)) + self.pos_emb
        for block in self.blocks:
            hidden = block(hidden)
        seen = self.post_ln(hidden)
        parts = seen[-rows * columns :].unflatten(1, (grid, grid))
        whole = stitch(parts, rows, columns, self._shape.margin).permute(2, 0, 1)
        pooled = F.adaptive_avg_pool2d(whole, grid).flatten(1).t()
        tokens: torch.Tensor = self.proj_mlp(torch.cat([seen[0], pooled], dim=-1))
        return tokens


def patches(pixels: torch.Tensor, patch: int) -> torch.Tensor:
    """[N, S, S, 3] -> [N, (S / patch)**2, 3 * patch * patch]; a patch is by channel, row and column."""
    count, side = pixels.shape[:2]
    grid = side // patch
    cut = pixels.reshape(count, grid, patch, grid, patch, CHANNELS)
    return cut.permute(0, 1, 3, 5, 2, 4).reshape(count, grid * grid, -1)


def stitch(parts: torch.Tensor, rows: int, columns: int, margin: int) -> torch.Tensor:
    """[rows * columns, G, G, C] -> one map; of what two crops share each keeps its own half."""

    def kept(place: int, count: int) -> slice:
        return slice(margin if place else 0, None if place == count - 1 else parts.shape[1] - margin)

    bands = [
        torch.cat([parts[r * columns + c][kept(r, rows), kept(c, columns)] for c in range(columns)], dim=1)
        for r in range(rows)
    ]
    return torch.cat(bands, dim=0)
