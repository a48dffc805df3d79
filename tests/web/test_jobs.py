"""A job from the form to its pictures, in front of a real service with folders as stores."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.web.conftest import KEY, PHONE, opened
from tests.web.screen import PATIENCE_MS, Screen, box_of
from tests.web.test_people import tab_to

SCENE, TABLE = Path("examples/scene.jpg"), Path("examples/table.jpg")
PHRASES = ["red circle", "green triangle"]


def fill(root: Path, folder: str, count: int) -> None:
    """That many pictures, and one that is none."""
    place = root / "in" / folder
    place.mkdir(parents=True)
    for number in range(count):
        (place / f"{number:03} #ü.jpg").write_bytes((SCENE, TABLE)[number % 2].read_bytes())
    (place / "bad.jpg").write_bytes(SCENE.read_bytes()[:5000])


def ended(url: str, job: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    until = time.monotonic() + 2 * PATIENCE_MS / 1000
    while time.monotonic() < until:
        shown: dict[str, Any] = httpx.get(f"{url}/v1/jobs/{job}", headers=headers).json()
        if shown["state"] not in ("queued", "running"):
            return shown
        time.sleep(0.2)
    raise AssertionError(f"still {shown}")


def lines(url: str, job: str, what: str = "results") -> list[dict[str, Any]]:
    return [json.loads(line) for line in httpx.get(f"{url}/v1/jobs/{job}/{what}").text.splitlines()]


def ask(screen: Screen, folder: str, phrases: list[str], shard_size: int = 3) -> str:
    """Submits the form; the job's id."""
    screen["#source-store"].select_option("in")
    screen["#source-prefix"].fill(folder)
    screen["#phrases"].fill("\n".join(phrases))
    screen["summary"].click()
    screen["#shard_size"].fill(str(shard_size))
    screen["#go"].click()
    expect(screen["#job"]).to_be_visible()
    job: str = screen.page.evaluate("location.hash.slice(1)")
    return job


def state(screen: Screen, wanted: str) -> None:
    expect(screen["#job-state"]).to_have_text(wanted, timeout=2 * PATIENCE_MS)


@pytest.fixture(scope="module")
def done(url: str, root: Path) -> str:
    """A job that has ended, of 12 pictures and 12 that are none."""
    fill(root, "done", 12)
    for number in range(11):
        (root / "in" / "done" / f"{number:03}.txt").write_text("no picture")
    body = {
        "source": {"store": "in", "prefix": "done"},
        "out": {"store": "out", "prefix": "some/where"},
        "objects": PHRASES,
        "shard_size": 6,
    }
    job: str = httpx.post(f"{url}/v1/jobs", json=body).json()["id"]
    assert ended(url, job)["state"] == "completed"
    return job


@pytest.fixture
def shown(browser: Browser, url: str, done: str) -> Iterator[Screen]:
    """The page of that job, its pictures loaded."""
    for screen in opened(browser, url, page=f"jobs#{done}"):
        loaded(screen, 12)
        yield screen


def loaded(screen: Screen, count: int) -> None:
    expect(screen[".sample img[src]"]).to_have_count(count)
    screen.page.wait_for_function(
        "[...document.querySelectorAll('.sample img')].every((it) => it.naturalWidth)"
    )


def test_from_the_form_to_the_pictures(jobs: Screen, url: str, root: Path) -> None:
    fill(root, "whole", 5)
    job = ask(jobs, "whole", PHRASES)
    state(jobs, "completed")
    expect(jobs["#job-counts"]).to_contain_text("6 images · 1 error · ")
    expect(jobs["#facts"]).to_contain_text("in/whole")
    expect(jobs["#cards .card"].first).to_contain_text("red circle, green triangle")
    loaded(jobs, 5)
    for at, line in enumerate(lines(url, job)):
        sample = jobs[".sample"].nth(at)
        expect(sample).to_contain_text(line["key"])
        frame = sample.locator(".frame")
        now = jobs.seen(frame)
        frame.locator(".mark").evaluate_all("all => all.forEach((it) => { it.style.visibility = 'hidden'; })")
        before = jobs.seen(frame)
        for index in range(2):
            (box,) = [box for box in line["objects"] if box["phrase_index"] == index]
            corners = [box[name] for name in ("x_min", "y_min", "x_max", "y_max")]
            assert box_of(jobs.changed(before, now, index)) == pytest.approx(corners, abs=0.02)
    expect(jobs["#errors-rows tr"]).to_have_count(1)
    expect(jobs["#errors-rows tr"]).to_contain_text("bad.jpg")
    expect(jobs["#errors-rows tr"]).to_contain_text("decoding the picture")
    expect(jobs["#errors-rows tr"]).to_contain_text("truncated")


