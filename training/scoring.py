"""Which rule makes the best `score` of a model's own probabilities: `python -m training.scoring`.

The model is asked once; every rule then ranks the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import fmean
from typing import Any

import cyclopts
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from engine.device.cpu import CpuDevice
from engine.engine import Engine
from engine.models.registry import load_model
from grammars.dialects.base import Dialect
from grammars.types import Item, Task
from training.measures import ranking
from training.outcomes import Outcome, held_out, judge
from training.queries import Scene
from training.scenes import HELD_OUT

Rule = Callable[[Sequence[float]], float]
RULES: dict[str, Rule] = {
    "object token": lambda p: p[0],
    "mean of coordinates": lambda p: fmean(p[1:]),
    "mean of all tokens": fmean,
    "geometric mean of all tokens": lambda p: prod(p) ** (1 / len(p)),
    "product of all tokens": prod,
    "object token x mean of coordinates": lambda p: p[0] * fmean(p[1:]),
    "object token x 8th root of mean of coordinates": lambda p: p[0] * fmean(p[1:]) ** (1 / 8),
    "object token x 4th root of geometric mean": lambda p: p[0] * prod(p[1:]) ** (1 / (4 * len(p[1:]))),
    "object token x 8th root of geometric mean": lambda p: p[0] * prod(p[1:]) ** (1 / (8 * len(p[1:]))),
    "object token x 16th root of geometric mean": lambda p: p[0] * prod(p[1:]) ** (1 / (16 * len(p[1:]))),
}
"""Of the probabilities of the token that begins an object and of its coordinates."""
NUMBER = 2.0**-40
"""A score in which an object's number travels through the engine."""


class Noting:
    """A dialect whose objects bear a number for a score; `seen[number]` are their probabilities."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.seen: list[tuple[float, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def parse(self, task: Task, bins: Sequence[int], probabilities: Sequence[float]) -> Item:
        item = self._dialect.parse(task, bins, probabilities)
        self.seen.append(tuple(probabilities))
        return replace(item, score=(len(self.seen) - 1) * NUMBER)


class Sized:
    """An engine that remembers how large the pictures were that it was asked about, in order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.sizes: list[tuple[int, ...]] = []

    def detect(self, image: Any, phrase: str, /) -> Any:
        self.sizes.append(image.shape)
        return self._engine.detect(image, phrase)

    def point(self, image: Any, phrase: str, /) -> Any:
        self.sizes.append(image.shape)
        return self._engine.point(image, phrase)


@dataclass(frozen=True, slots=True)
class Answered:
    """Outcomes whose scores are numbers of `seen`."""

    outcomes: list[Outcome]
    sizes: list[tuple[int, ...]]
    seen: list[tuple[float, ...]]

    def by(self, rule: Rule) -> Iterator[Outcome]:
        """The same answers, ranked and matched by a rule."""
        for outcome, size in zip(self.outcomes, self.sizes, strict=True):
            scene = Scene(np.broadcast_to(np.uint8(0), size), outcome.scene_objects)
            scored = [(g.place, rule(self.seen[round(g.score / NUMBER)])) for g in outcome.guesses]
            yield replace(outcome, guesses=judge(scored, outcome.query, scene))


def answer(model: str, scenes: int, seed: int) -> Answered:
    """Ask a model about held-out scenes."""
    loaded = load_model(model, torch.device("cpu"))
    noting = loaded.grammar.dialect = Noting(loaded.grammar.dialect)
    with Engine(loaded, CpuDevice()) as engine:
        asked = Sized(engine)
        outcomes = list(track(held_out(asked, scenes, seed), "held-out scenes", total=2 * scenes))
    return Answered(outcomes, asked.sizes, noting.seen)


def compare(answered: Answered) -> dict[str, dict[str, float]]:
    """Average precision of every rule for each task, and of shuffled scores."""
    figures: dict[str, dict[str, float]] = {}
    for name, rule in RULES.items():
        outcomes = list(answered.by(rule))
        found = {t: ranking([o for o in outcomes if o.task == t]) for t in ("detect", "point")}
        figures[name] = {task: ranked["by_score"] for task, ranked in found.items()}
        figures["shuffled"] = {task: ranked["shuffled"] for task, ranked in found.items()}
    return figures


def scoring(*, model: str = "tiny", scenes: int = 1000, seed: int = HELD_OUT.start) -> None:
    """Compare rules for the score by average precision on held-out scenes.

    Parameters
    ----------
    model
        A name that the engine knows, or a checkpoint's folder.
    scenes
        How many held-out scenes.
    seed
        The first scene's seed, within 900000 to 999999.
    """
    table = Table("score", "detect", "point", title=f"average precision, {model}, {scenes} scenes")
    for name, by_task in compare(answer(model, scenes, seed)).items():
        table.add_row(name, *(f"{value:.3f}" for value in by_task.values()))
    Console().print(table)


if __name__ == "__main__":
    cyclopts.run(scoring)
