"""A linear layer to whose output each row adds what its adapter says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional as F

from engine.adapters.peft import Pair


class Chosen(threading.local):
    """The slots of the forward that this thread runs: one of each of its B rows, one for all, or none."""

    slots: torch.Tensor | int | None = None

    @contextmanager
    def using(self, slots: torch.Tensor | int) -> Iterator[None]:
        """slots: int64 [B] for layers whose input is [B, T, W] or [B * T, W], or one slot for any input."""
        self.slots = slots
        try:
            yield
        finally:
            self.slots = None


class AdaptedLinear(nn.Module):
    """Stands where an `nn.Linear` stood.

    a: [slots, rank, in] and b: [slots, out, rank]; zeros in slot 0, and beyond an adapter's own rank.
    """

    def __init__(self, base: nn.Linear, chosen: Chosen, slots: int, rank: int) -> None:
        super().__init__()
        self.base, self._chosen = base, chosen
        like = base.weight
        self.a = torch.zeros(slots, rank, base.in_features, dtype=like.dtype, device=like.device)
        self.b = torch.zeros(slots, base.out_features, rank, dtype=like.dtype, device=like.device)

    @property
    def weight(self) -> torch.Tensor:
        """Of the layer without adapters; some models ask for its dtype."""
        return self.base.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.base(x)
        slots = self._chosen.slots
        if slots is None:
            return output
        a, b = self.a[slots], self.b[slots]
        if isinstance(slots, int):
            return output + F.linear(F.linear(x, a), b)
        rows = x.reshape(len(slots), -1, x.shape[-1])
        return output + torch.bmm(torch.bmm(rows, a.transpose(1, 2)), b.transpose(1, 2)).view_as(output)

    def settled(self, pair: Pair) -> Pair:
        """The pair as `fill` copies it without waiting."""
        tensors = (tensor.to(self.a.dtype) for tensor in (pair.a, pair.b))
        return Pair(*(tensor.pin_memory() if self.a.is_cuda else tensor for tensor in tensors))

    def fill(self, slot: int, pair: Pair | None) -> None:
        """Put an adapter's settled matrices into a slot; None where it does not change this layer."""
        self.a[slot].zero_()
        self.b[slot].zero_()
        if pair is not None:
            rank = len(pair.a)
            self.a[slot, :rank].copy_(pair.a, non_blocking=True)
            self.b[slot, :, :rank].copy_(pair.b, non_blocking=True)
