"""Jobs on the page and behind it: pictures for them, the form, and what came of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import expect

from tests.web.screen import PATIENCE_MS, Screen

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


def loaded(screen: Screen, count: int) -> None:
    expect(screen[".sample img[src]"]).to_have_count(count)
    screen.page.wait_for_function(
        "[...document.querySelectorAll('.sample img')].every((it) => it.naturalWidth)"
    )
