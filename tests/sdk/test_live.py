"""The client and a real service: what comes back is right, through every door."""

from __future__ import annotations

import inspect
from io import BytesIO
from pathlib import Path
from typing import Any

import moondream
import numpy as np
import pytest
from moondream.cloud_vl import CloudVL
from PIL import Image, ImageDraw

import pointbox
import pointbox.compat.moondream as md
from pointbox import AsyncClient, Client, Detection
from tests.app.running import CORNERS, iou, truth
from tests.intake.pictures import encode
from tests.sdk.conftest import Live

SCENE = "examples/scene.jpg"
PHRASES = ["red circle", "yellow star", "blue square", "green triangle"]


def corners(box: Detection) -> list[float]:
    return [getattr(box, corner) for corner in CORNERS]


def turned() -> Image.Image:
    """The scene lying on its side, with the EXIF orientation that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(SCENE) as scene:
        lying = scene.transpose(Image.Transpose.ROTATE_90)
    return Image.open(BytesIO(encode(lying, "PNG", exif=exif)))


def sources() -> dict[str, Any]:
    scene = Image.open(SCENE)
    return {
        "path": Path(SCENE),
        "text": SCENE,
        "bytes": Path(SCENE).read_bytes(),
        "image": scene,
        "array": np.asarray(scene),
        "transparent": scene.convert("RGBA"),
        "turned": turned(),
        "data uri": md.VL(Client()).encode_image(scene).image_url,
    }


@pytest.mark.parametrize("name", sources())
def test_every_kind_of_picture_gives_the_true_box(client: Client, name: str) -> None:
    result = client.detect(sources()[name], "red circle")
    (box,) = result
    assert iou(corners(box), truth("scene.jpg", "red circle")[0]) > 0.7
    assert (result.image.width, result.image.height) == (800, 600)
    assert box.pixels.x_max == round(box.x_max * 800, 2)


def test_many_phrases(client: Client) -> None:
    result = client.detect(SCENE, PHRASES)
    assert [phrase.object for phrase in result.phrases] == PHRASES
    for index, phrase in enumerate(PHRASES):
        boxes = [box for box in result if box.phrase_index == index]
        assert all(box.label == phrase for box in boxes)
        assert max(iou(corners(box), truth("scene.jpg", phrase)[0]) for box in boxes) > 0.5
    assert result.metrics.total_ms > 0
    drawn = result.draw()
    assert drawn.size == (800, 600)
    assert drawn.tobytes() != Image.open(SCENE).convert("RGB").tobytes()


def test_a_point(client: Client) -> None:
    (point,) = client.point(SCENE, "red circle")
    (box,) = truth("scene.jpg", "red circle")
    assert box[0] < point.x < box[2]
    assert box[1] < point.y < box[3]


def test_a_red_array_is_red_to_the_model(client: Client) -> None:
    """Red and blue are not swapped on the way."""
    picture = Image.new("RGB", (256, 256), "white")
    ImageDraw.Draw(picture).ellipse((60, 60, 190, 190), fill=(255, 0, 0))
    red = np.asarray(picture)
    for array, named, other in ((red, "red", "blue"), (red[..., ::-1], "blue", "red")):
        (box,) = client.detect(array, f"{named} circle", max_objects=1)
        wrong = client.detect(array, f"{other} circle", max_objects=1)
        assert 0.2 < box.x_min < 0.5 < box.x_max < 0.8
        assert not wrong or wrong[0].score < box.score


def test_options(client: Client) -> None:
    everything = client.detect(SCENE, "shape")
    assert len(everything) > 2
    few = client.detect(SCENE, "shape", max_objects=2)
    assert (len(few), few.truncated, few.finish_reason) == (2, True, "max_objects")
    region = (0.25, 0.15, 0.55, 0.55)
    for box in client.detect(SCENE, "shape", region=region):
        assert region[0] <= box.x_min
        assert box.y_max <= region[3]
    assert all(box.score >= 0.5 for box in client.detect(SCENE, "shape", min_score=0.5, dedupe=False))
    assert client.detect(SCENE, "red circle", model="tiny", timeout_s=60)


def test_a_stream(client: Client) -> None:
    stream = client.detect(SCENE, PHRASES, stream=True)
    streamed = list(stream)
    result = stream.result()
    key = lambda box: (box.phrase_index, box.x_min, box.y_min)  # noqa: E731
    assert sorted(streamed, key=key) == sorted(result, key=key)
    assert result.objects == client.detect(SCENE, PHRASES).objects


async def test_the_client_for_asyncio(live: Live) -> None:
    async with AsyncClient(live.url, live.key) as client:
        result = await client.detect(SCENE, PHRASES)
        stream = await client.point(SCENE, PHRASES, stream=True)
        points = [point async for point in stream]
        assert len(points) == len(await stream.result())
        outcomes = [outcome async for outcome in client.map([SCENE] * 5, PHRASES, concurrency=3)]
        assert [model.name for model in await client.models()] == ["tiny"]
    assert [outcome.unwrap().objects for outcome in outcomes] == [result.objects] * 5


def test_models(client: Client) -> None:
    (model,) = client.models()
    assert (model.name, model.tasks) == ("tiny", ["detect", "point"])


def test_a_folder_of_pictures(client: Client) -> None:
    names = ["scene.jpg", "table.jpg", "truth.json", "poster.png"]
    outcomes = list(client.map([Path("examples", name) for name in names], "red circle", concurrency=4))
    assert [outcome.error is None for outcome in outcomes] == [True, True, False, True]
    assert isinstance(outcomes[2].error, pointbox.UnsupportedMedia)
    (box,) = outcomes[0].unwrap()
    assert iou(corners(box), truth("scene.jpg", "red circle")[0]) > 0.7


REFUSED = {
    "blank": (SCENE, "  ", pointbox.InvalidPhrase),
    "empty": (b"", "cat", pointbox.InvalidImage),
    "cut off": (Path(SCENE).read_bytes()[:20_000], "cat", pointbox.InvalidImage),
    "text": (b"This is a text and not a picture.", "cat", pointbox.UnsupportedMedia),
    "too large": (encode(Image.new("1", (32_001, 8)), "PNG"), "cat", pointbox.ImageTooLarge),
    "remote": ("https://example.org/a.png", "cat", pointbox.InvalidRequest),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(client: Client, name: str) -> None:
    image, phrase, kind = REFUSED[name]
    with pytest.raises(kind) as caught:
        client.detect(image, phrase)
    assert caught.value.request_id in str(caught.value)
    assert caught.value.problem.detail


def test_wrong_options(client: Client) -> None:
    for name, value in {"max_objects": 0, "min_score": 2.0, "region": [0.5, 0, 0.1, 1]}.items():
        with pytest.raises(pointbox.InvalidRequest) as caught:
            client.detect(SCENE, "cat", **{name: value})  # type: ignore[call-overload]
        assert caught.value.field == name
    with pytest.raises(pointbox.UnknownModel):
        client.detect(SCENE, "cat", model="nobody")


def test_the_stand_in_for_moondream(live: Live) -> None:
    ours, theirs = (vl(live.key, f"{live.url}/v1") for vl in (md.vl, moondream.vl))
    image = Image.open(SCENE)
    for ask in ("detect", "point"):
        found = getattr(ours, ask)(image, "red circle", settings={"max_objects": 5})
        expected = getattr(theirs, ask)(image, "red circle", settings={"max_objects": 5})
        assert found.keys() == expected.keys()
        ((one,), (other,)) = *found.values(), *expected.values()
        assert one == {name: other[name] for name in one}
    assert len(ours.detect(image, "shape", {"max_objects": 1})["objects"]) == 1
    encoded = ours.encode_image(image)
    assert ours.encode_image(encoded) is encoded
    assert ours.detect(encoded, "red circle") == ours.detect(image, "red circle")
    lying = turned()
    as_it_lies = theirs.detect(lying, "shape")["objects"]
    assert [list(box.values()) for box in ours.detect(lying, "shape")["objects"]] == [
        [box[corner] for corner in CORNERS] for box in as_it_lies
    ]
    for name in ("caption", "query", "chat", "segment"):
        with pytest.raises(NotImplementedError, match="detects and points"):
            getattr(ours, name)(image)
    with pytest.raises(ValueError, match="local"):
        md.vl(local=True)


@pytest.mark.parametrize("name", ["encode_image", "detect", "point"])
def test_the_stand_in_takes_the_same_arguments(name: str) -> None:
    ours = inspect.signature(getattr(md.VL, name)).parameters
    assert list(ours) == list(inspect.signature(getattr(CloudVL, name)).parameters)
