"""Without a mouse, on a phone, and with what was copied."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.app.running import same
from tests.web.conftest import KEY
from tests.web.screen import Screen

SCENE = "examples/scene.jpg"
_FOCUS = """() => {
  const at = document.activeElement;
  return at.id || at.name || at.classList[0] || at.tagName;
}"""


def tab_to(screen: Screen, wanted: str) -> None:
    """Presses Tab until `wanted` has the focus."""
    passed = []
    for _ in range(40):
        screen.page.keyboard.press("Tab")
        passed.append(screen.page.evaluate(_FOCUS))
        if passed[-1] == wanted:
            return
    raise AssertionError(f"Tab never comes to {wanted}: {passed}")


def test_with_the_keyboard_alone(screen: Screen) -> None:
    keyboard = screen.page.keyboard
    tab_to(screen, "example")
    keyboard.press("Enter")
    screen.answered()
    tab_to(screen, "phrases")
    keyboard.press("Control+a")
    keyboard.type("blue square\nred circle")
    tab_to(screen, "task")
    keyboard.press("ArrowDown")
    tab_to(screen, "go")
    keyboard.press("Enter")
    expect(screen["#status"]).to_have_text("Found 2 points.")
    tab_to(screen, "stage")
    keyboard.press("+")
    expect(screen["#sheet"]).to_have_class("zoomed")
    keyboard.press("0")
    expect(screen["#sheet"]).not_to_have_class("zoomed")
    tab_to(screen, "row")
    expect(screen[".mark.lit"]).to_have_count(1)
    expect(screen[".mark.lit span"]).to_contain_text("blue square")
    keyboard.press("Enter")
    expect(screen[".row"].nth(0)).to_have_attribute("aria-pressed", "true")


def test_everything_has_a_name(screen: Screen) -> None:
    screen["#example"].click()
    screen.answered()
    nameless = """() => [...document.querySelectorAll('input, select, textarea, button')]
      .filter((it) => !(it.labels?.length || it.textContent.trim() || it.getAttribute('aria-label')))
      .map((it) => it.outerHTML)"""
    assert screen.page.evaluate(nameless) == []
    spoken = "() => [...document.querySelectorAll('[role=status], [role=alert]')].map((it) => it.id)"
    assert {"status", "problem", "note", "copied"} <= set(screen.page.evaluate(spoken))


def test_on_a_phone(phone: Screen) -> None:
    phone["#example"].tap()
    phone.answered()
    expect(phone["#picture"]).to_be_in_viewport()
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 375
    for button in phone["button:visible"].all():
        size = button.bounding_box()
        assert size
        assert size["height"] >= 44
        assert size["x"] + size["width"] <= 375
    phone[".mark"].nth(0).tap()
    expect(phone[".mark.lit"]).to_have_count(1)
    ground = phone["body"].evaluate("it => getComputedStyle(it).backgroundColor")
    assert ground == "rgb(21, 23, 26)"  # dark, as this phone wants it


@pytest.mark.parametrize("where", ["screen", "locked"])
def test_what_is_copied_gives_the_same_answer(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    screen: Screen = request.getfixturevalue(where)
    name = tmp_path / 'it\'s a "scene", really; yes.jpg'
    name.write_bytes(Path(SCENE).read_bytes())
    if where == "locked":
        screen["#key-text"].fill(KEY)
        screen["#key-use"].click()
    screen.choose(str(name))
    screen["summary"].click()
    screen["#max_objects"].fill("3")
    screen.ask("red circle", '@it\'s "blue" $HOME', "<shape>")
    answer = screen.answer()
    environ = {**os.environ, "POINTBOX_API_KEY": KEY}
    run = {"cwd": tmp_path, "env": environ, "capture_output": True, "text": True, "check": True}
    ended = subprocess.run(["sh", "-c", screen.copied("curl")], **run)
    assert same(json.loads(ended.stdout), answer)
    printed = subprocess.run([sys.executable, "-c", screen.copied("python")], **run).stdout
    assert len(printed.splitlines()) == len(answer["objects"])
    assert printed.startswith(f"red circle {answer['objects'][0]['score']}")


def test_what_is_copied_of_the_example_runs_anywhere(screen: Screen, tmp_path: Path) -> None:
    screen["#example"].click()
    screen.answered()
    answer = screen.answer()
    ended = subprocess.run(
        ["sh", "-c", screen.copied("curl")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert same(json.loads(ended.stdout), answer)


def test_where_the_clipboard_is_closed(screen: Screen) -> None:
    screen["#example"].click()
    screen.answered()
    screen.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    screen["[data-copy=curl]"].click()
    expect(screen["#copied"]).to_contain_text("copy it yourself")
    assert screen.page.evaluate("getSelection().toString()").startswith("curl -s")
