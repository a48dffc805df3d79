"""A picture and phrases become boxes and points that are seen where the objects are."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.app.running import boxes, iou, truth
from tests.web.screen import Screen, box_of

SCENE = "examples/scene.jpg"
ASSETS = Path("app/web/assets")

_FILE = """([text, name, type]) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const data = new DataTransfer();
  if (bytes.length) data.items.add(new File([bytes], name, { type }));
  return data;
}"""
_TO_CLIPBOARD = """async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const blob = new Blob([bytes], { type: "image/png" });
  await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
}"""


def as_text(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


def drop(screen: Screen, path: str, kind: str) -> None:
    data = screen.page.evaluate_handle(_FILE, [as_text(path), Path(path).name, kind])
    screen.page.dispatch_event("#view", "drop", {"dataTransfer": data})


def test_boxes_are_drawn_where_the_objects_are(screen: Screen) -> None:
    screen.choose(SCENE)
    before = screen.stage()
    screen.ask("red circle", "green triangle")
    answer = screen.answer()
    for index, phrase in enumerate(("red circle", "green triangle")):
        (found,) = boxes(answer, index)
        (true,) = truth("scene.jpg", phrase)
        seen = box_of(screen.drawn(before, index))
        assert iou(seen, true) > 0.5
        assert seen == pytest.approx(found, abs=0.01)
    expect(screen[".group"]).to_have_count(2)
    expect(screen[".group h3"].nth(0)).to_have_text("red circle1")
    expect(screen[".row"].nth(0)).to_contain_text(f"score {answer['objects'][0]['score']:.2f}")
    expect(screen["#timing-parts"]).to_contain_text("queue")
    expect(screen["#timing-parts"]).to_contain_text("prefill")
    expect(screen["#timing-parts"]).to_contain_text("decode")


def test_points_are_drawn_on_the_objects(screen: Screen) -> None:
    screen.choose(SCENE)
    before = screen.stage()
    screen.ask("blue square", task="point")
    (found,) = screen.answer()["points"]
    x_min, y_min, x_max, y_max = box_of(screen.drawn(before, 0))
    assert (x_min + x_max) / 2 == pytest.approx(found["x"], abs=0.01)
    assert (y_min + y_max) / 2 == pytest.approx(found["y"], abs=0.01)
    (true,) = truth("scene.jpg", "blue square")
    assert true[0] < found["x"] < true[2]
    assert true[1] < found["y"] < true[3]
    expect(screen["#status"]).to_have_text("Found 1 point.")


def test_boxes_appear_while_the_answer_still_comes(screen: Screen) -> None:
    """The page gets the beginning of a stream, and its end only once the box was seen."""
    thing = {"x_min": 0.25, "y_min": 0.25, "x_max": 0.5, "y_max": 0.5}
    thing |= {"label": "star", "phrase_index": 0, "score": 0.5}
    screen.page.add_init_script(
        """(() => {
          const real = fetch;
          const text = new TextEncoder();
          window.fetch = (path, options) => {
            if (path !== "v1/detect") return real(path, options);
            const body = new ReadableStream({ start: (stream) => {
              window.say = (words) => stream.enqueue(text.encode(words));
              window.hangUp = () => stream.close();
            } });
            return Promise.resolve(new Response(body, { status: 200 }));
          };
        })()"""
    )
    screen.open()
    screen.choose(SCENE)
    before = screen.stage()
    screen["#phrases"].fill("star")
    screen["#go"].click()
    expect(screen["#status"]).to_have_text("Looking…")
    event = f"event: object\ndata: {json.dumps(thing)}\n\n"
    screen.page.evaluate("say(': keep-alive\\n\\n')")
    for part in (event[:30], event[30:]):
        screen.page.evaluate("words => say(words)", part)
    expect(screen[".row"]).to_have_count(1)
    assert box_of(screen.drawn(before, 0)) == pytest.approx([0.25, 0.25, 0.5, 0.5], abs=0.01)
    expect(screen["#status"]).to_have_text("Looking…")
    screen.page.evaluate("hangUp()")
    expect(screen["#problem"]).to_contain_text("before the answer was complete")


def test_one_click_shows_what_it_does(screen: Screen) -> None:
    screen["#example"].click()
    screen.answered()
    assert len(screen.answer()["objects"]) >= 3
    assert screen[".mark"].count() == len(screen.answer()["objects"])
    assert (ASSETS / "example.jpg").read_bytes() == Path(SCENE).read_bytes()


def test_a_dropped_picture(screen: Screen) -> None:
    drop(screen, "examples/table.jpg", "image/jpeg")
    screen.shown()
    screen.ask("red circle")
    (true,) = truth("table.jpg", "red circle")
    assert iou(boxes(screen.answer())[0], true) > 0.5


def test_a_pasted_picture(screen: Screen) -> None:
    screen.page.evaluate(_TO_CLIPBOARD, as_text("examples/poster.png"))
    screen["#phrases"].focus()
    screen.page.keyboard.press("Control+v")
    screen.shown()
    screen.ask("red star")
    answer = screen.answer()
    assert (answer["image"]["width"], answer["image"]["height"]) == (600, 900)


def test_a_box_and_its_row_light_up_together(screen: Screen) -> None:
    screen.choose(SCENE)
    screen.ask("red circle", "blue square")
    screen[".row"].nth(1).hover()
    expect(screen[".mark.lit"]).to_have_count(1)
    expect(screen[".mark.lit span"]).to_contain_text("blue square · score")
    screen[".mark"].nth(0).hover()
    expect(screen[".mark.lit span"]).to_contain_text("red circle")
    screen[".mark"].nth(0).click()
    screen["h1"].hover()
    expect(screen[".mark.lit span"]).to_contain_text("red circle")
    expect(screen[".row"].nth(0)).to_have_attribute("aria-pressed", "true")


def test_zoom_keeps_the_boxes_on_their_objects(screen: Screen) -> None:
    screen.choose(SCENE)
    screen.ask("red circle")
    box = screen.answer()["objects"][0]
    wide = screen["#sheet"].bounding_box()
    assert wide
    screen["#zoom-in"].click()
    sheet, mark = screen["#sheet"].bounding_box(), screen[".mark"].bounding_box()
    assert sheet
    assert mark
    assert sheet["width"] == pytest.approx(1.5 * wide["width"], rel=0.01)
    assert (mark["x"] - sheet["x"]) / sheet["width"] == pytest.approx(box["x_min"], abs=0.005)
    assert mark["height"] / sheet["height"] == pytest.approx(box["y_max"] - box["y_min"], abs=0.005)
    screen["#zoom-fit"].click()
    assert screen["#sheet"].bounding_box() == wide


def test_a_picture_that_the_browser_cannot_show(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "scan.tiff"
    Image.open(SCENE).save(path)
    screen["#file"].set_input_files(path)
    expect(screen["#note"]).to_contain_text("cannot show this file")
    screen.ask("red circle")
    assert screen[".row"].count() == 1
    expect(screen["#note"]).to_contain_text("empty sheet")
    drawn = screen.stage()
    near = np.abs(drawn - screen.colour(0)).max(axis=2) <= 24
    assert box_of(near) == pytest.approx(boxes(screen.answer())[0], abs=0.01)


def test_the_page_needs_no_key_and_lets_nothing_in(locked_url: str) -> None:
    page = httpx.get(f"{locked_url}/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    again = httpx.get(f"{locked_url}/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path, kind in (("/", "text/html"), ("/assets/main.js", "text/javascript")):
        assert httpx.head(f"{locked_url}{path}").headers["content-type"] == f"{kind}; charset=utf-8"
    for path in ("assets/none.js", "assets/../controllers.py", "assets/%2e%2e/controllers.py"):
        assert httpx.get(f"{locked_url}/{path}").status_code == 404
