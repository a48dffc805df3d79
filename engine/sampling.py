"""From logits to tokens, under the grammar."""

from __future__ import annotations

import torch

from grammars.symbols import BINS


class Sampler:
    """Greedy choice among what each row's state and coordinate bounds allow.

    masks: bool [states, A] on the device, for all tasks of the model.
    """

    def __init__(self, masks: torch.Tensor, first_coordinate: int) -> None:
        self._masks = masks
        self._coordinates = slice(first_coordinate, first_coordinate + BINS)
        self._bins = torch.arange(BINS, device=masks.device)

    def __call__(
        self, logits: torch.Tensor, states: torch.Tensor, low: torch.Tensor, high: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """logits [B, A], states, low and high [B] -> alphabet positions [B], their probabilities [B]."""
        allowed = self._masks[states]
        allowed[:, self._coordinates] &= (self._bins >= low[:, None]) & (self._bins <= high[:, None])
        masked = logits.float().masked_fill(~allowed, -torch.inf)
        best, position = masked.max(dim=1)
        return position, torch.exp(best - masked.logsumexp(dim=1))
