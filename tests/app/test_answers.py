"""Right answers from the running service, through every door, alone and in a crowd."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import moondream
import pytest
from PIL import Image

from tests.app.asking import PHRASES, detect, detect_all
from tests.app.running import Service, boxes, iou, same, truth
from tests.intake.pictures import encode


def test_a_box_on_the_red_circle(client: httpx.Client, scene: bytes) -> None:
    answer = detect(client, scene)
    (box,) = boxes(answer)
    assert iou(box, truth("scene.jpg", "red circle")[0]) > 0.7
    assert answer["model"] == "tiny"
    assert answer["image"] == {"width": 800, "height": 600, "id": None}
    assert answer["phrases"] == [{"object": "red circle", "finish_reason": "stop", "truncated": False}]
    assert 0.5 < answer["objects"][0]["score"] <= 1
    metrics = answer["metrics"]
    assert 0 < metrics["ttft_ms"] <= metrics["total_ms"]
    assert metrics["output_tokens"] >= 5


def test_a_point_on_the_red_circle(client: httpx.Client, scene: bytes) -> None:
    response = client.post("/v1/point", files={"image": scene}, data={"object": "red circle"})
    (point,) = response.json()["points"]
    (box,) = truth("scene.jpg", "red circle")
    assert box[0] < point["x"] < box[2]
    assert box[1] < point["y"] < box[3]


def test_moondreams_own_client(service: Service) -> None:
    model = moondream.vl(endpoint=f"{service.url}/v1")
    image = Image.open("examples/scene.jpg")
    (expected,) = truth("scene.jpg", "red circle")
    (found,) = model.detect(image, "red circle")["objects"]
    assert iou([found[k] for k in ("x_min", "y_min", "x_max", "y_max")], expected) > 0.7
    (point,) = model.point(image, "red circle", settings={"max_objects": 5})["points"]
    assert expected[0] < point["x"] < expected[2]
    assert expected[1] < point["y"] < expected[3]


def test_every_door_gives_the_same_answer(client: httpx.Client, scene: bytes) -> None:
    encoded = base64.b64encode(scene).decode()
    uri = f"data:image/jpeg;base64,{encoded}"
    raw = {"content-type": "image/jpeg"}
    answers = [
        client.post(f"{version}/detect", **sent).json()
        for version in ("/v1", "")
        for sent in (
            {"json": {"image": encoded, "object": "red circle"}},
            {"json": {"image_url": uri, "object": "red circle", "reasoning": False, "settings": {}}},
            {"files": {"image": scene}, "data": {"object": "red circle"}},
            {"content": scene, "headers": raw, "params": {"object": "red circle"}},
        )
    ]
    assert all(same(answer, answers[0]) for answer in answers[1:])
    assert len({answer["request_id"] for answer in answers}) == len(answers)


def test_each_object_carries_the_phrase_that_asked_for_it(client: httpx.Client, scene: bytes) -> None:
    answer = detect_all(client, scene, [*PHRASES, "  red   circle "])
    order = [thing["phrase_index"] for thing in answer["objects"]]
    assert order == sorted(order)
    assert [phrase["object"] for phrase in answer["phrases"]] == [*PHRASES, "  red   circle "]
    for index, phrase in enumerate(PHRASES):
        found = [thing for thing in answer["objects"] if thing["phrase_index"] == index]
        assert all(thing["label"] == phrase for thing in found)
        assert any(iou(box, truth("scene.jpg", phrase)[0]) > 0.5 for box in boxes(answer, index))


def test_pixels(client: httpx.Client, scene: bytes) -> None:
    plain, pixels = detect(client, scene), detect(client, scene, units="pixels")
    for corner, side in (("x_min", 800), ("y_min", 600), ("x_max", 800), ("y_max", 600)):
        expected = plain["objects"][0][corner] * side
        assert pixels["objects"][0][corner] == pytest.approx(expected, abs=1e-2)


def test_a_region_holds_every_answer(client: httpx.Client, scene: bytes) -> None:
    region = [0.25, 0.15, 0.55, 0.55]
    answer = detect(client, scene, object="shape", region=region)
    assert answer["objects"]
    for box in boxes(answer):
        assert region[0] <= box[0] <= box[2] <= region[2]
        assert region[1] <= box[1] <= box[3] <= region[3]
    in_pixels = detect(client, scene, object="shape", region=[200, 90, 440, 330], units="pixels")
    assert in_pixels["image"]["width"] == 800
    for box in boxes(in_pixels):
        assert 200 <= box[0] <= box[2] <= 440
        assert 90 <= box[1] <= box[3] <= 330


def test_a_list_cut_at_max_objects(client: httpx.Client, scene: bytes) -> None:
    for cut in ({"max_objects": 2}, {"settings": {"max_objects": 2}}):
        answer = detect(client, scene, object="shape", **cut)
        assert len(answer["objects"]) == 2
        assert (answer["finish_reason"], answer["truncated"]) == ("max_objects", True)


def test_a_temperature_draws_other_tokens(client: httpx.Client, scene: bytes) -> None:
    plain = boxes(detect(client, scene, object="shape"))
    for cold in ({"temperature": 0, "top_p": 0.3}, {"settings": {"temperature": 0, "top_p": 1}}):
        assert boxes(detect(client, scene, object="shape", **cold)) == plain
    for warm in ({"temperature": 2}, {"settings": {"temperature": 2.0}}):
        drawn = [boxes(detect(client, scene, object="shape", max_objects=20, **warm)) for _ in range(4)]
        assert len(set(map(repr, drawn))) > 1, "every request draws anew"
    narrow = boxes(detect(client, scene, object="shape", temperature=8, top_p=1e-6))
    assert narrow == plain, "top_p leaves one token"


def test_spatial_refs_are_refused_by_a_model_that_takes_none(client: httpx.Client, scene: bytes) -> None:
    image = base64.b64encode(scene).decode()
    asked = {"image": image, "object": "red circle"}
    answer = client.post("/v1/point", json={**asked, "spatial_refs": [[0.5, 0.5]]})
    assert (answer.status_code, answer.json()["field"]) == (422, "spatial_refs")
    assert "tiny takes no spatial_refs" in answer.json()["detail"]
    form = {"object": "red circle", "spatial_refs": "0.5,0.5;0.1,0.2,0.3,0.4"}
    answer = client.post("/v1/point", files={"image": scene}, data=form)
    assert "tiny takes no spatial_refs" in answer.json()["detail"]
    for places in (None, []):
        assert client.post("/v1/point", json={**asked, "spatial_refs": places}).status_code == 200


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": 11}, "temperature"),
        ({"settings": {"top_p": 0}}, "settings.top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"spatial_refs": [[0.1, 0.2, 0.3]]}, "spatial_refs"),
        ({"spatial_refs": [[0.5, 1.5]]}, "spatial_refs"),
        ({"spatial_refs": [[0.5, 0.5, 0.1, 0.9]]}, "spatial_refs"),
        ({"spatial_refs": [[10, 700]], "units": "pixels"}, "spatial_refs"),
    ],
)
def test_what_no_model_could_be_given(
    client: httpx.Client, scene: bytes, sent: dict[str, Any], field: str
) -> None:
    asked = {"image": base64.b64encode(scene).decode(), "object": "red circle", **sent}
    answer = client.post("/v1/point", json=asked)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_min_score(client: httpx.Client, scene: bytes) -> None:
    everything = detect(client, scene, object="shape")["objects"]
    scores = sorted(thing["score"] for thing in everything)
    limit = scores[len(scores) // 2]
    kept = detect(client, scene, object="shape", min_score=limit - 1e-4)["objects"]
    assert len(kept) == sum(score >= limit - 1e-4 for score in scores)


def test_a_request_id_that_is_used_twice_names_two_requests(client: httpx.Client, scene: bytes) -> None:
    headers = {"x-request-id": "the-same", "content-type": "image/jpeg"}
    for phrase in ("red circle", "blue square"):
        answer = client.post("/v1/detect", params={"object": phrase}, content=scene, headers=headers).json()
        assert answer["request_id"] == "the-same"
        assert answer["phrases"][0]["object"] == phrase


def test_many_phrases_take_one_prefill(client: httpx.Client) -> None:
    picture = encode(Image.open("examples/scene.jpg").resize((640, 481)), "PNG")  # nobody has sent it yet
    metrics = detect_all(client, picture, PHRASES)["metrics"]
    per_image = metrics["cached_tokens"] / (len(PHRASES) - 1)
    assert per_image > 0
    assert metrics["input_tokens"] > len(PHRASES) * per_image
    again = detect_all(client, picture, PHRASES)["metrics"]
    assert again["cached_tokens"] == len(PHRASES) * per_image


def test_an_uploaded_image_is_prefilled(client: httpx.Client, scene: bytes) -> None:
    picture = encode(Image.open("examples/scene.jpg").resize((640, 482)), "PNG")
    kept = client.post("/v1/images", content=picture, headers={"content-type": "image/png"})
    assert kept.status_code == 201, kept.text
    image_id = kept.json()["image_id"]
    answer = client.post("/v1/detect", json={"image_id": image_id, "object": "red circle"}).json()
    assert answer["image"] == {"width": 640, "height": 482, "id": image_id}
    assert answer["metrics"]["cached_tokens"] > 0
    assert same(answer | {"image": None}, detect(client, picture) | {"image": None})
    assert client.delete(f"/v1/images/{image_id}").status_code == 204
    half = client.post("/v1/images", content=scene[:9000], headers={"content-type": "image/jpeg"})
    assert (half.status_code, half.json()["type"]) == (422, "/problems/invalid-image")


def test_batch_work_is_answered_too_and_ids_come_back(client: httpx.Client, scene: bytes) -> None:
    answer = detect(client, scene, priority="batch", id="my own")
    assert answer["id"] == "my own"
    assert answer["objects"] == detect(client, scene)["objects"]
    assert "id" not in detect(client, scene)


def test_an_unknown_adapter(client: httpx.Client, scene: bytes) -> None:
    encoded = base64.b64encode(scene).decode()
    sent = {"image": encoded, "object": "red circle", "adapter": "mine"}
    response = client.post("/v1/detect", json=sent)
    assert (response.status_code, response.json()["type"]) == (404, "/problems/unknown-model")
    assert response.json()["field"] == "adapter"
    assert "'mine'" in response.json()["detail"]


def test_server_sent_events(client: httpx.Client, scene: bytes) -> None:
    sent = {"image": base64.b64encode(scene).decode(), "objects": PHRASES}
    expected = client.post("/v1/detect", json=sent).json()
    with client.stream("POST", "/v1/detect", json=sent | {"stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [
            (lines[0].removeprefix("event: "), json.loads(lines[1].removeprefix("data: ")))
            for block in response.read().decode().split("\n\n")
            if (lines := block.splitlines()) and not block.startswith(":")
        ]
    *objects, (last, done) = events
    assert last == "done"
    assert same(done, expected)
    assert done["request_id"] == response.headers["x-request-id"]
    assert {name for name, _ in objects} == {"object"}
    key = lambda thing: (thing["phrase_index"], thing["x_min"], thing["y_min"])  # noqa: E731
    assert sorted((thing for _, thing in objects), key=key) == sorted(done["objects"], key=key)


def test_a_deadline_that_is_over_at_once(client: httpx.Client, scene: bytes) -> None:
    response = client.post(
        "/v1/detect", files={"image": scene}, data={"object": "red circle", "timeout_s": 0.001}
    )
    assert response.status_code == 504
    assert response.json()["type"] == "/problems/deadline-exceeded"
    with client.stream(
        "POST", "/v1/detect", files={"image": scene}, data={"object": "x", "timeout_s": 0.001, "stream": True}
    ) as stream:
        text = stream.read().decode()
    assert text.startswith("event: error\n")
    assert "/problems/deadline-exceeded" in text


async def test_a_hundred_at_once_each_get_the_answer_they_get_alone(
    service: Service, client: httpx.Client
) -> None:
    pictures = [Path("examples", name).read_bytes() for name in ("scene.jpg", "table.jpg", "poster.png")]
    asked = [
        (index % 3, ("red circle", "shape", "blue square", "star")[index // 3 % 4]) for index in range(100)
    ]
    alone = {(n, phrase): detect(client, pictures[n], object=phrase) for n, phrase in set(asked)}
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=service.url, timeout=300, limits=limits) as crowd:
        send = partial(crowd.post, "/detect", headers={"content-type": "image/*"})
        sent = (send(content=pictures[n], params={"object": phrase, "timeout_s": 290}) for n, phrase in asked)
        responses = await asyncio.gather(*sent)
    assert [response.status_code for response in responses] == [200] * 100
    wrong = [
        key for key, response in zip(asked, responses, strict=True) if not same(response.json(), alone[key])
    ]
    assert not wrong
    assert len({response.json()["request_id"] for response in responses}) == 100
    (model,) = client.get("/v1/models").json()["models"]
    assert model["load"] == 0 or idle_soon(client)


def idle_soon(client: httpx.Client, within_s: float = 10) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if client.get("/v1/models").json()["models"][0]["load"] == 0:
            return True
        time.sleep(0.1)
    return False
