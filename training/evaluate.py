"""Measures a model through the product's own engine: `python -m training.evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import cyclopts
from rich.console import Console
from rich.progress import track

from engine.engine import Engine
from training.figures import failure_sheet, plot
from training.measures import Figures, confusion, mistakes, rates, task_figures
from training.outcomes import Asked, Outcome, examples, held_out
from training.report import page, print_report
from training.scenes import HELD_OUT, make_scene

EXAMPLES = Path(__file__).parent.parent / "examples"


def evaluate(
    *,
    model: str = "tiny",
    scenes: int = 1000,
    seed: int = HELD_OUT.start,
    out: Path = Path("docs/default-model"),
) -> None:
    """Measure a model on held-out scenes and on the example pictures.

    Parameters
    ----------
    model
        A name that the engine knows, or a checkpoint's folder.
    scenes
        How many held-out scenes.
    seed
        The first scene's seed, within 900000 to 999999.
    out
        Folder for metrics.json, curves.png and failures.png; the page goes beside it as OUT.md.
    """
    with Engine.load(model) as engine:
        outcomes, own = ask_all(engine, scenes, seed)
    absent = sum(not outcome.query.objects for outcome in outcomes)
    setting = {"model": model, "scenes": scenes, "seed": seed, "absent": absent}
    figures = {"setting": setting} | measured(outcomes, own)
    write(figures, outcomes, out)
    print_report(figures, Console())


def ask_all(engine: Asked, scenes: int, seed: int) -> tuple[list[Outcome], list[Outcome]]:
    """The outcomes of the held-out scenes and of the example pictures."""
    asked = track(held_out(engine, scenes, seed), "held-out scenes", total=2 * scenes)
    return list(asked), list(examples(engine, EXAMPLES))


def measured(outcomes: Sequence[Outcome], own: Sequence[Outcome]) -> Figures:
    """All figures; `own` are the outcomes of the example pictures."""
    detect = by_task(outcomes)["detect"]
    held = {task: task_figures(part) for task, part in by_task(outcomes).items()}
    pictures = {task: task_figures(part) for task, part in by_task(own).items()}
    by_picture = {
        name: {task: rates(part) for task, part in by_task([o for o in own if o.source == name]).items()}
        for name in dict.fromkeys(str(outcome.source) for outcome in own)
    }
    return {
        "held_out": held | {"confusion": confusion(detect), "mistakes": mistakes(detect)},
        "examples": pictures | {"by_picture": by_picture},
    }


def by_task(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    return {task: [o for o in outcomes if o.task == task] for task in ("detect", "point")}


def write(figures: Figures, outcomes: Sequence[Outcome], out: Path) -> None:
    """metrics.json and the pictures into `out`, the page beside it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "metrics.json").write_text(json.dumps(figures, indent=1) + "\n")
    plot(by_task(outcomes), out / "curves.png")
    failure_sheet(outcomes, lambda source: make_scene(int(source)), out / "failures.png")
    out.with_suffix(".md").write_text(page(figures, out.name))


if __name__ == "__main__":
    cyclopts.run(evaluate)
