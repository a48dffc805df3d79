"""What sampling keeps on the device is what the host's cursors say, and so are the tokens."""

from __future__ import annotations

import random
import re
import sysconfig
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.emulated import phrase
from engine.answer import Answer
from engine.device.cpu import CpuDevice
from engine.engine import Engine
from engine.errors import EngineError
from engine.executor import Placement
from engine.loop import Mode
from engine.request import Request
from engine.sampling import Sampler
from engine.typed_sampling import make_sampler
from grammars.cursors import Cursors
from grammars.dialects.base import Dialect
from grammars.dialects.moondream import MoondreamDialect
from grammars.dialects.paligemma import PaliGemmaDialect
from grammars.dialects.pointbox import PointboxDialect
from grammars.grammar import Grammar
from grammars.symbols import BINS, COORDINATE, END, Tokens
from grammars.types import TASKS, Box, Item, Task
from tests.bench.models import emulated

VOCABULARY = 51_200
ROWS = 6
bounded = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Spelled:
    """Boxes between spelled-out separators that many tokenisations write; no labels."""

    name = "spelled"

    def expression(self, task: Task) -> str:
        box = f"{COORDINATE}{{4}}"
        return f"({box}( ?(;|,|and|, and) ?{box})*)?{END}"

    def arity(self, task: Task) -> int:
        return 4

    def lower_slot(self, task: Task, slot: int) -> int | None:
        return slot - 2 if slot >= 2 else None

    def prompt(self, task: Task, phrase: str) -> str:
        return phrase

    def label(self, phrase: str) -> str | None:
        return None

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        y_min, x_min, y_max, x_max = (b / BINS for b in bins)
        return Box(x_min, y_min, x_max, y_max, 1.0)


