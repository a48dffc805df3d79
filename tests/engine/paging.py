"""Random pages, and attention over them written as plainly as it can be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from engine.attention import KvCache, Paged

PAGE = 16


@dataclass(frozen=True)
class Shape:
    """heads: of queries.  lengths: places of each row before its new tokens.  new: new tokens of each row."""

    lengths: tuple[int, ...]
    new: int = 1
    heads: int = 4
    kv_heads: int = 2
    dim: int = 8


@dataclass
class Case:
    """A filled cache, and new tokens for it; the same keys and values as dense tensors [B, S, K, D]."""

    paged: Paged
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


def random_case(shape: Shape, seed: int, prefix: tuple[int, ...] | None = None, spare: int = 3) -> Case:
    """Pages in no order; everything that no row owns holds what would be seen in a wrong result."""
    chance = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=chance)

    batch, longest = len(shape.lengths), max(shape.lengths) + shape.new
    width = -(-longest // PAGE) + 1
    cache = KvCache(
        1, batch * width + spare, PAGE, shape.kv_heads, shape.dim, torch.float32, torch.device("cpu")
    )
    cache.keys[0].fill_(1e3)
    cache.values[0].fill_(1e3)
    own = torch.randperm(batch * width, generator=chance) + 1
    table = own.reshape(batch, width)
    keys, values = (normal(batch, width * PAGE, shape.kv_heads, shape.dim) for _ in range(2))
    for row, length in enumerate(shape.lengths):
        for place in range(length):
            flat = int(table[row, place // PAGE]) * PAGE + place % PAGE
            cache.keys[0][flat], cache.values[0][flat] = keys[row, place], values[row, place]
    index = torch.tensor(shape.lengths)[:, None] + torch.arange(shape.new)
    paged = Paged(cache, index, table, torch.tensor(prefix or [0] * batch))
    at = index[:, :, None, None].expand(-1, -1, shape.kv_heads, shape.dim)
    key, value = keys.gather(1, at).transpose(1, 2), values.gather(1, at).transpose(1, 2)
    query = normal(batch, shape.heads, shape.new, shape.dim)
    return Case(paged, query, key, value, keys, values)


def naive(case: Case, scaling: float, softcap: float | None, window: int | None) -> torch.Tensor:
    """[B, T, H, D], one number after the other."""
    batch, heads, new, dim = case.query.shape
    group = heads // case.keys.shape[2]
    output = torch.zeros(batch, new, heads, dim, dtype=torch.float64)
    for row in range(batch):
        prefix = int(case.paged.prefix[row])
        for t in range(new):
            me = int(case.paged.index[row, t])
            seen = [p for p in range(me + 1) if window is None or me - p < window]
            if me < prefix:
                seen = sorted({*seen, *range(prefix)})
            for head in range(heads):
                scores = case.keys[row, seen, head // group].double() @ case.query[row, head, t].double()
                scores = scores * scaling
                if softcap is not None:
                    scores = torch.tensor(
                        [softcap * math.tanh(s / softcap) for s in scores.tolist()]
                    ).double()
                weights = scores.softmax(0)
                output[row, t, head] = weights @ case.values[row, seen, head // group].double()
    return output
