"""Every rule ranks the answers that the engine gives."""

from __future__ import annotations

import pytest

from engine.engine import Engine
from training.measures import ranking
from training.outcomes import held_out
from training.scenes import HELD_OUT
from training.scoring import RULES, Answered, answer, compare

SCENES = 8


@pytest.fixture(scope="module")
def answered() -> Answered:
    return answer("tiny", SCENES, HELD_OUT.start)


def test_the_engines_own_rule_gives_what_the_evaluation_gives(answered: Answered) -> None:
    with Engine.load("tiny") as engine:
        usual = list(held_out(engine, SCENES, HELD_OUT.start))
    ours = list(answered.by(RULES["object token x 8th root of geometric mean"]))
    for task in ("detect", "point"):
        expected = ranking([o for o in usual if o.task == task])
        assert ranking([o for o in ours if o.task == task]) == pytest.approx(expected)
    assert [sorted(g.place for g in o.guesses) for o in ours] == [
        sorted(g.place for g in o.guesses) for o in usual
    ]


def test_rules_only_rank(answered: Answered) -> None:
    figures = compare(answered)
    assert set(figures) == {*RULES, "shuffled"}
    assert all(0 <= value <= 1 for by_task in figures.values() for value in by_task.values())
    counts = {name: sum(len(o.guesses) for o in answered.by(rule)) for name, rule in RULES.items()}
    assert len(set(counts.values())) == 1


def test_an_object_has_a_probability_before_its_coordinates(answered: Answered) -> None:
    assert {len(probabilities) for probabilities in answered.seen} == {3, 5}
    assert all(0 < p <= 1 + 1e-9 for probabilities in answered.seen for p in probabilities)
