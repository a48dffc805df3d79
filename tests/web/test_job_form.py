"""A job from the form to its pictures, in front of a real service with folders as stores."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.web.conftest import KEY, opened
from tests.web.jobs import PHRASES, ask, fill, lines, loaded, state
from tests.web.screen import Screen, box_of
from tests.web.test_people import tab_to


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
    """The page's clock goes as the test says: further each time than any look is away."""
    asked: list[str] = []
    jobs.page.on("request", lambda request: asked.append(request.url))
    jobs.page.add_init_script(
        "Object.defineProperty(document, 'hidden', { get: () => window.away === true })"
    )
    jobs.page.clock.install()
    jobs.open()
    for _ in range(2):
        with jobs.page.expect_event("requestfinished", lambda request: request.url.endswith("/v1/jobs")):
            jobs.page.clock.run_for(60_000)
    jobs.page.evaluate("window.away = true")
    many = len(asked)
    for _ in range(3):
        jobs.page.clock.run_for(60_000)
    assert len(asked) == many
    with jobs.page.expect_request("**/v1/jobs"):
        jobs.page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
