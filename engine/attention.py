"""Attention over pages, for transformers' text models and for our own decoders.

`install()` registers the function once; a model loaded with `attn_implementation=NAME` on its text part
then reads and writes our pages through the keyword argument `paged` of its forward.  A decoder of ours
calls `attend`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch
from torch.nn import functional as F

NAME = "pointbox_paged"
Kernel = Callable[..., torch.Tensor]


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

    def copy_pages(self, pairs: torch.Tensor) -> None:
        """[n, 2] pages: the first of each pair onto the second, in every layer."""
        for layer in (*self.keys, *self.values):
            pages = layer.view(-1, self.page_size, *layer.shape[1:])
            pages[pairs[:, 1]] = pages[pairs[:, 0]]


@dataclass
class Paged:
    """Where the T new tokens of B rows go, and what they see.

    index: [B, T] place of each new token in its sequence, from 0.
    table: [B, P] pages of each row, in order, padded with the padding page.
    prefix: [B] length of the block at the start of each row whose tokens see each other both ways.
    valid: [B, T] False on padding, which is written to the padding page.
    shift: [B] by what the position of a token after the image exceeds its place.
    """

    cache: KvCache
    index: torch.Tensor
    table: torch.Tensor
    prefix: torch.Tensor
    valid: torch.Tensor | None = None
    shift: torch.Tensor | None = None
    _masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    @cached_property
    def write(self) -> torch.Tensor:
        """[B * T] flat places in the cache."""
        size = self.cache.page_size
        if self.valid is None:
            places = self.table.gather(1, self.index // size) * size + self.index % size
        else:
            page = (self.index // size).clamp(max=self.table.shape[1] - 1)  # padding may lie past the table
            places = self.table.gather(1, page) * size + self.index % size
            places = torch.where(self.valid, places, places % size)
        return places.reshape(-1)

    @cached_property
    def read(self) -> torch.Tensor:
        """[B, P * page_size] flat places in the cache; past the end of a row, its own first one.

        Recycled pages hold what their last owner left, which may be NaN or infinite: a mask does not keep
        that out of a sum, since 0 * NaN is NaN.
        """
        size = self.cache.page_size
        offsets = torch.arange(size, device=self.table.device)
        places = (self.table[:, :, None] * size + offsets).flatten(1)
        own = torch.arange(places.shape[1], device=self.table.device) < self.lengths[:, None]
        return torch.where(own, places, places[:, :1])

    @cached_property
    def lengths(self) -> torch.Tensor:
        """[B] places that the last new token of each row may see."""
        if self.valid is None:
            return self.index[:, -1] + 1
        return self.index.masked_fill(~self.valid, -1).amax(1) + 1

    def mask(self, window: int | None = None) -> torch.Tensor:
        """[B, 1, T, P * page_size]: True where a new token sees a place.

        window: tokens that a token sees at most, itself included; the prefix sees all of itself.
        """
        if window not in self._masks:
            place = torch.arange(self.read.shape[1], device=self.table.device)
            index, prefix = self.index[:, :, None], self.prefix[:, None, None]
            behind = place <= index
            if window is not None:
                behind = behind & (place > index - window)
            both_ways = (place < prefix) & (index < prefix)
            self._masks[window] = (behind | both_ways)[:, None]
        return self._masks[window]


def attend(
    paged: Paged,
    layer: int,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float,
    softcap: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Write keys and values of the new tokens, and attend to everything that these see.

    query [B, H, T, D], key and value [B, K, T, D], H a multiple of K -> [B, T, H, D].
    softcap: scores s become softcap * tanh(s / softcap), as Gemma 2 has it.
    """
    keys, values = paged.cache.keys[layer], paged.cache.values[layer]
    keys[paged.write] = key.transpose(1, 2).flatten(0, 1)
    values[paged.write] = value.transpose(1, 2).flatten(0, 1)
    if query.is_cuda and query.shape[2] == 1 and paged.valid is None:
        one = query[:, :, 0].contiguous()
        size = paged.cache.page_size
        return _decode_kernel()(
            one, keys, values, paged.table, paged.lengths, size, scaling, softcap, window
        )[:, None]
    seen_keys, seen_values = keys[paged.read].transpose(1, 2), values[paged.read].transpose(1, 2)
    mask = paged.mask(window)
    if softcap is None:
        grouped = query.shape[1] != seen_keys.shape[1]  # said only where it is so: it rules out fast kernels
        output = F.scaled_dot_product_attention(
            query, seen_keys, seen_values, attn_mask=mask, scale=scaling, enable_gqa=grouped
        )
    else:
        output = _capped(query, seen_keys, seen_values, mask, scaling, softcap)
    return output.transpose(1, 2).contiguous()


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    paged: Paged,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """`attend`, as transformers calls it."""
    layer = module.layer_idx
    assert isinstance(layer, int)
    return attend(paged, layer, query, key, value, scaling, softcap, sliding_window), None


def install() -> None:
    """Make NAME known to transformers; without a mask function it builds no mask of its own."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, paged_attention)


def _capped(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
    softcap: float,
) -> torch.Tensor:
    """Attention with capped scores, softmax in fp32; shapes as in `attend`, keys [B, K, S, D]."""
    batch, _, new, dim = query.shape
    grouped = query.reshape(batch, keys.shape[1], -1, new, dim)  # [B, K, G, T, D]
    scores = torch.einsum("bkgtd,bksd->bkgts", grouped, keys).float() * scaling
    scores = softcap * torch.tanh(scores / softcap)
    weights = scores.masked_fill(~mask[:, :, None], -torch.inf).softmax(dim=-1).to(values.dtype)
    return torch.einsum("bkgts,bksd->bkgtd", weights, values).flatten(1, 2)


@cache
def _decode_kernel() -> Kernel:
    """Triton comes with CUDA builds of torch only, so it is imported where a GPU is."""
    from engine.kernel_cache import ensure_writable_cache
    from engine.triton_attention import paged_decode

    ensure_writable_cache()
    return paged_decode