def test_cancelled_and_resumed(jobs: Screen, url: str, root: Path) -> None:
    fill(root, "long", 100)
    job = ask(jobs, "long", ["red circle"], shard_size=5)
    jobs["#cancel"].click()
    state(jobs, "cancelled")
    expect(jobs["#cancel"]).to_be_hidden()
    expect(jobs["#job-title"]).to_be_focused()  # which the button had
    assert httpx.get(f"{url}/v1/jobs/{job}").json()["state"] == "cancelled"
    jobs["#resume"].click()
    expect(jobs["#job-state"]).not_to_have_text("cancelled")
    state(jobs, "completed")
    assert len(lines(url, job)) == 100
    expect(jobs["#said"]).to_contain_text("completed: 101 images")
    loaded(jobs, 12)


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
        expect(screen[".sample .mat"]).to_contain_text("no longer in the source store")
        expect(screen["#errors-rows tr"]).to_have_count(1)
        screen[".sample"].click()
        expect(screen["#groups .row"]).to_have_count(2)
        expect(screen["#note"]).to_contain_text("cannot be shown")


@pytest.mark.parametrize(
    ("fields", "wrong", "words"),
    [
        ({"phrases": " \n"}, "phrases", "Write what to look for"),
        ({"phrases": "x" * 257}, "phrases", "at most 256 characters"),
        ({"source-prefix": "a/../b"}, "source-prefix", "relative to its store"),
        ({"out-prefix": "/etc"}, "out-prefix", "relative to its store"),
        ({"source-store": "out"}, "out-store", "would lie inside the source"),
        ({"max_objects": "0"}, "max_objects", "1"),
        ({"min_score": "7"}, "min_score", "1"),
        ({"shard_size": "0"}, "shard_size", "1"),
    ],
)
def test_a_wrong_field(jobs: Screen, fields: dict[str, str], wrong: str, words: str) -> None:
    jobs.refused = {422}
    jobs["summary"].click()
    for name, value in ({"phrases": "red circle"} | fields).items():
        if name.endswith("store"):
            jobs[f"#{name}"].select_option(value)
        else:
            jobs[f"#{name}"].fill(value)
    jobs["summary"].click()
    jobs["#go"].click()
    expect(jobs[f"#{wrong}-wrong"]).to_contain_text(words)
    expect(jobs[f"#{wrong}"]).to_be_focused()
    expect(jobs[f"#{wrong}"]).to_have_attribute("aria-invalid", "true")
    assert jobs.page.evaluate("location.hash") == ""


def test_a_job_that_fails_says_why(jobs: Screen) -> None:
    ask(jobs, "mistyped", ["red circle"])
    state(jobs, "failed")
    expect(jobs["#job-reason"]).to_have_text("there is no image in in/mistyped")
    expect(jobs["#resume"]).to_be_visible()


