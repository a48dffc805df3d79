"""Figures from outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.outcomes import Guess, Outcome, centre, iou
from training.queries import COLOURS, SHAPES, SceneObject
from training.scenes import SMALL

BINS = 1024
SIDES = (0.0, 0.08, 0.12, 0.18, 0.26, 0.34, np.inf)
"""Edges of the size classes of the plot, relative sides."""

Figures = dict[str, Any]


def within(low: float, high: float, outcomes: Sequence[Outcome]) -> tuple[list[Guess], int]:
    """The guesses and the number of true objects with a relative side from `low` to below `high`."""
    guesses = [g for outcome in outcomes for g in outcome.guesses if low <= g.side < high]
    truths = sum(low <= item.side < high for outcome in outcomes for item in outcome.query.objects)
    return guesses, truths


def rates(outcomes: Sequence[Outcome], low: float = 0.0, high: float = np.inf) -> Figures:
    """Precision, recall, F1, and for boxes the mean IoU of matches, of one class of sizes.

    A figure without a case is None.
    """
    guesses, truths = within(low, high, outcomes)
    right = [guess for guess in guesses if guess.match is not None]
    precision = len(right) / len(guesses) if guesses else None
    recall = len(right) / truths if truths else None
    f1 = 2 * len(right) / (len(guesses) + truths) if guesses or truths else None
    figures: Figures = {
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "objects": truths,
        "answers": len(guesses),
    }
    if any(len(guess.place) == 4 for guess in guesses):
        figures["mean_iou"] = float(np.mean([guess.iou for guess in right])) if right else None
    return figures


def coordinate_errors(outcomes: Sequence[Outcome]) -> np.ndarray:
    """Absolute errors of all coordinates of matched guesses, in bins of 1/1024: float64 [n]."""
    errors = [
        abs(np.array(guess.place) - _target(guess, outcome.query.objects[guess.match])) * BINS
        for outcome in outcomes
        for guess in outcome.guesses
        if guess.match is not None
    ]
    return np.concatenate(errors) if errors else np.empty(0)


def _target(guess: Guess, item: SceneObject) -> np.ndarray:
    return np.array(item.box) if len(guess.place) == 4 else centre(item.box)


def curve(outcomes: Sequence[Outcome]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores from high to low, and precision and recall of the answers down to each: [guesses]."""
    guesses = [guess for outcome in outcomes for guess in outcome.guesses]
    truths = sum(len(outcome.query.objects) for outcome in outcomes)
    scores = np.array([guess.score for guess in guesses])
    right = np.array([guess.match is not None for guess in guesses], bool)
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(right[order])
    return scores[order], found / np.arange(1, len(guesses) + 1), found / max(truths, 1)


def average_precision(right: np.ndarray, truths: int) -> float:
    """Area under the precision-recall curve of ranked answers, bool [answers], precision made monotonic."""
    if not truths or not len(right):
        return 0.0
    found = np.cumsum(right)
    precision = found / np.arange(1, len(right) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float((precision * right).sum() / truths)


def ranking(outcomes: Sequence[Outcome], shuffles: int = 50) -> Figures:
    """Average precision by score, and the mean of that by shuffled scores."""
    guesses = [guess for outcome in outcomes for guess in outcome.guesses]
    truths = sum(len(outcome.query.objects) for outcome in outcomes)
    rng = np.random.default_rng(0)
    scores = np.array([guess.score for guess in guesses])
    right = np.array([guess.match is not None for guess in guesses], bool)
    by_score = average_precision(right[np.argsort(-scores, kind="stable")], truths)
    shuffled = [average_precision(rng.permutation(right), truths) for _ in range(shuffles)]
    return {"by_score": by_score, "shuffled": float(np.mean(shuffled)) if shuffles else None}


def empty_for_absent(outcomes: Sequence[Outcome]) -> Figures:
    absent = [outcome for outcome in outcomes if not outcome.query.objects]
    empty = sum(not outcome.guesses for outcome in absent)
    return {"phrases": len(absent), "empty": empty / len(absent) if absent else None}


def task_figures(outcomes: Sequence[Outcome]) -> Figures:
    """All figures of one task's outcomes."""
    errors = coordinate_errors(outcomes)
    kinds = ("colour shape", "colour", "shape", "all")
    return {
        "all": rates(outcomes),
        "large": rates(outcomes, low=SMALL),
        "small": rates(outcomes, high=SMALL),
        "median_coordinate_error_bins": float(np.median(errors)) if len(errors) else None,
        "average_precision": ranking(outcomes),
        "absent": empty_for_absent(outcomes),
        "by_kind": {kind: rates([o for o in outcomes if o.query.kind == kind]) for kind in kinds},
    }


def confusion(outcomes: Sequence[Outcome]) -> Figures:
    """What boxes hit when a shape (a colour) was asked for: [asked][hit] counts, the last column `nothing`.

    A box hits the object that it overlaps most, from an IoU of 0.5.
    """
    tables = {"shape": _table(SHAPES), "colour": _table(COLOURS)}
    for outcome in outcomes:
        for guess in outcome.guesses:
            hit = struck(guess, outcome.scene_objects)
            for attribute, table in tables.items():
                asked = getattr(outcome.query, attribute)
                if asked is not None:
                    table[asked][getattr(hit, attribute) if hit else "nothing"] += 1
    return tables


def _table(words: Sequence[str]) -> dict[str, dict[str, int]]:
    return {asked: dict.fromkeys((*words, "nothing"), 0) for asked in words}


def mistakes(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Why boxes answered to `colour shape` are wrong."""
    counts = dict.fromkeys(
        ("wrong shape", "wrong colour", "both wrong", "inexact or repeated", "no object there"), 0
    )
    for outcome in outcomes:
        if outcome.query.kind == "colour shape":
            for guess in outcome.guesses:
                if guess.match is None:
                    counts[_mistake(guess, outcome)] += 1
    return counts


def _mistake(guess: Guess, outcome: Outcome) -> str:
    hit = struck(guess, outcome.scene_objects, least=0.2)
    if hit is None:
        return "no object there"
    shape, colour = hit.shape == outcome.query.shape, hit.colour == outcome.query.colour
    if shape and colour:
        return "inexact or repeated"
    return "wrong shape" if colour else "wrong colour" if shape else "both wrong"


def struck(guess: Guess, items: Sequence[SceneObject], least: float = 0.5) -> SceneObject | None:
    """The object that a box overlaps most, if by at least this IoU."""
    best = max(items, key=lambda item: iou(guess.place, item.box), default=None)
    return best if best is not None and iou(guess.place, best.box) >= least else None
