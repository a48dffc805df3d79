"""Chromium in front of a real service: one worker, an API without keys and one that wants them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.admission.conftest import shared_server
from tests.admission.fakes import Server
from tests.app.running import serving
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
def url(chromium: Path, shared_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a service without keys."""
    log = tmp_path_factory.mktemp("web") / "log.txt"
    with serving(log, POINTBOX_REDIS_URL=shared_server.url, POINTBOX_NAMESPACE="web") as service:
        yield service.url


@pytest.fixture(scope="session")
def locked_url(url: str, shared_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of an API that wants `KEY`, in front of the same worker."""
    folder = tmp_path_factory.mktemp("locked")
    environ = {
        "POINTBOX_REDIS_URL": shared_server.url,
        "POINTBOX_NAMESPACE": "web",
        "POINTBOX_AUTH": "on",
        "POINTBOX_BOOTSTRAP_KEY": KEY,
        "POINTBOX_DATA_DIR": str(folder),
    }
    with serving(folder / "log.txt", "api", **environ) as service:
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
    yield from opened(
        browser,
        url,
        viewport={"width": 375, "height": 667},
        has_touch=True,
        is_mobile=True,
        color_scheme="dark",
    )


def opened(
    browser: Browser, url: str, refused: set[int] | None = None, **context: object
) -> Iterator[Screen]:
    wide = {"viewport": {"width": 1280, "height": 800}, **context}
    with browser.new_context(**wide) as tab:  # type: ignore[arg-type]
        tab.set_default_timeout(PATIENCE_MS)
        tab.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        screen = Screen(tab.new_page(), url, refused or set())
        screen.open()
        yield screen
        screen.check()