def test_with_the_keyboard_alone(jobs: Screen, done: str) -> None:
    keyboard = jobs.page.keyboard
    tab_to(jobs, "new")
    keyboard.press("Enter")
    expect(jobs["#source-store"]).to_be_focused()
    tab_to(jobs, "source-prefix")
    keyboard.type("done")
    tab_to(jobs, "phrases")
    keyboard.type("blue square")
    tab_to(jobs, "task")
    keyboard.press("ArrowDown")
    tab_to(jobs, "go")
    keyboard.press("Enter")
    expect(jobs["#job-title"]).to_be_focused()
    expect(jobs["#job-title"]).to_have_text("blue square")
    state(jobs, "completed")
    loaded(jobs, 12)
    tab_to(jobs, "sample")
    keyboard.press("Enter")
    expect(jobs["#large"]).to_be_visible()
    title = jobs["#large-title"].text_content()
    keyboard.press("ArrowRight")
    expect(jobs["#large-title"]).not_to_have_text(title or "")
    tab_to(jobs, "row")
    expect(jobs["#large .mark.lit"]).to_have_count(1)
    keyboard.press("Escape")
    expect(jobs[".sample"].first).to_be_focused()


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


def test_from_one_page_to_the_other(screen: Screen) -> None:
    screen["nav >> text=Jobs"].click()
    expect(screen["#list-title"]).to_be_visible()
    screen["nav >> text=Playground"].click()
    expect(screen["#file"]).to_be_visible()


def test_with_a_key(browser: Browser, url: str, locked_url: str, root: Path) -> None:
    for screen in opened(browser, locked_url, {401}, "jobs"):
        expect(screen["#key-why"]).to_have_text("This service wants a key.")
        expect(screen["#ask"]).to_be_hidden()
        screen["#key-text"].fill("pb_wrong")
        screen["#key-use"].click()
        expect(screen["#key-why"]).to_have_text("The service does not accept this key.")
        screen["#key-text"].fill(KEY)
        screen["#key-text"].press("Enter")
        expect(screen["#none"]).to_be_visible()  # the jobs of others are not there
        fill(root, "locked", 2)
        job = ask(screen, "locked", PHRASES)
        state(screen, "completed")
        loaded(screen, 2)
        for what, count in (("results", 2), ("errors", 1)):
            with screen.page.expect_download() as download:
                screen[f"#get-{what}"].click()
            assert download.value.suggested_filename == f"{job}-{what}.jsonl"
            assert len(Path(download.value.path()).read_text().splitlines()) == count
        assert httpx.get(f"{url}/v1/jobs/{job}").status_code == 404


def test_a_download_without_a_key(shown: Screen, url: str, done: str) -> None:
    with shown.page.expect_download() as download:
        shown["#get-results"].click()
    assert len(Path(download.value.path()).read_text().splitlines()) == 12


def test_a_service_without_stores_says_what_to_do(browser: Browser, bare_url: str) -> None:
    for screen in opened(browser, bare_url, {404}, "jobs"):
        expect(screen["#off-why"]).to_contain_text("it has no stores (POINTBOX_STORES)")
        expect(screen["#off-how pre"]).to_contain_text("export POINTBOX_STORES=")
        expect(screen["#ask"]).to_be_hidden()
        expect(screen["#side"]).to_be_hidden()


@pytest.mark.parametrize(("left", "words"), [(1, "runs jobs"), (0, "is alive")])
def test_without_a_runner_it_says_so(jobs: Screen, url: str, left: int, words: str) -> None:
    models = httpx.get(f"{url}/v1/models").json()["models"]
    told = {"models": [model | {"job_runners": 0} for model in models[:left]]}
    jobs.page.route("**/v1/models", lambda route: route.fulfill(json=told))
    jobs.open()
    expect(jobs["#runners"]).to_contain_text(f"No worker of this service {words}")
    expect(jobs["#runners"]).to_contain_text("queued")


def test_nothing_is_asked_while_nobody_looks(jobs: Screen) -> None:
    asked: list[str] = []
    jobs.page.on("request", lambda request: asked.append(request.url))
    jobs.page.add_init_script(
        "Object.defineProperty(document, 'hidden', { get: () => window.away === true })"
    )
    jobs.page.reload()
    jobs.page.wait_for_timeout(4000)
    many = len(asked)
    jobs.page.evaluate("window.away = true")
    jobs.page.wait_for_timeout(5000)  # longer than the next look would have been away
    at_rest = len(asked)
    jobs.page.wait_for_timeout(5000)
    assert len(asked) == at_rest >= many
    with jobs.page.expect_request("**/v1/jobs"):
        jobs.page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
