"""From logits to tokens, under the grammar."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from grammars.grammar import Grammar
from grammars.symbols import BINS

GREEDY = 1e-6
"""Temperatures below this choose the most likely token."""


@dataclass(frozen=True, slots=True)
class Chance:
    """How a row is sampled: temperature, top_p, seed and the number of the token, each [B]."""

    temperature: torch.Tensor
    top_p: torch.Tensor
    seed: torch.Tensor
    count: torch.Tensor


class Sampler:
    """Chooses among what each row's state and coordinate bounds allow.  B rows, A alphabet size."""

    def __init__(self, grammar: Grammar, device: torch.device) -> None:
        def table(array: npt.NDArray[np.generic]) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        masks = grammar.masks()
        following = grammar.next_state.copy()
        for state in np.flatnonzero(grammar.final):
            _sink(masks, following, grammar, int(state))
        self._masks = table(masks)
        self._next_state, self._class_of = table(following).long(), table(grammar.class_of).long()
        self._place, self._lower = table(grammar.place).long(), table(grammar.lower).long()
        self._top = table(grammar.top).long()
        self._alphabet = table(grammar.alphabet).long()
        first = grammar.first_coordinate
        self._first, self._coordinates = first, slice(first, first + BINS)
        self._bins = torch.arange(BINS, device=device)
        self._columns = torch.arange(grammar.logits, device=device)

    def __call__(
        self,
        logits: torch.Tensor,
        states: torch.Tensor,
        low: torch.Tensor,
        high: torch.Tensor,
        chance: Chance | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """logits [B, A], states, low and high [B] -> alphabet positions [B], their probabilities [B].

        The probability is that of the model under the mask, whatever the temperature.
        """
        allowed = self._masks[states]
        allowed[:, self._coordinates] &= (self._bins >= low[:, None]) & (self._bins <= high[:, None])
        masked = logits.float().masked_fill(~allowed, -torch.inf)
        return self._choose(masked, chance)

    def tokens(self, position: torch.Tensor) -> torch.Tensor:
        """Alphabet positions [B] -> ids [B]."""
        return self._alphabet[position]

    def bounds(self, states: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`Cursors.low` and `high` of rows from states [B] and the values of their open objects [B, *]."""
        return values.gather(1, self._lower[states][:, None] % values.shape[1]).squeeze(1) + 1, self._top[
            states
        ]

    def advance(
        self, states: torch.Tensor, values: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What `Cursors.advance` does to states [B] and values [B, *], as new tensors."""
        kind = self._class_of[position]
        place = self._place[states, kind]
        return self._next_state[states, kind], values.scatter(
            1, place[:, None], (position - self._first)[:, None]
        )

    def _choose(
        self, masked: torch.Tensor, chance: Chance | None, column: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Masked logits [B, n], n of all columns from `column` on -> which [B], and its probability [B]."""
        which = masked.argmax(dim=1) if chance is None else self._draw(masked, chance, column)
        chosen = masked.gather(1, which[:, None]).squeeze(1)
        return which, torch.exp(chosen - masked.logsumexp(dim=1))

    def _draw(self, masked: torch.Tensor, chance: Chance, column: int) -> torch.Tensor:
        """Gumbel-max over the smallest set of tokens that holds top_p; greedy rows stay greedy."""
        warm = chance.temperature > GREEDY
        scaled = masked / chance.temperature.masked_fill(~warm, 1.0)[:, None]
        ordered, order = scaled.softmax(dim=1).sort(dim=1, descending=True, stable=True)
        beyond = ordered.cumsum(dim=1) - ordered >= chance.top_p[:, None]
        dropped = torch.zeros_like(beyond).scatter(1, order, beyond)
        noise = -torch.log(
            -torch.log(self._uniform(chance, self._columns[column : column + masked.shape[1]]))
        )
        drawn = (scaled.masked_fill(dropped, -torch.inf) + noise).argmax(dim=1)
        return torch.where(warm, drawn, masked.argmax(dim=1))

    def _uniform(self, chance: Chance, columns: torch.Tensor) -> torch.Tensor:
        """[B, n] numbers in (0, 1) that depend on seed, token number and column, not on the batch."""
        state = _mix(_mix(chance.seed[:, None] + 0x9E3779B9) ^ chance.count[:, None])
        bits = _mix(state ^ (columns * 0x85EBCA6B & 0xFFFFFFFF))
        return (bits.double() + 0.5) / 2**32


def _sink(
    masks: npt.NDArray[np.bool_], following: npt.NDArray[np.int32], grammar: Grammar, state: int
) -> None:
    """Past its end an answer repeats the end, so that a row in flight always has a token."""
    into = grammar.next_state[:, grammar.class_of] == state
    ends = into.any(axis=0)
    masks[state] = ends
    following[state, grammar.class_of[np.flatnonzero(ends)]] = state


def _mix(x: torch.Tensor) -> torch.Tensor:
    """A 32-bit integer hash in int64 arithmetic (the finalizer of MurmurHash3)."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)
