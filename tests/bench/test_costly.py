"""The measurement of a quiet tenant beside a flood of costly pictures, in small."""

from __future__ import annotations

import pytest

from app.intake.decode import decode
from app.intake.sniff import check
from bench import costly


def test_the_pictures_are_what_they_are_called() -> None:
    pictures = costly.costly_pictures(256)
    assert len(pictures) == 5
    for kind, data in pictures.items():
        header = check(data)
        assert kind.startswith(header.format)
        assert (header.width, header.height) == (256, 256)
        assert decode(data).image.shape == (256, 256, 3)


def test_the_quiet_tenant_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"PNG": costly.costly_pictures(4096)["PNG"]}
    monkeypatch.setattr(costly, "costly_pictures", lambda side: made)
    monkeypatch.setattr(costly, "PICTURES", 20)
    monkeypatch.setattr(costly, "FLOODERS", 3)
    told: list[str] = []
    (flood,) = costly.run(3, 60, told.append)
    assert told == ["the pictures", "a flood of PNG"]
    assert set(flood.quiet) == {"answered"}
    assert flood.flood["answered"] > 0
    assert flood.as_json()["bound_ms"] == 2 * flood.alone_p95_ms + flood.one_ms
    assert flood.memory_mb > 100