def letters_of_bytes() -> dict[int, str]:
    """Byte -> the character that byte-level vocabularies write it with."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in printable)
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


@cache
def byte_level_pieces() -> dict[str, int]:
    """Every byte, and the commonest words of Python's own source with and without the space before them.

    As in a byte-level tokenizer they are written in its letters; here they are read back as text.
    """
    words: Counter[str] = Counter()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for word in re.findall(r" ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+", path.read_text("utf-8", "replace")):
            words.update(word[:end] for end in range(1, len(word) + 1))
    letters = letters_of_bytes()
    written = [letters[b] for b in range(256)]
    seen = set(written)
    for word, _ in words.most_common():
        piece = "".join(letters[b] for b in word.encode())
        if piece not in seen and len(written) < VOCABULARY:
            seen.add(piece)
            written.append(piece)
    assert len(written) == VOCABULARY
    back = {letter: b for b, letter in letters.items()}
    raw = (bytes(back[letter] for letter in piece) for piece in written)
    text = {piece.decode("utf-8", "replace"): token for token, piece in enumerate(raw)}
    return {piece: token for piece, token in text.items() if "\ufffd" not in piece}


@cache
def grammar_of(dialect: type[Dialect]) -> Grammar:
    coordinates = range(VOCABULARY, VOCABULARY + BINS)
    if dialect is MoondreamDialect:
        return Grammar(dialect(), Tokens(coordinates, (0,), size=coordinates.stop))
    end, start = (coordinates.stop, coordinates.stop + 1), coordinates.stop + 2
    has_start = dialect is PointboxDialect
    return Grammar(dialect(), Tokens(coordinates, end, start if has_start else None, byte_level_pieces()))


class Walk:
    """The same rows in cursors and as a sampler on the device keeps them."""

    def __init__(self, grammar: Grammar, chance: random.Random) -> None:
        self.grammar, self.chance = grammar, chance
        self.sampler, self.cursors = make_sampler(grammar, torch.device("cpu")), Cursors(grammar, ROWS)
        self.states = torch.zeros(ROWS, dtype=torch.int64)
        self.values = torch.full((ROWS, Cursors.width(grammar)), -1)
        self.masks = grammar.masks()
        for row in range(ROWS):
            self.begin(row)

    def begin(self, row: int) -> None:
        task = self.chance.choice(TASKS)
        self.cursors.start(row, task)
        self.states[row] = self.grammar.initial(task)
        self.values[row] = -1

    def legal(self, row: int) -> int:
        allowed = self.masks[self.cursors.state[row]].copy()
        bins = allowed[self.grammar.first_coordinate :][:BINS]
        bins[: self.cursors.low[row]] = False
        bins[self.cursors.high[row] + 1 :] = False
        options = np.flatnonzero(allowed)
        others = [p for p in options if not 0 <= p - self.grammar.first_coordinate < BINS]
        pool = self.chance.choice([options[:1], options[-1:], options, others or options])
        position = int(self.chance.choice(list(pool)))
        return position + self.chance.randrange(BINS**2) * (position == self.grammar.size)

    def step(self) -> None:
        everyone = np.arange(ROWS)
        for row in everyone:
            if self.cursors.ended(everyone)[row]:
                self.begin(int(row))
            elif self.cursors.run_due(everyone)[row]:
                self.cursors.pass_run(int(row))
                self.states[row] = int(self.grammar.after_run[self.states[row]])
        rows = np.array(sorted(self.chance.sample(range(ROWS), self.chance.randint(1, ROWS))))
        positions = np.array([self.legal(int(row)) for row in rows])
        self.cursors.advance(rows, positions, np.ones(len(rows)))
        at = torch.from_numpy(rows)
        self.states[at], self.values[at] = self.sampler.advance(
            self.states[at], self.values[at], torch.from_numpy(positions)
        )

    def assert_same(self) -> None:
        assert self.states.tolist() == self.cursors.state.tolist()
        low, high = self.sampler.bounds(self.states, self.values)
        assert low.tolist() == self.cursors.low.tolist()
        assert high.tolist() == self.cursors.high.tolist()


@pytest.mark.parametrize("dialect", [PointboxDialect, PaliGemmaDialect, Spelled, MoondreamDialect])
@bounded
@given(chance=st.randoms(use_true_random=False))
def test_the_sampler_advances_as_cursors_do(dialect: type[Dialect], chance: random.Random) -> None:
    walk = Walk(grammar_of(dialect), chance)
    for _ in range(40):
        walk.step()
        walk.assert_same()


@pytest.mark.parametrize("dialect", [PointboxDialect, Spelled])
def test_past_its_end_an_answer_repeats_the_end(dialect: type[Dialect]) -> None:
    grammar = grammar_of(dialect)
    sampler = Sampler(grammar, torch.device("cpu"))
    states = torch.from_numpy(np.flatnonzero(grammar.final))
    values = torch.full((len(states), Cursors.width(grammar)), -1)
    low, high = sampler.bounds(states, values)
    logits = torch.randn(len(states), len(grammar.alphabet), generator=torch.Generator().manual_seed(0))
    position, probability = sampler(logits, states, low, high, None)
    assert set(grammar.alphabet[position.numpy()].tolist()) <= {VOCABULARY + BINS, VOCABULARY + BINS + 1}
    assert (probability > 0).all()
    assert sampler.advance(states, values, position)[0].tolist() == states.tolist()


def answers(placement: Placement, mode: Mode, temperature: float) -> list[Answer]:
    requests = [
        Request(
            "detect",
            np.full((1, 1, 3), number, np.uint8),
            tuple(phrase((number * 7 + i) % 9, number) for i in range(3)),
            max_objects=3 if number % 4 == 0 else 50,
            temperature=temperature,
            top_p=0.9,
            seed=number,
        )
        for number in range(10)
    ]
    with Engine(
        emulated(), CpuDevice(), mode=mode, placement=placement, max_batch=4, max_tokens=60
    ) as engine:
        return [engine.ask(request) for request in requests]


@pytest.mark.parametrize("temperature", [0.0, 3.0])
@pytest.mark.parametrize("mode", ["pipelined", "blocking"])
def test_both_placements_say_the_same(mode: Mode, temperature: float) -> None:
    device, host = answers("device", mode, temperature), answers("host", "blocking", temperature)
    for ours, reference in zip(device, host, strict=True):
        assert ours.objects == reference.objects
        assert ours.phrases == reference.phrases
        assert ours.metrics.output_tokens == reference.metrics.output_tokens


def test_labels_need_the_host() -> None:
    class Labelled:
        def __init__(self) -> None:
            self.__dict__.update(emulated().__dict__)
            self.grammar = grammar_of(PaliGemmaDialect)

    device = CpuDevice()
    with pytest.raises(EngineError, match="placement must be host"):
        Engine(Labelled(), device, placement="device")  # type: ignore[arg-type]
    device.close()
