"""The measurement itself: a perfect engine scores 1, known faults cost what they should."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from training.figures import failure_sheet, plot
from training.measures import average_precision, confusion, curve, mistakes, task_figures
from training.outcomes import Outcome, ask, example_scenes, examples, held_out, holds, iou, judge
from training.queries import Query, Scene, SceneObject, matches, phrase_for
from training.report import page
from training.scenes import HELD_OUT, make_query, make_scene

EXAMPLES = Path(__file__).parents[2] / "examples"


def item(shape: str, colour: str, x0: float, y0: float, x1: float, y1: float) -> SceneObject:
    outline = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    return SceneObject(shape, colour, (x0, y0, x1, y1), max(x1 - x0, y1 - y0), outline)


RED = item("square", "red", 0.1, 0.1, 0.3, 0.3)
BLUE = item("square", "blue", 0.6, 0.6, 0.65, 0.65)
SCENE = Scene(np.zeros((100, 100, 3), np.uint8), (RED, BLUE))
ALL = Query("detect", "shape", SCENE.objects)


class Scripted:
    """An engine that answers with these boxes, and with their centres as points."""

    def __init__(self, *boxes: tuple[float, ...], score: float = 0.9) -> None:
        self.boxes = boxes
        self.score = score

    def detect(self, image: np.ndarray, phrase: str) -> SimpleNamespace:
        names = ("x_min", "y_min", "x_max", "y_max")
        return SimpleNamespace(
            objects=[
                SimpleNamespace(**dict(zip(names, b, strict=True)), score=self.score) for b in self.boxes
            ]
        )

    def point(self, image: np.ndarray, phrase: str) -> SimpleNamespace:
        centres = [((b[0] + b[2]) / 2, (b[1] + b[3]) / 2) for b in self.boxes]
        return SimpleNamespace(points=[SimpleNamespace(x=x, y=y, score=self.score) for x, y in centres])


def perfect(count: int) -> list[Outcome]:
    outcomes = []
    for seed in range(HELD_OUT.start, HELD_OUT.start + count):
        scene = make_scene(seed)
        query = make_query(scene, np.random.default_rng(seed), 0.3)
        engine = Scripted(*(o.box for o in query.objects))
        outcomes += [ask(engine, seed, scene, query, task) for task in ("detect", "point")]
    return outcomes


def test_the_truth_scores_one() -> None:
    outcomes = perfect(40)
    detect = task_figures([o for o in outcomes if o.task == "detect"])
    assert detect["all"]["f1"] == 1
    assert detect["large"]["mean_iou"] == pytest.approx(1)
    assert detect["median_coordinate_error_bins"] == 0
    assert detect["absent"]["empty"] == 1
    assert detect["average_precision"]["by_score"] == pytest.approx(1)
    point = task_figures([o for o in outcomes if o.task == "point"])
    assert point["all"]["f1"] > 0.97  # the middle of a cut object's box may lie just outside it


def test_misses_and_false_boxes_count_by_their_own_size() -> None:
    engine = Scripted((0.1, 0.1, 0.3, 0.3), (0.1, 0.1, 0.3, 0.31), (0.8, 0.8, 0.85, 0.85))
    figures = task_figures([ask(engine, "x", SCENE, ALL, "detect")])
    assert figures["large"]["precision"] == 0.5  # the repeated box finds nothing
    assert figures["large"]["recall"] == 1
    assert figures["small"]["precision"] == 0
    assert figures["small"]["recall"] == 0
    assert figures["all"]["f1"] == pytest.approx(2 / (3 + 2))


def test_points_find_each_object_once() -> None:
    outcome = ask(Scripted(RED.box, RED.box, (0.9, 0.9, 0.9, 0.9)), "x", SCENE, ALL, "point")
    assert [guess.match for guess in outcome.guesses] == [0, None, None]
    assert [guess.side for guess in outcome.guesses] == [RED.side, RED.side, BLUE.side]
    assert outcome.missed == [BLUE]


def test_better_scores_choose_first() -> None:
    scored = [((0.1, 0.1, 0.3, 0.28), 0.2), ((0.1, 0.1, 0.3, 0.3), 0.8)]
    guesses = judge(scored, ALL, SCENE)
    assert [(guess.score, guess.match) for guess in guesses] == [(0.8, 0), (0.2, None)]


def test_mistakes_are_told_apart() -> None:
    query = Query("detect", "red square", (RED,), "red", "square")
    circle = item("circle", "red", 0.5, 0.1, 0.7, 0.3)
    star = item("star", "green", 0.1, 0.7, 0.3, 0.9)
    scene = Scene(SCENE.image, (RED, BLUE, circle, star))
    boxes = (RED.box, RED.box, BLUE.box, circle.box, star.box, (0.9, 0.0, 1.0, 0.1))
    outcome = ask(Scripted(*boxes), "x", scene, query, "detect")
    assert mistakes([outcome]) == dict.fromkeys(mistakes([]), 1)
    tables = confusion([outcome])
    assert tables["shape"]["square"] == dict.fromkeys(tables["shape"]["square"], 0) | {
        "square": 3,
        "circle": 1,
        "star": 1,
        "nothing": 1,
    }
    assert tables["colour"]["red"]["blue"] == 1


def test_average_precision_rewards_good_order() -> None:
    good, bad = np.array([1, 1, 0, 0], bool), np.array([0, 0, 1, 1], bool)
    assert average_precision(good, 2) == 1
    assert average_precision(bad, 2) == pytest.approx(0.5)
    assert average_precision(good, 4) == 0.5
    assert average_precision(np.empty(0, bool), 3) == 0


def test_geometry() -> None:
    assert iou((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert iou((0, 0, 1, 1), (1, 1, 2, 2)) == 0
    triangle = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    assert holds(triangle, 0.2, 0.2)
    assert not holds(triangle, 0.7, 0.7)


def test_seeds_outside_the_held_out_range_are_refused() -> None:
    with pytest.raises(ValueError, match="1000000 is not held out"):
        list(held_out(Scripted(), scenes=2, seed=HELD_OUT.stop - 1))


def test_questions_do_not_depend_on_the_engine() -> None:
    first = [o.query.phrase for o in held_out(Scripted(), 5, HELD_OUT.start)]
    second = [o.query.phrase for o in held_out(Scripted((0, 0, 1, 1)), 5, HELD_OUT.start)]
    assert first == second


def test_examples_ask_for_all_that_is_there_and_some_that_is_not() -> None:
    outcomes = list(examples(Scripted(), EXAMPLES))
    for name, scene in example_scenes(EXAMPLES).items():
        asked = {o.query.phrase: o.query for o in outcomes if o.source == name}
        assert {phrase_for(o.colour, o.shape) for o in scene.objects} <= set(asked)
        assert sum(not query.objects for query in asked.values()) >= 2
        for query in asked.values():
            assert query.objects == tuple(o for o in scene.objects if matches(o, query.colour, query.shape))


def test_the_report_is_complete_and_its_pictures_small(tmp_path: Path) -> None:
    outcomes = list(held_out(Scripted((0.2, 0.2, 0.5, 0.5)), 20, HELD_OUT.start))
    by_task = {task: [o for o in outcomes if o.task == task] for task in ("detect", "point")}
    detect = by_task["detect"]
    tasks = {task: task_figures(part) for task, part in by_task.items()}
    figures = {
        "setting": {"model": "tiny", "scenes": 20, "seed": HELD_OUT.start, "absent": 3},
        "held_out": tasks | {"confusion": confusion(detect), "mistakes": mistakes(detect)},
        "examples": tasks | {"by_picture": {"x.jpg": {t: tasks[t]["all"] for t in tasks}}},
    }
    json.dumps(figures)
    words = page(figures, "default-model")
    assert "| detect, large |" in words
    assert "default-model/failures.png" in words
    plot(by_task, tmp_path / "curves.png")
    failure_sheet(outcomes, lambda source: make_scene(int(source)), tmp_path / "failures.png")
    assert all(path.stat().st_size < 300_000 for path in tmp_path.iterdir())
    scores, precision, recall = curve(detect)
    assert len(scores) == len(precision) == len(recall) == len(detect)
