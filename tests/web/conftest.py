"""Chromium in front of a real service: one worker, an API without keys and one that wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.admission.conftest import shared_server
from tests.admission.fakes import Server
from tests.app.running import serving
from tests.jobs.folders import stores
from tests.web.jobs import PHRASES, ended, fill, loaded
from tests.web.screen import PATIENCE_MS, Screen

__all__ = ["shared_server"]

CHROMIUM = Path("/usr/bin/chromium")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
KEY = "a-key-for-the-first-steps"
PHONE: dict[str, Any] = {
    "viewport": {"width": 375, "height": 667},
    "has_touch": True,
    "is_mobile": True,
    "color_scheme": "dark",
}


@pytest.fixture(scope="session")
def chromium() -> Path:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    return CHROMIUM


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    """One for each file: while playwright lives, no test with a loop of its own can run."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the stores `in` and `out`, the database and the logs of all services here."""
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="session")
def environ(root: Path, shared_server: Server) -> dict[str, str]:
    return {
        "POINTBOX_REDIS_URL": shared_server.url,
        "POINTBOX_NAMESPACE": "web",
        "POINTBOX_DATA_DIR": str(root),
        "POINTBOX_STORES": stores(root),
    }


@pytest.fixture(scope="session")
def url(chromium: Path, root: Path, environ: dict[str, str]) -> Iterator[str]:
    """Of a service without keys."""
    with serving(root / "log.txt", **environ) as service:
        yield service.url


@pytest.fixture(scope="session")
def locked_url(url: str, root: Path, environ: dict[str, str]) -> Iterator[str]:
    """Of an API that wants `KEY`, in front of the same worker."""
    locked = {**environ, "POINTBOX_AUTH": "on", "POINTBOX_BOOTSTRAP_KEY": KEY}
    with serving(root / "locked.txt", "api", **locked) as service:
        yield service.url


@pytest.fixture(scope="session")
def bare_url(url: str, root: Path, environ: dict[str, str]) -> Iterator[str]:
    """Of an API without stores, in front of the same worker."""
    with serving(root / "bare.txt", "api", **{**environ, "POINTBOX_STORES": ""}) as service:
        yield service.url


@pytest.fixture
def screen(browser: Browser, url: str) -> Iterator[Screen]:
    """The playground, open. Afterwards: nothing in the console, and no request went elsewhere."""
    yield from opened(browser, url)


@pytest.fixture
def locked(browser: Browser, locked_url: str) -> Iterator[Screen]:
    """The playground of a service that wants keys."""
    yield from opened(browser, locked_url, refused={401})


@pytest.fixture
def phone(browser: Browser, url: str) -> Iterator[Screen]:
    """The playground on a small touch screen in the dark."""
    yield from opened(browser, url, **PHONE)


@pytest.fixture
def jobs(browser: Browser, url: str) -> Iterator[Screen]:
    """The page of jobs."""
    yield from opened(browser, url, page="jobs")


@pytest.fixture(scope="session")
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


def opened(
    browser: Browser, url: str, refused: set[int] | None = None, page: str = "", **context: Any
) -> Iterator[Screen]:
    wide = {"viewport": {"width": 1280, "height": 800}, **context}
    with browser.new_context(**wide) as tab:
        tab.set_default_timeout(PATIENCE_MS)
        tab.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        screen = Screen(tab.new_page(), url, refused or set(), page)
        screen.open()
        yield screen
        screen.check()
