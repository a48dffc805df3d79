"""From logits to typed values: the end or a coordinate, a coordinate, a width and a height at once."""

from __future__ import annotations

import torch

from engine.sampling import Chance, Sampler
from grammars.grammar import Grammar
from grammars.spelled import SpelledGrammar
from grammars.symbols import BINS

DECISION, COORDINATE, WIDTH, HEIGHT = 0, 2, 2 + BINS, 2 + 2 * BINS
"""Where the parts of the logits begin: end and going on, then the bins of each kind of value."""


class TypedSampler(Sampler):
    """Each kind of value has logits of its own, and the state says which kind is due.

    Where an answer may end, the end is weighed against going on, and only then is the best bin taken; the
    probability is that of this decision.  That of a size is of its width and its height together.
    """

    def __init__(self, grammar: Grammar, device: torch.device) -> None:
        super().__init__(grammar, device)
        assert grammar.size is not None
        self._size = grammar.size

    def __call__(
        self,
        logits: torch.Tensor,
        states: torch.Tensor,
        low: torch.Tensor,
        high: torch.Tensor,
        chance: Chance | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = logits.float()
        allowed = self._masks[states]
        may_end, may_go_on, sized = allowed[:, 0], allowed[:, self._first], allowed[:, self._size]
        outside = (self._bins < low[:, None]) | (self._bins > high[:, None])

        decision = logits[:, DECISION:COORDINATE].masked_fill(
            ~torch.stack([may_end, may_go_on], dim=1), -torch.inf
        )
        going_on, certain = self._choose(decision, chance, DECISION)
        bins = logits[:, COORDINATE:WIDTH].masked_fill(outside, -torch.inf)
        coordinate, chosen = self._choose(bins, chance, COORDINATE)
        width, wide = self._choose(logits[:, WIDTH:HEIGHT], chance, WIDTH)
        height, tall = self._choose(logits[:, HEIGHT:], chance, HEIGHT)

        value = torch.where(going_on > 0, self._first + coordinate, 0)
        position = torch.where(sized, self._size + width * BINS + height, value)
        probability = torch.where(may_end, certain, chosen)
        return position, torch.where(sized, wide * tall, probability)

    def tokens(self, position: torch.Tensor) -> torch.Tensor:
        return super().tokens(position.clamp(max=self._size)) + (position - self._size).clamp(min=0)

    def advance(
        self, states: torch.Tensor, values: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kind = self._class_of[position.clamp(max=self._size)]
        place, size = self._place[states, kind], position - self._size
        sized = size >= 0
        first = torch.where(sized, size // BINS, position - self._first)
        second = torch.where(sized, size % BINS, first)
        values = values.scatter(1, place[:, None], first[:, None])
        return self._next_state[states, kind], values.scatter(1, (place + sized)[:, None], second[:, None])


class SpelledSampler(Sampler):
    """Numbers are spelled out: what is allowed comes as bits, see `SpelledCursors.bounds`."""

    def __call__(
        self,
        logits: torch.Tensor,
        states: torch.Tensor,
        low: torch.Tensor,
        high: torch.Tensor,
        chance: Chance | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        allowed = (low[:, None] >> self._columns) & 1 == 1
        return self._choose(logits.float().masked_fill(~allowed, -torch.inf), chance)


def make_sampler(grammar: Grammar, device: torch.device) -> Sampler:
    """The sampler of a model with this grammar."""
    if isinstance(grammar, SpelledGrammar):
        return SpelledSampler(grammar, device)
    return Sampler(grammar, device) if grammar.size is None else TypedSampler(grammar, device)
