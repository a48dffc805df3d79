"""Damaged files sent to the running service: an answer or a problem, never a fault, and nobody falls over."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest

from tests.app.running import Service
from tests.intake.mutations import mutated

RAW = {"content-type": "image/*"}


def statuses(client: httpx.Client, seed: int, count: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for name, data in mutated(seed, count):
        response = client.post("/v1/detect", params={"object": "shape"}, content=data, headers=RAW)
        assert response.status_code in (200, 413, 415, 422), (name, response.text)
        if response.status_code != 200:
            assert response.json()["field"] == "image", name
        found[response.status_code] += 1
    return found


def test_a_few(client: httpx.Client, service: Service) -> None:
    found = statuses(client, 7, 60)
    assert set(found) >= {200, 415, 422}
    assert service.log.read_text().count("worker is ready") == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 203))
def test_many(client: httpx.Client, service: Service, seed: int) -> None:
    found = statuses(client, seed, 500)
    assert set(found) >= {200, 415, 422}
    assert service.log.read_text().count("worker is ready") == 1
