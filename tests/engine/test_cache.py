"""Images are computed once, and never taken for one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.models.base import Model
from engine.prepare import image_key
from engine.request import Request
from tests.engine.asking import ask_together, assert_at_rest, engine_on, picture, said

ONE = Request("detect", picture(1), ("red circle",), max_objects=4, dedupe=False)


def last_row_differs() -> list[np.ndarray]:
    other = picture(1).copy()
    other[-1] = 255 - other[-1]
    return [picture(1), other]


def last_value_differs() -> list[np.ndarray]:
    other = picture(1).copy()
    other[-1, -1, -1] ^= 255
    return [picture(1), other]


def same_bytes_other_shape() -> list[np.ndarray]:
    return [picture(1, 96, 128), picture(1, 96, 128).reshape(128, 96, 3)]


LOOKALIKES = (last_row_differs, last_value_differs, same_bytes_other_shape)


@pytest.mark.parametrize("pair", LOOKALIKES)
def test_images_that_differ_do_not_share(endless: Model, pair) -> None:  # type: ignore[no-untyped-def]
    requests = [replace(ONE, image=image) for image in pair()]
    alone = []
    for request in requests:
        with engine_on(endless) as engine:
            alone.append(said(engine.ask(request)))
    with engine_on(endless) as engine:
        answers = [engine.ask(request) for request in requests]
        assert engine.counts().vision_images == 2
        assert [a.metrics.cached_tokens for a in answers] == [0, 0]
        assert [said(a) for a in answers] == alone
        assert_at_rest(engine)


def test_a_key_is_of_size_and_bytes() -> None:
    image = picture(1)
    assert image_key(image) == image_key(np.asfortranarray(image)) == image_key(image.copy())
    assert image_key(image[::-1]) == image_key(image[::-1].copy()) != image_key(image)
    keys = {image_key(i) for make in LOOKALIKES for i in make()}
    assert len(keys) == 4


def test_the_same_image_again_is_there_already(endless: Model) -> None:
    with engine_on(endless) as engine:
        first = engine.ask(ONE)
        again = engine.ask(replace(ONE, image=ONE.image.copy()))
        other = engine.ask(replace(ONE, phrases=("blue star",), task="point"))
        assert [a.metrics.cached_tokens for a in (first, again, other)] == [
            0,
            endless.image_tokens,
            endless.image_tokens,
        ]
        assert engine.counts().vision_images == 1
        assert said(again) == said(first)
        engine.clear_cache()
        assert engine.ask(ONE).metrics.cached_tokens == 0
        assert engine.counts().vision_images == 2
        assert_at_rest(engine)


def test_many_phrases_pay_one_image(endless: Model) -> None:
    phrases = ("red circle", "star", "a blue ring", "white", "every green hexagon")
    prompts = sum(len(endless.prompt("detect", phrase)) for phrase in phrases)
    with engine_on(endless) as engine:
        answer = engine.ask(replace(ONE, phrases=phrases))
        counts = engine.counts()
        assert_at_rest(engine)
    assert counts.vision_images == 1
    assert counts.prefill_tokens == endless.image_tokens + prompts
    assert answer.metrics.input_tokens == 5 * endless.image_tokens + prompts
    assert answer.metrics.cached_tokens == 4 * endless.image_tokens


def test_phrases_share_an_image_that_ends_within_a_page(ragged: Model) -> None:
    """25 tokens in pages of 16: whoever goes on after them has a copy of the second page."""
    phrases = ("red circle", "star", "a blue ring")
    with engine_on(ragged) as engine:
        alone = [engine.ask(replace(ONE, phrases=(phrase,))) for phrase in phrases]
        engine.clear_cache()
        images = engine.counts().vision_images
        together = ask_together(engine, [replace(ONE, phrases=(phrase,)) for phrase in phrases])
        assert engine.counts().vision_images == images + 1
        assert sum(a.metrics.cached_tokens for a in together) == 2 * ragged.image_tokens
        assert [said(a).places for a in together] == [said(a).places for a in alone]
        assert len({said(a).places for a in alone}) > 1
        assert_at_rest(engine)


def test_requests_at_once_share_an_image_too(endless: Model) -> None:
    with engine_on(endless) as engine:
        answers = ask_together(engine, [ONE] * 12)
        assert engine.counts().vision_images == 1
        assert len({said(a) for a in answers}) == 1
        assert_at_rest(engine)


def test_a_prompt_dependent_model_shares_vision_features_only(public: Model) -> None:
    phrases = ("red circle", "star", "red circle")
    prompts = sum(len(public.prompt("detect", phrase)) for phrase in phrases)
    with engine_on(public, max_tokens=30) as engine:
        answer = engine.ask(replace(ONE, phrases=phrases))
        assert engine.counts().vision_images == 1
        assert engine.counts().prefill_tokens == 3 * public.image_tokens + prompts
        assert answer.metrics.cached_tokens == 0
        parts = [[o for o in answer.objects if o.phrase_index == index] for index in (0, 2)]
        assert [o.x_min for o in parts[0]] == [o.x_min for o in parts[1]]
        assert_at_rest(engine)
        assert engine.ask(ONE).objects
        assert engine.counts().vision_images == 2


def test_pages_of_old_images_are_taken_when_needed(endless: Model) -> None:
    """Room for one answer of 20 pages and five images: the least recently used go first."""
    images = [picture(i) for i in range(8)]
    with engine_on(endless, pages=1 + 20 + 5 * -(-endless.image_tokens // 16)) as engine:
        first = [said(engine.ask(replace(ONE, image=image))) for image in images]
        assert engine.counts().vision_images == 8
        assert engine.ask(replace(ONE, image=images[-1])).metrics.cached_tokens == endless.image_tokens
        assert engine.ask(replace(ONE, image=images[0])).metrics.cached_tokens == 0
        assert [said(engine.ask(replace(ONE, image=image))).places for image in images] == [
            s.places for s in first
        ]
        assert_at_rest(engine)
