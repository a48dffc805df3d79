"""Numbers spelled digit by digit, between runs that are known."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammars.dialects.qwen import QwenDialect, Writing
from grammars.spelled import SpelledCursors, SpelledGrammar, completable
from grammars.types import TASKS, Box, Item, Task

PIECES = ('[{"', '"},{"', '"}]', "[]", '],"', '":[', '":"', "bbox", "label")
CAT = "cat"
bounded = settings(max_examples=60, deadline=None)


def letters(text: str) -> list[int]:
    """A tokenizer that writes every character by itself."""
    return [ord(letter) for letter in text]


def merged(text: str) -> list[int]:
    """One that has some longer pieces too."""
    pattern = "|".join(map(re.escape, sorted(PIECES, key=len, reverse=True)))
    found = re.findall(f"{pattern}|.", text)
    return [1000 + PIECES.index(piece) if piece in PIECES else ord(piece) for piece in found]


def text_of(ids: list[int]) -> str:
    return "".join(PIECES[i - 1000] if i >= 1000 else chr(i) for i in ids)


TOKENIZERS = {"letters": letters, "merged": merged}
WRITINGS = {n: {task: Writing(task, encode) for task in TASKS} for n, encode in TOKENIZERS.items()}
GRAMMARS = {
    n: SpelledGrammar(QwenDialect(), {task: w.marks for task, w in writing.items()})
    for n, writing in WRITINGS.items()
}
every_tokenizer = pytest.mark.parametrize("name", GRAMMARS)
every_task = pytest.mark.parametrize("task", TASKS)
frames = st.tuples(st.integers(1, 12_000), st.integers(1, 12_000))


class Answer:
    """Written by taking tokens; runs are passed as they come."""

    def __init__(self, name: str, task: Task, frame: tuple[int, int]) -> None:
        self.grammar, writing = GRAMMARS[name], WRITINGS[name][task]
        self.cursor = self.grammar.cursor(task, frame)
        self.label = writing.label(TOKENIZERS[name](QwenDialect().label(CAT) or ""))
        self.ids, self.items = list(writing.opening), list[Item]()

    @property
    def options(self) -> list[int]:
        return np.flatnonzero(self.cursor.allowed()).tolist()

    def take(self, position: int, probability: float = 1.0) -> None:
        self.ids.append(int(self.grammar.alphabet[position]))
        item = self.cursor.advance(position, probability)
        self.items += [] if item is None else [item]
        if self.cursor.run_due:
            assert self.options == []
            self.ids += self.cursor.run(self.label)
            self.cursor.pass_run()

    def position(self, letter: str) -> int:
        return int(np.searchsorted(self.grammar.alphabet, ord(letter)))

    def take_text(self, name: str, text: str, probability: float = 1.0) -> None:
        for token in TOKENIZERS[name](text):
            self.take(int(np.searchsorted(self.grammar.alphabet, token)), probability)


@every_tokenizer
@every_task
@bounded
@given(chance=st.randoms(use_true_random=False), frame=frames)
def test_any_walk_is_a_list_of_objects_in_the_frame(
    name: str, task: Task, chance: random.Random, frame: tuple[int, int]
) -> None:
    answer = Answer(name, task, frame)
    while not answer.cursor.ended and len(answer.ids) < 300:
        options = answer.options
        assert options, "a state that allows nothing"
        answer.take(chance.choice(options), 0.5)
    if answer.cursor.ended:
        assert re.fullmatch(QwenDialect().expression(task), text_of(answer.ids))
    for item in answer.items:
        if isinstance(item, Box):
            assert 0 <= item.x_min < item.x_max <= 1
            assert 0 <= item.y_min < item.y_max <= 1
        else:
            assert task == "point"
            assert 0 <= item.x <= 1
            assert 0 <= item.y <= 1
        assert item.score == 0.5


def begun(frame: tuple[int, int], text: str) -> Answer:
    """A first box, its numbers written so far."""
    answer = Answer("letters", "detect", frame)
    answer.take(answer.position("{"))
    for letter in text:
        answer.take(answer.position(letter))
    return answer


def writable(frame: tuple[int, int], before: str) -> set[int]:
    """Every number that may be written after others, by trying all digits."""
    found, begun_with = set(), [""]
    while begun_with:
        digits = begun_with.pop()
        answer = begun(frame, before + digits)
        for position in answer.options:
            letter = text_of([int(answer.grammar.alphabet[position])])
            if letter.isdigit():
                begun_with.append(digits + letter)
            else:
                found.add(int(digits))
    return found


@pytest.mark.parametrize("frame", [(7, 10), (130, 1000), (1, 1)])
def test_exactly_the_numbers_within_the_bounds_can_be_written(frame: tuple[int, int]) -> None:
    width, height = frame
    assert writable(frame, "") == set(range(width))
    for x in {0, width // 3, width - 1}:
        assert writable(frame, f"{x},") == set(range(height))
        for y in {0, height - 1}:
            assert writable(frame, f"{x},{y},") == set(range(x + 1, width + 1))
            assert writable(frame, f"{x},{y},{x + 1},") == set(range(y + 1, height + 1))


def test_what_is_completable_is_what_some_number_begins_with() -> None:
    chance = random.Random(1)
    for _ in range(300):
        low = chance.randrange(2000)
        high, value, left = low + chance.randrange(300), chance.randrange(1, 300), chance.randrange(5)
        longer = [
            str(value) + str(n).zfill(more) for more in range(left + 1) for n in range(10**more) if more
        ]
        possible = any(low <= int(number) <= high for number in [str(value), *longer])
        arrays = (np.array([number]) for number in (value, left, low, high))
        assert completable(*arrays)[0] == possible


@every_tokenizer
def test_what_is_not_allowed_raises_and_changes_nothing(name: str) -> None:
    chance = random.Random(2)
    for _ in range(20):
        answer = Answer(name, "detect", (640, 48))
        for _ in range(chance.randrange(30)):
            if not answer.cursor.ended:
                answer.take(chance.choice(answer.options))
        before = (answer.cursor.state, answer.cursor.bounds(), answer.options)
        for position in set(range(len(answer.grammar.alphabet))) - set(answer.options):
            with pytest.raises(ValueError, match="not allowed"):
                answer.cursor.advance(position, 0.5)
        assert (answer.cursor.state, answer.cursor.bounds(), answer.options) == before


def test_an_object_scores_as_its_beginning_does() -> None:
    answer = Answer("merged", "detect", (100, 1000))
    answer.take_text("merged", '[{"', 0.75)
    answer.take_text("merged", "0,50,100,1000", 0.5)
    answer.take_text("merged", '],"', 0.5)
    answer.take_text("merged", '"},{"', 0.25)
    answer.take_text("merged", '9,9,10,10],"', 0.5)
    assert answer.items == [Box(0.0, 0.05, 1.0, 1.0, 0.75), Box(0.09, 0.009, 0.1, 0.01, 0.25)]
    answer.take_text("merged", '"}]')
    assert answer.cursor.ended
    first, second = '{"bbox_2d":[0,50,100,1000],"label":"cat"}', '{"bbox_2d":[9,9,10,10],"label":"cat"}'
    assert text_of(answer.ids) == f"[{first},{second}]"


def test_nothing_is_an_answer() -> None:
    answer = Answer("merged", "point", (100, 100))
    answer.take_text("merged", "[]")
    assert answer.cursor.ended
    assert text_of(answer.ids) == "[]"


def test_rows_do_not_touch_each_other() -> None:
    """Frames differ from row to row; rows as an array are what each is alone."""
    grammar, chance = GRAMMARS["merged"], random.Random(3)
    rows = SpelledCursors(grammar, 5)
    framed = [(chance.choice(TASKS), (chance.randint(1, 2000), chance.randint(1, 2000))) for _ in range(5)]
    alone = [grammar.cursor(task, frame) for task, frame in framed]
    for row, (task, frame) in enumerate(framed):
        rows.start(row, task, frame)
    for _ in range(200):
        going = [i for i, c in enumerate(alone) if not c.ended and chance.random() < 0.7]
        if not going:
            continue
        picked = [chance.choice(np.flatnonzero(alone[i].allowed()).tolist()) for i in going]
        complete = rows.advance(np.array(going), np.array(picked), np.full(len(going), 0.5))
        for row, position, is_whole in zip(going, picked, complete, strict=True):
            item = alone[row].advance(position, 0.5)
            assert bool(is_whole) == (item is not None)
            assert item is None or rows.item(row) == item
            if alone[row].run_due:
                assert rows.run_due(np.array([row]))[0]
                assert rows.run(row, [7]) == alone[row].run([7])
                rows.pass_run(row)
                alone[row].pass_run()
        words, _ = rows.bounds(np.arange(5))
        for row, cursor in enumerate(alone):
            allowed = np.flatnonzero(cursor.allowed())
            assert rows.state[row] == cursor.state
            assert words[row] == sum(1 << int(p) for p in allowed) or not len(allowed)


def test_a_tokenizer_must_write_digits_one_by_one() -> None:
    def pairs(text: str) -> list[int]:
        return [int(found) if found.isdigit() else ord(found) for found in re.findall(r"\d\d|.", text)]

    with pytest.raises(ValueError, match="digit by digit"):
        Writing("detect", pairs)
