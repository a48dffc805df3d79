"""Attention over pages, as transformers' text models call it.

`install()` registers the function once; a model loaded with `attn_implementation=NAME` on its text part
then reads and writes our pages through the keyword argument `paged` of its forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional as F
from transformers import AttentionInterface

NAME = "pointbox_paged"


class KvCache:
    """Keys and values of every layer: [pages * page_size, kv_heads, head_dim] each."""

    def __init__(
        self,
        layers: int,
        pages: int,
        page_size: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.page_size = page_size
        shape = (pages * page_size, kv_heads, head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]


@dataclass
class Paged:
    """Where the T new tokens of B rows go, and what they see.

    index: [B, T] place of each new token in its sequence, from 0.
    table: [B, P] pages of each row, in order, padded with the padding page.
    prefix: [B] length of the block at the start of each row whose tokens see each other both ways.
    valid: [B, T] False on padding, which is written to the padding page.
    """

    cache: KvCache
    index: torch.Tensor
    table: torch.Tensor
    prefix: torch.Tensor
    valid: torch.Tensor | None = None

    @cached_property
    def write(self) -> torch.Tensor:
        """[B * T] flat places in the cache."""
        size = self.cache.page_size
        places = self.table.gather(1, self.index // size) * size + self.index % size
        if self.valid is not None:
            places = torch.where(self.valid, places, places % size)
        return places.reshape(-1)

    @cached_property
    def read(self) -> torch.Tensor:
        """[B, P * page_size] flat places in the cache."""
        size = self.cache.page_size
        offsets = torch.arange(size, device=self.table.device)
        return (self.table[:, :, None] * size + offsets).flatten(1)

    @cached_property
    def mask(self) -> torch.Tensor:
        """[B, 1, T, P * page_size]: True where a new token sees a place."""
        place = torch.arange(self.read.shape[1], device=self.table.device)
        causal = place <= self.index[:, :, None]
        prefix = self.prefix[:, None, None]
        both_ways = (place < prefix) & (self.index[:, :, None] < prefix)
        return (causal | both_ways)[:, None]


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    paged: Paged,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """query [B, H, T, D], key and value [B, K, T, D] of the new tokens -> [B, T, H, D]."""
    layer = module.layer_idx
    assert isinstance(layer, int)
    keys, values = paged.cache.keys[layer], paged.cache.values[layer]
    keys[paged.write] = key.transpose(1, 2).flatten(0, 1)
    values[paged.write] = value.transpose(1, 2).flatten(0, 1)
    seen_keys = keys[paged.read].transpose(1, 2)
    seen_values = values[paged.read].transpose(1, 2)
    output = F.scaled_dot_product_attention(
        query, seen_keys, seen_values, attn_mask=paged.mask, scale=scaling, enable_gqa=True
    )
    return output.transpose(1, 2).contiguous(), None


def install() -> None:
    """Make NAME known to transformers; without a mask function it builds no mask of its own."""
    AttentionInterface.register(NAME, paged_attention)
