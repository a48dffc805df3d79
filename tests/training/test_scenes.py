"""Scenes: reproducible, exactly labelled, as varied as promised; queries: honest about matches."""

from __future__ import annotations

import numpy as np
import pytest

from training.colours import distance, named
from training.paint import Style
from training.scenes import (
    COLOURS,
    HELD_OUT,
    SHAPES,
    SIZES,
    Scene,
    Stage,
    make_query,
    make_scene,
    matches,
    phrase_for,
)
from training.shapes import clipped_box, rasterise, shape_outline

PLAIN = Style(clean=True, fill="flat", border="", shadow=None, opacity=1.0)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [make_scene(seed) for seed in range(400)]


def test_a_seed_gives_the_same_scene_again() -> None:
    for seed in (3, HELD_OUT[0], 1_000_007):
        first, second = make_scene(seed), make_scene(seed)
        assert np.array_equal(first.image, second.image)
        assert first.objects == second.objects
    assert not np.array_equal(make_scene(1).image[:90, :90], make_scene(2).image[:90, :90])


def test_counts_sizes_and_canvases_cover_their_ranges(scenes: list[Scene]) -> None:
    assert {len(scene.objects) for scene in scenes} == set(range(9))
    sides = [item.side for scene in scenes for item in scene.objects]
    low, high = SIZES
    assert low * 0.7 <= min(sides) < 0.07
    assert 0.35 < max(sides) <= high + 1e-6
    assert 0.1 < np.mean(np.array(sides) < 0.12) < 0.3
    for scene in scenes:
        height, width, channels = scene.image.shape
        assert channels == 3
        assert scene.image.dtype == np.uint8
        assert 96 <= height <= 320
        assert 96 <= width <= 320
    aspects = [scene.image.shape[1] / scene.image.shape[0] for scene in scenes]
    assert min(aspects) < 0.55
    assert max(aspects) > 1.9


def test_every_colour_and_shape_appears(scenes: list[Scene]) -> None:
    items = [item for scene in scenes for item in scene.objects]
    assert {item.colour for item in items} == set(COLOURS)
    assert {item.shape for item in items} == set(SHAPES)


def test_boxes_are_fractions_with_an_area(scenes: list[Scene]) -> None:
    for scene in scenes:
        for item in scene.objects:
            x0, y0, x1, y1 = item.box
            assert 0 <= x0 < x1 <= 1
            assert 0 <= y0 < y1 <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_the_box_is_the_extent_of_what_was_drawn(shape: str) -> None:
    """On a plain ground every changed pixel is the object's; half a pixel is what rounding costs."""
    errors = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        stage = Stage(rng, np.full((160, 210, 3), 255, np.float32), PLAIN)
        centre = (rng.uniform(0, 210), rng.uniform(0, 160)) if seed % 3 else (None, None)
        stage.add([shape], ["blue"], *centre, rng.uniform(0.06, 0.4))
        if not stage.objects:  # cut too far by the edge
            continue
        ink = (255 - stage.canvas[..., 0]) / (255 - stage.canvas[..., 0].min())
        rows, columns = np.nonzero((ink > 0.5).any(1))[0], np.nonzero((ink > 0.5).any(0))[0]
        drawn = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
        box = np.array(stage.objects[0].box) * (210, 160, 210, 160)
        # the tip of a thin corner covers less than half of its last pixels
        slack = 2.6 if shape in ("star", "triangle", "diamond") else 1.0
        assert (np.abs(box - drawn) < slack).all()
        errors.append(box - drawn)
    assert len(errors) > 15
    assert abs(np.mean(errors)) < 0.2  # drawn where it is said to be, not half a pixel beside


def test_boxes_are_clipped_with_the_outline() -> None:
    diamond = np.array([[0, -10], [10, 0], [0, 10], [-10, 0]], float)
    assert clipped_box(diamond + np.array([15, 15]), 40, 40) == (5, 5, 25, 25)
    # without its left corner it is as tall as before; without its left half and more, shorter
    assert clipped_box(diamond + np.array([5, 15]), 40, 40) == (0, 5, 15, 25)
    assert clipped_box(diamond + np.array([-4, 15]), 40, 40) == (0, 9, 6, 21)
    assert clipped_box(diamond + np.array([-40, 15]), 40, 40) == (0, 0, 0, 0)


def test_objects_stay_visible(scenes: list[Scene]) -> None:
    for scene in scenes[:150]:
        height, width = scene.image.shape[:2]
        free = np.ones((height, width), bool)
        for item in reversed(scene.objects):
            patch = rasterise(np.array(item.outline) * (width, height), 0.0, width, height)
            assert patch is not None
            drawn = patch.alpha > 0.5
            # a later ring hides nothing through its hole, which this outline fills: hence a low bar
            if all(other.shape != "ring" for other in scene.objects):
                assert (drawn & free[patch.window]).sum() >= 0.55 * patch.whole - 3
            free[patch.window] &= ~drawn


def test_a_square_is_never_a_diamond() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        for shape, upright in (("square", True), ("diamond", False)):
            points = shape_outline(shape, rng).points
            edge = np.roll(points, -1, 0) - points
            longest = edge[np.argmax(np.hypot(*edge.T))]
            angle = np.degrees(np.arctan2(*longest)) % 90
            assert (min(angle, 90 - angle) < 16) == upright


def test_colours_keep_apart() -> None:
    """Two individuals of different names are rarely as close as two of one name."""
    rng = np.random.default_rng(0)
    samples = {name: np.stack([named(name, rng) for _ in range(300)]) for name in COLOURS}
    for one in COLOURS:
        for other in COLOURS:
            if one != other:
                assert distance(samples[one], samples[other]).min() > 30, (one, other)


def test_queries_list_exactly_the_matches(scenes: list[Scene]) -> None:
    rng = np.random.default_rng(5)
    kinds: dict[str, int] = {}
    absent = hard = others = 0
    for scene in scenes * 3:
        query = make_query(scene, rng, all_share=0.3)
        expected = [o for o in scene.objects if matches(o, query.colour, query.shape)]
        assert list(query.objects) == expected
        kinds[query.kind] = kinds.get(query.kind, 0) + 1
        if query.kind != "all" and scene.objects:
            others += 1
            absent += not query.objects
            colours = {o.colour for o in scene.objects}
            shapes = {o.shape for o in scene.objects}
            hard += not query.objects and query.colour in colours and query.shape in shapes
    assert 0.25 < kinds["all"] / (3 * len(scenes)) < 0.35
    assert kinds["colour shape"] > kinds["colour"] > 0 < kinds["shape"]
    assert 0.15 < absent / others < 0.25
    assert hard > 10


def test_phrases_name_what_they_ask_for() -> None:
    assert phrase_for("red", "circle") == "red circle"
    assert phrase_for(None, None) == "shape"
    rng = np.random.default_rng(0)
    seen = {phrase_for("orange", "cross", rng) for _ in range(200)}
    assert {"orange cross", "orange crosses", "an orange cross", "the orange cross"} <= seen
    assert all("orange cross" in phrase for phrase in seen)
    assert "grey shape" in {phrase_for("gray", None, rng) for _ in range(200)}
