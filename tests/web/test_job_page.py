"""The page of a job that has ended: its pictures, its errors, its files."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.web.conftest import PHONE, opened
from tests.web.jobs import PHRASES, ended, fill, loaded
from tests.web.screen import Screen


def test_one_picture_large(shown: Screen) -> None:
    shown[".sample"].nth(0).locator(".mark").nth(1).hover()
    expect(shown[".sample .mark:hover span"]).to_contain_text("green triangle · score")
    shown[".sample"].nth(0).click()
    expect(shown["#large-title"]).to_have_text("000 #ü.jpg")
    shown["#groups .row"].nth(0).hover()
    expect(shown["#large .mark.lit span"]).to_contain_text("red circle · score")
    before = shown["#marks .mark"].nth(0).bounding_box()
    assert before
    shown["#zoom-in"].click()
    after = shown["#marks .mark"].nth(0).bounding_box()
    assert after
    assert after["width"] == pytest.approx(1.5 * before["width"], rel=0.05)
    shown["#large-after"].click()
    expect(shown["#large-title"]).to_have_text("001 #ü.jpg")
    expect(shown["#groups .row"]).to_have_count(2)
    shown.page.keyboard.press("Escape")
    expect(shown["#large"]).to_be_hidden()


def test_errors_by_the_page(shown: Screen) -> None:
    expect(shown["#errors-range"]).to_have_text("1 to 10 of 12")
    expect(shown["#errors-before"]).to_be_disabled()
    shown["#errors-after"].click()
    expect(shown["#errors-range"]).to_have_text("11 to 12 of 12")
    expect(shown["#errors-rows tr"]).to_have_count(2)
    expect(shown["#errors-after"]).to_be_disabled()
    expect(shown["#errors-before"]).to_be_focused()


def test_a_picture_that_was_deleted_says_so(browser: Browser, url: str, root: Path) -> None:
    fill(root, "deleted", 1)
    body = {"source": {"store": "in", "prefix": "deleted"}, "out": {"store": "out"}, "objects": PHRASES}
    job = httpx.post(f"{url}/v1/jobs", json=body).json()["id"]
    assert ended(url, job)["state"] == "completed"
    (root / "in" / "deleted" / "000 #ü.jpg").unlink()
    for screen in opened(browser, url, {404}, f"jobs#{job}"):
        expect(screen[".sample .mat"]).to_have_text(
            re.compile("^The picture .* is no longer in the source store")
        )
        expect(screen["#errors-rows tr"]).to_have_count(1)
        screen[".sample"].click()
        expect(screen["#groups .row"]).to_have_count(2)
        expect(screen["#note"]).to_contain_text("cannot be shown")


def test_everything_has_a_name(shown: Screen) -> None:
    nameless = """() => [...document.querySelectorAll('input, select, textarea, button, progress, dialog')]
      .filter((it) => !(it.labels?.length || it.textContent.trim() || it.getAttribute('aria-label')
        || it.getAttribute('aria-labelledby')))
      .map((it) => it.outerHTML)"""
    assert shown.page.evaluate(nameless) == []


def test_on_a_phone(browser: Browser, url: str, done: str) -> None:
    for phone in opened(browser, url, page="jobs", **PHONE):
        expect(phone["#ask"]).to_be_hidden()
        phone[f".card[href='#{done}']"].tap()
        expect(phone["#side"]).to_be_hidden()
        loaded(phone, 12)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 375
        for button in phone["button:visible, a.button:visible"].all():
            size = button.bounding_box()
            assert size
            assert size["height"] >= 44
            assert size["x"] + size["width"] <= 375
        phone[".sample"].first.tap()
        phone["#groups .row"].first.tap()
        expect(phone["#large .mark.lit"]).to_have_count(1)
        phone["#large-close"].tap()
        phone["#job .back"].tap()
        expect(phone["#cards"]).to_be_visible()
        expect(phone["#job"]).to_be_hidden()
        phone["#new"].tap()
        expect(phone["#ask"]).to_be_visible()
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 375


def test_a_download_without_a_key(shown: Screen, url: str, done: str) -> None:
    with shown.page.expect_download() as download:
        shown["#get-results"].click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 12
