"""`pointbox batch` over a bucket: every key once, and the answers that the engine gives alone."""

from __future__ import annotations

import json

import pytest

from app.cli import main
from app.intake.decode import decode
from engine.engine import Engine
from tests.app.running import CORNERS
from tests.jobs.buckets import FOLDED, NAMES, PHRASE, Filled, fill, records
from tests.jobs.servers import ADMIN, Weed, client_of, store_at


@pytest.mark.parametrize(("images", "corrupt"), [(60, 8), pytest.param(1500, 40, marks=pytest.mark.long)])
def test_every_key_of_a_bucket(
    weed: Weed, bucket: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, images: int, corrupt: int
) -> None:
    filled = fill(client_of(weed.endpoint), bucket, "in/", images, corrupt)
    check_batch(weed.endpoint, bucket, filled, engine, monkeypatch)


def test_keys_that_some_servers_fold(moto: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    client_of(moto).create_bucket(Bucket="folded")
    filled = fill(client_of(moto), "folded", "in/", 60, 8, NAMES + FOLDED)
    check_batch(moto, "folded", filled, engine, monkeypatch)


def check_batch(
    endpoint: str, bucket: str, filled: Filled, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ADMIN[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ADMIN[1])
    reached = ["--s3-endpoint", endpoint, "--s3-path-style", "--s3-allow-http"]
    where = [f"s3://{bucket}/in", "--detect", PHRASE, "--out", f"s3://{bucket}/out", "--job", "all"]
    with pytest.raises(SystemExit, match="0"):
        main(["batch", *where, *reached])
    target = store_at(endpoint, bucket, "out/all/")
    results = {line["key"]: line for line in records(target, "results")}
    filled.check(records(target, "results"), records(target, "errors"))
    summary = json.loads(target.get("summary.json")[0])
    assert (summary["images"], summary["errors"]) == (len(filled.good) + len(filled.bad), len(filled.bad))
    assert target.get("errors.jsonl")[0] == b"".join(
        target.get(f"errors/{entry.key}")[0] for entry in target.within("errors").list()
    )
    for key, data in filled.sample().items():
        alone = engine.detect(decode(data).image, PHRASE)
        assert [[box[corner] for corner in CORNERS] for box in results[key]["objects"]] == [
            pytest.approx([getattr(box, corner) for corner in CORNERS], abs=1e-3) for box in alone.objects
        ], key
