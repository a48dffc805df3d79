"""Questions put to the engine and what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from PIL import Image

from training.queries import Query, Scene, SceneObject, make_query, matches, phrase_for
from training.scenes import HELD_OUT, make_scene

IOU = 0.5


class Asked(Protocol):
    """What is measured: `engine.Engine`, or a stand-in."""

    def detect(self, image: Any, phrase: str, /) -> Any: ...

    def point(self, image: Any, phrase: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Guess:
    """One box (x_min, y_min, x_max, y_max) or point (x, y) of an answer, in fractions of the image."""

    place: tuple[float, ...]
    score: float
    match: int | None
    """Which of the query's objects it found; None: none, or one that a better guess has found."""
    iou: float
    """With the matched object; 0 for points and misses."""
    side: float
    """Relative side by which it is counted: the matched object's; else its own, or for a point that of
    the nearest object."""


@dataclass(frozen=True, slots=True)
class Outcome:
    source: int | str
    """The scene's seed, or the picture's name."""
    task: Literal["detect", "point"]
    query: Query
    scene_objects: tuple[SceneObject, ...]
    guesses: tuple[Guess, ...]

    @property
    def missed(self) -> list[SceneObject]:
        found = {guess.match for guess in self.guesses}
        return [item for index, item in enumerate(self.query.objects) if index not in found]

    @property
    def right(self) -> bool:
        return not self.missed and all(guess.match is not None for guess in self.guesses)


def ask(
    engine: Asked, source: int | str, scene: Scene, query: Query, task: Literal["detect", "point"]
) -> Outcome:
    """Puts the query to the engine and holds the answer against the truth."""
    places: list[tuple[float, ...]]
    if task == "detect":
        found = engine.detect(scene.image, query.phrase).objects
        places = [(o.x_min, o.y_min, o.x_max, o.y_max) for o in found]
    else:
        found = engine.point(scene.image, query.phrase).points
        places = [(p.x, p.y) for p in found]
    scored = [(place, item.score) for place, item in zip(places, found, strict=True)]
    return Outcome(source, task, query, scene.objects, judge(scored, query, scene))


def judge(scored: Iterable[tuple[tuple[float, ...], float]], query: Query, scene: Scene) -> tuple[Guess, ...]:
    """Matches guesses to the query's objects one to one, best score first.

    A box finds the free object that it overlaps most, from an IoU of 0.5; a point a free object whose
    filled outline holds it (the nearest centre if several do).
    """
    free = dict(enumerate(query.objects))
    guesses = []
    height, width = scene.image.shape[:2]
    for place, score in sorted(scored, key=lambda pair: -pair[1]):
        merits = {index: _merit(place, item) for index, item in free.items()}
        match = max(merits, key=merits.__getitem__, default=None)
        if match is not None and merits[match] <= 0:
            match = None
        side = free.pop(match).side if match is not None else _side(place, scene, width, height)
        overlap = merits[match] if match is not None and len(place) == 4 else 0.0
        guesses.append(Guess(place, score, match, overlap, side))
    return tuple(guesses)


def _merit(place: tuple[float, ...], item: SceneObject) -> float:
    """How well a guess fits an object: 0 or less where it does not find it."""
    if len(place) == 4:
        overlap = iou(place, item.box)
        return overlap if overlap >= IOU else 0.0
    if not holds(item.outline, *place):
        return 0.0
    return 2.0 - float(np.hypot(*(np.array(place) - centre(item.box))))


def _side(place: tuple[float, ...], scene: Scene, width: int, height: int) -> float:
    if len(place) == 4:
        x0, y0, x1, y1 = place
        return max((x1 - x0) * width, (y1 - y0) * height) / min(width, height)
    gaps = [np.hypot(*(np.array(place) - centre(item.box))) for item in scene.objects]
    return scene.objects[int(np.argmin(gaps))].side if gaps else 1.0


def iou(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Intersection over union of two boxes."""
    wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or tall <= 0:
        return 0.0
    both = wide * tall
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def centre(box: tuple[float, ...]) -> np.ndarray:
    """float64 [2]: x, y."""
    return np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2])


def holds(outline: tuple[tuple[float, float], ...], x: float, y: float) -> bool:
    """Whether a polygon contains a point (even-odd rule)."""
    points = np.array(outline)
    following = np.roll(points, -1, 0)
    spans = (points[:, 1] > y) != (following[:, 1] > y)
    a, b = points[spans], following[spans]
    crossing = a[:, 0] + (y - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0])
    return bool((crossing > x).sum() % 2)


def held_out(engine: Asked, scenes: int, seed: int, all_share: float = 0.15) -> Iterator[Outcome]:
    """For each scene one question to detect and another to point, fixed by its seed."""
    for number in range(seed, seed + scenes):
        if number not in HELD_OUT:
            raise ValueError(f"seed {number} is not held out: use {HELD_OUT.start} to {HELD_OUT.stop - 1}")
        scene, rng = make_scene(number), np.random.default_rng([number, 1])
        yield ask(engine, number, scene, make_query(scene, rng, all_share), "detect")
        yield ask(engine, number, scene, make_query(scene, rng, all_share), "point")


def example_scenes(folder: Path) -> dict[str, Scene]:
    """The pictures of truth.json; their outlines are the boxes' corners."""
    pictures = {}
    for name, entries in json.loads((folder / "truth.json").read_text()).items():
        with Image.open(folder / name) as file:
            image = np.asarray(file.convert("RGB"))
        pictures[name] = Scene(image, tuple(_from_truth(e, *image.shape[:2]) for e in entries))
    return pictures


def _from_truth(entry: dict[str, Any], height: int, width: int) -> SceneObject:
    colour, shape = entry["label"].split()
    x0, y0, x1, y1 = box = tuple(entry[key] for key in ("x_min", "y_min", "x_max", "y_max"))
    side = max((x1 - x0) * width, (y1 - y0) * height) / min(width, height)
    return SceneObject(shape, colour, box, side, ((x0, y0), (x1, y0), (x1, y1), (x0, y1)))


def examples(engine: Asked, folder: Path) -> Iterator[Outcome]:
    """On each example picture: every object by name, every colour, every shape, all, and as many
    names that it lacks."""
    for name, scene in example_scenes(folder).items():
        held = sorted({(o.colour, o.shape) for o in scene.objects})
        colours, shapes = sorted({c for c, _ in held}), sorted({s for _, s in held})
        swapped = [(c, s) for c, (_, s) in zip(colours, reversed(held), strict=False) if (c, s) not in held]
        wanted = [(None, None), *held, *((c, None) for c in colours), *((None, s) for s in shapes), *swapped]
        for colour, shape in wanted:
            found = tuple(o for o in scene.objects if matches(o, colour, shape))
            query = Query("detect", phrase_for(colour, shape), found, colour, shape)
            yield ask(engine, name, scene, query, "detect")
            yield ask(engine, name, scene, query, "point")
