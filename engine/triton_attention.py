"""Attention of one new token per row over pages, in Triton.

The places that a row sees are cut into splits; one program takes one split of one row and key-value head,
and a second kernel joins the splits.  Nothing is summed in an order that depends on other rows.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import torch
import triton
import triton.language as tl

SPLIT = 256
"""Places that one program reads."""
BLOCK = 64
"""Places that it reads at once."""
DOT = 16
"""Rows that a matrix product needs at least."""


def paged_decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    page_size: int,
    scaling: float,
    softcap: float | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """query [B, H, D], keys and values [pages * page_size, K, D], table [B, P], lengths [B] -> [B, H, D].

    lengths: places that a row sees, its new token included; at least 1 and at most P * page_size.
    softcap, window: as in `engine.attention.attend`.
    """
    batch, heads, dim = query.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    rows = 1 if group == 1 else max(DOT, triton.next_power_of_2(group))
    splits = triton.cdiv(table.shape[1] * page_size, SPLIT)
    width = triton.next_power_of_2(dim)
    partial = torch.empty(batch, heads, splits, dim, dtype=torch.float32, device=query.device)
    peaks = torch.empty(batch, heads, splits, dtype=torch.float32, device=query.device)
    sums = torch.empty_like(peaks)
    output = torch.empty_like(query)
    shape = {"DIM": dim, "WIDTH": width, "SPLITS": splits}
    _attend_split[(batch, kv_heads, splits)](
        query, keys, values, table, lengths, partial, peaks, sums,
        scaling, softcap or 0.0, table.stride(0),
        WINDOW=window or 0, KV_HEADS=kv_heads, GROUP=group, ROWS=rows, PAGE=page_size,
        SPLIT=SPLIT, BLOCK=BLOCK, CAPPED=softcap is not None, **shape,
    )  # fmt: skip
    _join_splits[(batch, heads)](
        partial, peaks, sums, output, HEADS=heads, SPLITS_PADDED=triton.next_power_of_2(splits), **shape
    )
    return output


@triton.jit
def _attend_split(
    query, keys, values, table, lengths, partial, peaks, sums,
    scaling, softcap, table_stride,
    WINDOW: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    PAGE: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr, CAPPED: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row).to(tl.int32)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0)
    begin = tl.maximum(split * SPLIT, first // BLOCK * BLOCK)
    end = tl.minimum((split + 1) * SPLIT, length)

    member = tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    head = row * KV_HEADS * GROUP + kv_head * GROUP + member
    inside = (member < GROUP)[:, None] & (column < DIM)[None, :]
    asked = tl.load(query + head[:, None] * DIM + column[None, :], mask=inside, other=0.0)

    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(begin, end, BLOCK):
        place = start + tl.arange(0, BLOCK)
        seen = (place >= first) & (place < end)
        page = tl.load(table + row * table_stride + place // PAGE, mask=seen, other=0).to(tl.int64)
        entry = (page * PAGE + place % PAGE) * KV_HEADS + kv_head
        there = seen[:, None] & (column < DIM)[None, :]
        where = entry[:, None] * DIM + column[None, :]
        key = tl.load(keys + where, mask=there, other=0.0)
        value = tl.load(values + where, mask=there, other=0.0)
        if ROWS == 1:
            scores = tl.sum(asked.to(tl.float32) * key.to(tl.float32), axis=1)[None, :]
        else:
            scores = tl.dot(asked, tl.trans(key), input_precision="ieee")
        scores = scores * scaling
        if CAPPED:  # tanh by way of the sigmoid, which Triton has everywhere
            scores = softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(peak - higher)
        if ROWS == 1:
            part = tl.sum(tl.trans(weights) * value.to(tl.float32), axis=0)[None, :]
        else:
            part = tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        mixed = mixed * shrink[:, None] + part
        total = total * shrink + tl.sum(weights, axis=1)
        peak = higher

    slot = head * SPLITS + split
    tl.store(peaks + slot, peak, mask=member < GROUP)
    tl.store(sums + slot, total, mask=member < GROUP)
    tl.store(partial + slot[:, None] * DIM + column[None, :], mixed, mask=inside)


@triton.jit
def _join_splits(
    partial, peaks, sums, output,
    HEADS: tl.constexpr, SPLITS_PADDED: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0) * HEADS + tl.program_id(1)
    split = tl.arange(0, SPLITS_PADDED)
    column = tl.arange(0, WIDTH)
    slot = head * SPLITS + split
    peak = tl.load(peaks + slot, mask=split < SPLITS, other=float("-inf"))
    total = tl.load(sums + slot, mask=split < SPLITS, other=0.0)
    weight = tl.exp(peak - tl.max(peak, axis=0))
    there = (split < SPLITS)[:, None] & (column < DIM)[None, :]
    part = tl.load(partial + slot[:, None] * DIM + column[None, :], mask=there, other=0.0)
    mixed = tl.sum(part * weight[:, None], axis=0) / tl.sum(total * weight, axis=0)
    tl.store(output + head * DIM + column, mixed.to(output.dtype.element_ty), mask=column < DIM)
