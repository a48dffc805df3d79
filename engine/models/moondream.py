"""Moondream 2's text decoder and region head, over our pages.

Modules are named as the tensors of a checkpoint are, after its prefix `model.`.  A coordinate is not a token
of the vocabulary: it is sampled from a decoder of its own and embedded by an encoder of its own.  Here it
gets an id all the same, `vocab` + bin, so that it travels like a token.

Source: the config and tensor names of the published checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from engine.attention import Paged, attend

EOS, COORDINATE = 0, 5
"""Token ids: the end, and the announcement of a coordinate."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes, by default those of the 2 B checkpoint.

    rotary: leading dimensions of a head that are rotated.
    """

    dim: int = 2048
    ff_dim: int = 8192
    layers: int = 24
    vocab: int = 51200
    max_context: int = 2048
    heads: int = 32
    kv_heads: int = 32
    rotary: int = 32
    theta: float = 10000.0
    coordinate_features: int = 256
    coordinate_bins: int = 1024
    size_features: int = 512
    size_bins: int = 1024
    region_inner: int = 8192

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


class Mlp(nn.Module):
    """Two layers with tanh-GELU between them."""

    def __init__(self, width: int, inner: int, out: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc2(F.gelu(self.fc1(x), approximate="tanh"))
        return output


class SelfAttention(nn.Module):
    """Queries, keys and values of one fused projection, the first dimensions of q and k rotated."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self._heads, self._kv_heads, self._head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self._layer = layer
        self.qkv = nn.Linear(shape.dim, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
        self.proj = nn.Linear(shape.dim, shape.dim)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, paged: Paged) -> torch.Tensor:
        mixed = self.qkv(x).unflatten(-1, (-1, self._head_dim))
        turning, value = torch.split(mixed, [self._heads + self._kv_heads, self._kv_heads], dim=2)
        query, key = torch.split(rotate(turning, cos, sin), [self._heads, self._kv_heads], dim=2)
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        seen = attend(paged, self._layer, query, key, value, self._head_dim**-0.5)
        output: torch.Tensor = self.proj(seen.flatten(2))
        return output


class Block(nn.Module):
    """x + attention(ln x) + mlp(ln x)."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(shape.dim)
        self.attn = SelfAttention(shape, layer)
        self.mlp = Mlp(shape.dim, shape.ff_dim, shape.dim)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, paged: Paged) -> torch.Tensor:
        normed = self.ln(x)
        output: torch.Tensor = x + self.attn(normed, cos, sin, paged) + self.mlp(normed)
        return output


class Text(nn.Module):
    """The decoder; hidden states are those before `post_ln`, which the region head reads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._rotary, self._theta = shape.rotary, shape.theta
        self.wte = nn.Parameter(torch.empty(shape.vocab, shape.dim))
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.post_ln = nn.LayerNorm(shape.dim)
        self.lm_head = nn.Linear(shape.dim, shape.vocab)

    def forward(self, embeds: torch.Tensor, paged: Paged) -> torch.Tensor:
        """[B, T, W] -> [B, T, W]."""
        half = self._rotary // 2
        speed = self._theta ** -(torch.arange(half, device=embeds.device) / half)
        angle = paged.index[:, :, None, None] * speed
        cos, sin = angle.cos(), angle.sin()
        hidden = embeds
        for block in self.blocks:
            hidden = block(hidden, cos, sin, paged)
        return hidden


