"""No phrase becomes a special or location token, and ordinary ones encode as the stock tokenizer does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoProcessor, AutoTokenizer

from engine.errors import ModelNotFound
from engine.models.paligemma import PaliGemma
from engine.models.registry import CHECKPOINTS, load_model
from engine.models.text import TextEncoder
from grammars.dialects.paligemma import PaliGemmaDialect
from grammars.dialects.pointbox import PointboxDialect

TINY = CHECKPOINTS / "tiny"
NASTY = [
    "<loc0001>",
    "<obj>",
    "<eos>",
    "<bos>",
    "<image>",
    "<pad><unk>",
    "<seg000>",
    "<0x0A>",
    "<|endoftext|>",
    "red<loc0001><loc0002>circle<eos>",
    "< loc0001 >",
    "<LOC0001> <Eos>",
    "＜loc0001＞",
    "detect cat ; dog",
    "cat\ndog\r\n\ndetect dog",
    "cat\x00dog",
    "😀👩‍👩‍👧‍👦🇫🇷",
    "دائرة حمراء",
    "עיגול \u202eאדום\u202c",
    "e\u0301\u0327 \u200b\ufeff",
    "\ue000\ue400\ue401\ue402",
    "\U0010ffff",
    "▁red▁circle",
    "红色圆圈",
]

encoder = TextEncoder(TINY)
stock = AutoTokenizer.from_pretrained(TINY)
special = set(encoder.added.values())


def prompts(phrase: str) -> list[str]:
    dialects = (PointboxDialect(), PaliGemmaDialect())
    return [d.prompt(task, phrase) for d in dialects for task in ("detect", "point")]


def test_the_checkpoint_names_its_special_tokens() -> None:
    assert {"<pad>", "<eos>", "<bos>", "<unk>", "<image>", "<obj>", "<loc0000>", "<loc1023>"} <= set(
        encoder.added
    )
    assert stock.convert_tokens_to_ids("<loc0001>") in special


@pytest.mark.parametrize("phrase", NASTY)
def test_no_phrase_becomes_a_special_token(phrase: str) -> None:
    for text in (*prompts(phrase), f" {phrase}"):
        ids = encoder.encode(text)
        assert special.isdisjoint(ids)
        assert stock.decode(ids, skip_special_tokens=False).strip() == text.lower().replace("▁", " ").strip()


@given(st.text(min_size=1, max_size=30))
def test_no_text_becomes_a_special_token(text: str) -> None:
    assert special.isdisjoint(encoder.encode(text))


@given(st.lists(st.sampled_from([*encoder.added, " ", "red", "<", ">", "\n"]), min_size=1, max_size=6))
def test_no_row_of_special_names_becomes_a_special_token(pieces: list[str]) -> None:
    assert special.isdisjoint(encoder.encode("".join(pieces)))


@pytest.mark.parametrize(
    "phrase",
    ["red circle", "shapes", "Red Circle", "every gray hexagon", "the cat's hat, 2nd", "naïve café", "猫"],
)
def test_ordinary_prompts_are_the_stock_tokenizers(phrase: str) -> None:
    for text in prompts(phrase):
        assert encoder.encode(text) == stock(text, add_special_tokens=False)["input_ids"]


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # transformers, not ours
def test_a_prompt_is_what_the_stock_processor_asks() -> None:
    model = load_model("tiny", torch.device("cpu"))
    processor = AutoProcessor.from_pretrained(TINY)
    image = np.random.default_rng(0).integers(0, 256, (120, 200, 3), np.uint8)
    for task, phrase in (("detect", "red circle"), ("point", "Yellow  star")):
        clean = " ".join(phrase.split())
        inputs = processor(images=image, text=f"<image>{task} {clean}", return_tensors="pt")
        ids = inputs["input_ids"][0].tolist()
        image_id = stock.convert_tokens_to_ids("<image>")
        assert ids == [image_id] * model.image_tokens + model.prompt(task, phrase)
        torch.testing.assert_close(model.preprocess(image).data, inputs["pixel_values"][0], rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 201), (201, 1), (3, 3), (1571, 3775)])
def test_any_picture_has_the_same_size_for_the_model(shape: tuple[int, int]) -> None:
    model = load_model("tiny", torch.device("cpu"))
    pixels = model.preprocess(np.full((*shape, 3), 255, np.uint8)).data
    side = 16 * int(model.image_tokens**0.5)
    assert tuple(pixels.shape) == (3, side, side)
    torch.testing.assert_close(pixels, torch.ones_like(pixels))


def test_pieces_are_text_and_never_special() -> None:
    pieces = encoder.pieces()
    assert special.isdisjoint(pieces.values())
    assert {" ", ";", "a", "\n"} <= set(pieces)
    assert not any(p.startswith("<0x") for p in pieces)


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no tokenizer\.json"):
        TextEncoder(tmp_path)


def test_the_default_model_has_no_labels() -> None:
    model = load_model("tiny", torch.device("cpu"))
    assert isinstance(model, PaliGemma)
    assert model.label("red circle") == []
