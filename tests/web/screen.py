"""What a person does on the page and sees there."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, Response, expect

PATIENCE_MS = 60_000
NEAR = 24
"""Of a channel, 0 to 255: how far the edge of a line may be from its colour."""

_WATCH = """
addEventListener('securitypolicyviolation', (event) => console.error('policy', event.violatedDirective));
"""
expect.set_options(timeout=PATIENCE_MS)


class Screen:
    """A tab with a page of the service. `refused`: statuses that the test means to meet."""

    def __init__(self, page: Page, url: str, refused: set[int], path: str = "") -> None:
        self.page = page
        self.url = url
        self.path = path
        self.refused = refused
        self._complaints: list[str] = []
        self._addresses: list[str] = []
        page.add_init_script(_WATCH)
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self._hear("error", str(error)))
        page.on("request", lambda request: self._addresses.append(request.url))

    def _hear(self, kind: str, text: str) -> None:
        meant = any(f"responded with a status of {status} " in text for status in self.refused)
        if kind in ("error", "warning") and not meant:
            self._complaints.append(text)

    def open(self) -> None:
        """Returns once the last thing that the page asks for at its start is answered, or one was refused."""
        last = f"{self.url}/v1/{'jobs' if self.path.startswith('jobs') else 'models'}"

        def answered(response: Response) -> bool:
            return response.url == last or (response.status >= 400 and "/v1/" in response.url)

        with self.page.expect_response(answered):
            self.page.goto(f"{self.url}/{self.path}")

    def check(self) -> None:
        """Nothing was complained about, and nothing went elsewhere."""
        assert self._complaints == []
        own = (f"{self.url}/", f"blob:{self.url}/")
        assert [address for address in self._addresses if not address.startswith(own)] == []

    def __getitem__(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def choose(self, file: str) -> None:
        """With the file chooser; returns once the picture is shown."""
        self["#file"].set_input_files(file)
        self.shown()

    def shown(self) -> None:
        expect(self["#picture"]).to_be_visible()

    def ask(self, *phrases: str, task: str = "detect") -> None:
        """Returns once the answer is complete."""
        self["#phrases"].fill("\n".join(phrases))
        self[f"[name=task][value={task}]"].check()
        self["#go"].click()
        self.answered()

    def answered(self) -> None:
        expect(self["#status"]).to_contain_text("Found")

    def answer(self) -> dict[str, Any]:
        """As `Copy JSON` gives it."""
        return json.loads(self.copied("json"))

    def copied(self, kind: str) -> str:
        """What is in the clipboard after the button was pressed."""
        self[f"[data-copy={kind}]"].click()
        expect(self["#copied"]).to_have_text("Copied.")
        return self.page.evaluate("navigator.clipboard.readText()")

    def stage(self) -> np.ndarray:
        """What the sheet with the picture looks like: [height, width, 3], 0 to 255."""
        self["h1"].hover()  # away from what would be lit
        return self.seen(self["#sheet"])

    def seen(self, place: Locator) -> np.ndarray:
        """What a place looks like: [height, width, 3], 0 to 255."""
        png = place.screenshot(animations="disabled")
        return np.asarray(Image.open(BytesIO(png)).convert("RGB")).astype(int)

    def colour(self, phrase: int) -> np.ndarray:
        """Of a phrase in the legend: [3], 0 to 255."""
        text = self[".swatch"].nth(phrase).evaluate("it => getComputedStyle(it).backgroundColor")
        return np.array([int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(",")])

    def drawn(self, before: np.ndarray, phrase: int) -> np.ndarray:
        """Where the colour of a phrase is new since `before`: [height, width] of truth values."""
        return self.changed(before, self.stage(), phrase)

    def changed(self, before: np.ndarray, now: np.ndarray, phrase: int) -> np.ndarray:
        """Where `now` has the colour of a phrase and `before` had not: [height, width] of truth values."""
        assert now.shape == before.shape
        near = np.abs(now - self.colour(phrase)).max(axis=2) <= NEAR
        return near & (np.abs(now - before).max(axis=2) > NEAR)


def box_of(drawn: np.ndarray) -> list[float]:
    """x_min, y_min, x_max, y_max of the true values, in fractions."""
    rows, columns = np.nonzero(drawn)
    height, width = drawn.shape
    return [
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    ]
