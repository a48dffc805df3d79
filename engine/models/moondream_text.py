"""The text decoder of Moondream 2 and 3, over our pages.

Modules are named as the tensors of a checkpoint are, after its prefix `model.`.

Source: the config and tensor names of the published checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from engine.attention import Paged, attend


@dataclass(frozen=True, slots=True)
class Experts:
    """Of the MLPs that are mixtures, as Moondream 3 has them.

    layers: those whose MLP is one.  chosen: experts that a token goes through.
    """

    layers: frozenset[int]
    count: int = 64
    chosen: int = 8
    inner: int = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of decoder and region head, by default those of Moondream 2.

    marks: rows that are kept of the LM head.  tau: whether attention scales queries and values.
    region_inner: of the decoders of the region head, None where they are single layers.
    region_norm: whether they read normed hidden states.
    """

    dim: int = 2048
    ff_dim: int = 8192
    layers: int = 24
    vocab: int = 51200
    max_context: int = 2048
    heads: int = 32
    kv_heads: int = 32
    theta: float = 10000.0
    marks: int = 2
    tau: bool = False
    experts: Experts | None = None
    coordinate_features: int = 256
    size_features: int = 512
    region_inner: int | None = 8192
    region_norm: bool = False

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def rotary(self) -> int:
        """Leading dimensions of a head that are rotated."""
        return self.head_dim // 2


class Mlp(nn.Module):
    """Two layers with tanh-GELU between them."""

    def __init__(self, width: int, inner: int, out: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.fc2(F.gelu(self.fc1(x), approximate="tanh"))
        return output


class Stack(nn.Module):
    """The matrices of one layer of all experts, [experts, out, in]."""

    def __init__(self, count: int, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, out, width))


class Mixture(nn.Module):
    """Each token goes through the experts that its router prefers.

    Every expert computes every token, and what was not chosen counts for nothing: no shape depends on the
    data, so that a step can be recorded and no row feels its neighbours.
    """

    def __init__(self, width: int, experts: Experts) -> None:
        super().__init__()
        self._chosen = experts.chosen
        self.router = nn.Linear(width, experts.count)
        self.fc1 = Stack(experts.count, width, 2 * experts.inner)
        self.fc2 = Stack(experts.count, experts.inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, -2)
        best = self.router(tokens).topk(self._chosen, dim=-1)
        shares = torch.zeros(len(tokens), len(self.fc1.weight), dtype=x.dtype, device=x.device)
        shares = shares.scatter(1, best.indices, best.values.softmax(dim=-1))
        hidden, gate = (tokens @ self.fc1.weight.transpose(1, 2)).chunk(2, dim=-1)  # [experts, tokens, inner]
        inner = F.gelu(hidden) * (gate + 1) * shares.t()[:, :, None]
        return (inner @ self.fc2.weight.transpose(1, 2)).sum(dim=0).view_as(x)


class Tau(nn.Module):
    """How much a head's query and value count, from the token and from its place."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.wq, self.wv = (nn.Parameter(torch.empty(heads, width)) for _ in range(2))
        self.alpha = nn.Parameter(torch.empty(heads))

    def forward(self, mixed: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """mixed [B, T, width], index [B, T] -> factors of query and value, [B, T, heads, 1] each."""
        seen = F.gelu(mixed)
        place = 0.5 + torch.sigmoid(self.alpha.float() * (index[..., None] + 1).float().log())
        query, value = ((seen @ w.t()).tanh() + place.to(mixed.dtype) for w in (self.wq, self.wv))
        return query[..., None], value[..., None]


class SelfAttention(nn.Module):
    """Queries, keys and values of one fused projection, the first dimensions of q and k rotated."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self._heads, self._kv_heads, self._head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self._layer = layer
        width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        self.qkv = nn.Linear(shape.dim, width)
        self.proj = nn.Linear(shape.dim, shape.dim)
        self.tau = Tau(shape.heads, width) if shape.tau else None

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, paged: Paged) -> torch.Tensor:
        mixed = self.qkv(x)
        turning, value = mixed.unflatten(-1, (-1, self._head_dim)).split(
            [self._heads + self._kv_heads, self._kv_heads], dim=2
        )
        query, key = torch.split(rotate(turning, cos, sin), [self._heads, self._kv_heads], dim=2)
        if self.tau is not None:  # a factor of a whole head may come before the rotation or after it
            of_query, of_value = self.tau(mixed, paged.index)
            query, value = query * of_query, value * of_value
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
        self.mlp: nn.Module
        if shape.experts is not None and layer in shape.experts.layers:
            self.mlp = Mixture(shape.dim, shape.experts)
        else:
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
        self.lm_head = nn.Linear(shape.dim, shape.marks)

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

    def decision(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, W] -> [B, 2]: the logits of the end, and of going on, which is the best of the other marks."""
        marks = self.lm_head(self.post_ln(hidden))
        return torch.cat([marks[:, :1], marks[:, 1:].amax(dim=-1, keepdim=True)], dim=-1)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn (x_i, x_i+half) by angle i; the pairs come out side by side, before the dimensions that stay.

    x [B, T, heads, D], cos and sin [B, T, 1, half].
    """
    half = cos.shape[-1]
    first, second, rest = torch.split(x, [half, half, x.shape[-1] - 2 * half], dim=-1)
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1).flatten(-2)
    return torch.cat((turned.to(x.dtype), rest), dim=-1)