class Region(nn.Module):
    """Numbers in [0, 1] as embeddings, and hidden states as bins of them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._bins = shape.coordinate_bins, shape.size_bins
        self.coord_features = nn.Parameter(torch.empty(1, shape.coordinate_features // 2))
        self.coord_encoder = nn.Linear(shape.coordinate_features, shape.dim)
        self.coord_decoder = Mlp(shape.dim, shape.region_inner, shape.coordinate_bins)
        self.size_features = nn.Parameter(torch.empty(2, shape.size_features // 2))
        self.size_encoder = nn.Linear(shape.size_features, shape.dim)
        self.size_decoder = Mlp(shape.dim, shape.region_inner, 2 * shape.size_bins)

    def encode_coordinate(self, bins: torch.Tensor) -> torch.Tensor:
        """int64 [...] -> [..., W]."""
        value = (bins / self._bins[0])[..., None]
        embedding: torch.Tensor = self.coord_encoder(waves(value, self.coord_features))
        return embedding

    def encode_size(self, bins: torch.Tensor) -> torch.Tensor:
        """int64 [..., 2], width and height -> [..., W]."""
        embedding: torch.Tensor = self.size_encoder(waves(self.sizes(bins), self.size_features))
        return embedding

    def sizes(self, bins: torch.Tensor) -> torch.Tensor:
        """Bins are spaced evenly in the logarithm, from 2**-10 to 1."""
        return torch.exp2(bins / (self._bins[1] - 1) * 10.0 - 10.0)

    def coordinate_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., W] -> [..., bins]."""
        logits: torch.Tensor = self.coord_decoder(hidden)
        return logits

    def size_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., W] -> [..., 2, bins], width and height."""
        logits: torch.Tensor = self.size_decoder(hidden).unflatten(-1, (2, -1))
        return logits


class Moondream(nn.Module):
    """Decoder and region head; ids from `vocab` on are coordinate bins."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.text, self.region = Text(shape), Region(shape)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """int64 [...] -> [..., W]."""
        vocab = self.shape.vocab
        coordinates = self.region.encode_coordinate((ids - vocab).clamp(min=0))
        return torch.where((ids < vocab)[..., None], self.text.wte[ids.clamp(max=vocab - 1)], coordinates)

    def forward(self, embeds: torch.Tensor, paged: Paged) -> torch.Tensor:
        """[B, T, W] -> hidden states [B, T, W]; writes KV."""
        hidden: torch.Tensor = self.text(embeds, paged)
        return hidden

    def point_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, W] -> [B, 1 + bins]: the end, then every bin of the next coordinate.

        The best bin stands where the token that announces a coordinate stands, so the end is the best of all
        exactly if it beats that token.
        """
        table, bias = self.text.lm_head.weight, self.text.lm_head.bias
        normed = self.text.post_ln(hidden)
        # one row after the other: a list of rows would be a tensor on the host, copied to the device
        end, announced = (F.linear(normed, table[i : i + 1], bias[i : i + 1]) for i in (EOS, COORDINATE))
        bins = self.region.coordinate_logits(hidden)
        return torch.cat([end, announced + bins - bins.amax(dim=-1, keepdim=True)], dim=-1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn (x_i, x_i+half) by angle i; the pairs come out side by side, before the dimensions that stay.

    x [B, T, heads, D], cos and sin [B, T, 1, half].
    """
    half = cos.shape[-1]
    first, second, rest = torch.split(x, [half, half, x.shape[-1] - 2 * half], dim=-1)
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
    return torch.cat((turned.to(x.dtype), rest), dim=-1)


def waves(values: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """[..., n] and [n, F / 2] -> [..., F]."""
    angle = 2 * math.pi * (values @ features.float())
    return torch.cat((angle.cos(), angle.sin()), dim=-1).to(features.dtype)


def random_moondream(shape: Shape, device: torch.device, dtype: torch.dtype, seed: int) -> Moondream:
    """Untrained, with activations of ordinary size."""
    with torch.device("meta"):
        model = Moondream(shape)
    model = model.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    chance = torch.Generator(device).manual_seed(seed)
    for name, weight in model.named_parameters():
        if ".ln." in name or "post_ln" in name:
            weight.fill_(float(name.endswith("weight")))
        else:
            spread = 1.0 if "features" in name or "wte" in name else weight.shape[-1] ** -0.5
            weight.normal_(std=0.1 if weight.ndim == 1 else spread, generator=chance)
    return model
