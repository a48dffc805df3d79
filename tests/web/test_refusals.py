"""What goes wrong is said in words, beside the field that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.web.conftest import KEY
from tests.web.screen import Screen

SCENE = "examples/scene.jpg"


def test_a_text_file_is_no_picture(screen: Screen, tmp_path: Path) -> None:
    screen.refused = {415}
    path = tmp_path / "notes.txt"
    path.write_text("no picture at all")
    screen["#file"].set_input_files(path)
    screen["#phrases"].fill("red circle")
    screen["#go"].click()
    expect(screen["#image-wrong"]).to_contain_text("not an image that can be read. Send JPEG, PNG")
    expect(screen["#file"]).to_have_attribute("aria-invalid", "true")
    expect(screen["#file"]).to_be_focused()
    screen.choose(SCENE)
    expect(screen["#image-wrong"]).to_be_hidden()


def test_nothing_to_ask_about(screen: Screen) -> None:
    screen["#phrases"].fill("red circle")
    screen["#go"].click()
    expect(screen["#image-wrong"]).to_contain_text("Bring a picture first")
    screen.choose(SCENE)
    screen["#phrases"].fill(" \n ")
    screen["#go"].click()
    expect(screen["#phrases-wrong"]).to_contain_text("Write what to look for")
    expect(screen["#phrases"]).to_have_attribute("aria-invalid", "true")
    screen["#phrases"].press_sequentially("r")
    expect(screen["#phrases-wrong"]).to_be_hidden()
    expect(screen["#phrases"]).not_to_have_attribute("aria-invalid", "true")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_objects", "0", "1"),
        ("min_score", "7", "1"),
        ("phrases", "x" * 257, "at most 256 characters"),
        ("phrases", "x\n" * 33, "Between 1 and 32 phrases can be asked for at once, not 33."),
    ],
)
def test_a_wrong_field(screen: Screen, field: str, value: str, words: str) -> None:
    screen.refused = {422}
    screen.choose(SCENE)
    screen["#phrases"].fill("red circle")
    screen["summary"].click()
    screen[f"#{field}"].fill(value)
    screen["summary"].click()
    screen["#go"].click()
    expect(screen[f"#{field}-wrong"]).to_contain_text(words)
    expect(screen[f"#{field}-wrong"]).to_be_visible()
    expect(screen[f"#{field}"]).to_be_focused()


def test_without_a_key(locked: Screen) -> None:
    expect(locked["#key-why"]).to_have_text("This service wants a key.")
    expect(locked["#key-text"]).to_be_focused()
    locked["#key-text"].fill("pb_wrong")
    locked["#key-use"].click()
    expect(locked["#key-why"]).to_have_text("The service does not accept this key.")
    expect(locked["#problem"]).to_be_empty()  # the entry of the key has said it
    locked["#key-text"].fill(KEY)
    locked["#key-text"].press("Enter")
    expect(locked["#problem"]).to_be_empty()
    expect(locked["#model option"]).to_have_count(2)
    locked.choose(SCENE)
    locked["#model"].select_option("tiny")
    locked.ask("red circle")
    assert locked.answer()["model"] == "tiny"
    assert locked.page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert KEY not in locked.copied("curl") + locked.copied("python")
    locked["#key-forget"].click()
    expect(locked["#key-why"]).to_have_text("This service wants a key.")
    assert locked.page.evaluate("sessionStorage.length") == 0
    locked["#go"].click()
    expect(locked["#problem"]).to_contain_text("Credentials")


def test_a_service_that_cannot_be_reached(screen: Screen) -> None:
    screen.choose(SCENE)
    screen.page.route("**/v1/detect", lambda route: route.fulfill(status=502, body="bad gateway"))
    screen.refused = {502}
    screen["#phrases"].fill("red circle")
    screen["#go"].click()
    expect(screen["#problem"]).to_have_text("The service answered with status 502.")
    expect(screen[".group h3"]).to_contain_text("no answer")
