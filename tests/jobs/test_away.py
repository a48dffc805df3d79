"""An S3 server that cannot be used, or is away for a while, and what `pointbox batch` makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from app.cli import main
from tests.jobs.buckets import PHRASE, fill, records
from tests.jobs.servers import ADMIN, READER, Weed, client_of, free_ports, store_at

IMAGES, AWAY_S, END_S = 1500, 20.0, 900


@pytest.fixture
def own_weed() -> Iterator[Weed]:
    server = Weed()
    server.start()
    yield server
    server.remove()


def command(endpoint: str, bucket: str, out: str) -> list[str]:
    where = [f"s3://{bucket}/in", "--detect", PHRASE, "--out", f"s3://{out}/out", "--job", "all"]
    return ["batch", *where, "--s3-endpoint", endpoint, "--s3-path-style", "--s3-allow-http"]


@pytest.mark.parametrize(
    ("case", "status", "reason"),
    [
        ("secret", "2", "refuses the credentials for s3://"),
        ("source", "2", "there is no bucket 'nowhere'"),
        ("out", "2", "there is no bucket 'nowhere'"),
        ("read-only", "2", "does not let this caller write to s3://"),
        ("away", "1", "does not answer"),
    ],
)
def test_what_is_said(
    weed: Weed,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: str,
    status: str,
    reason: str,
) -> None:
    fill(client_of(weed.endpoint), bucket, "in/", 10, 1)
    keys = {"secret": (ADMIN[0], "wrong"), "read-only": READER}.get(case, ADMIN)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys[1])
    endpoint = f"http://127.0.0.1:{free_ports(1)[0]}" if case == "away" else weed.endpoint
    source, out = ("nowhere" if case == place else bucket for place in ("source", "out"))
    with pytest.raises(SystemExit, match=status):
        main(command(endpoint, source, out))
    assert reason in capsys.readouterr().err


@pytest.mark.long
def test_a_server_that_is_away_in_the_middle(own_weed: Weed) -> None:
    """Source and results lie on it; both are asked again, and nothing is lost."""
    client = client_of(own_weed.endpoint)
    client.create_bucket(Bucket="away")
    filled = fill(client, "away", "in/", IMAGES, 40)
    target = store_at(own_weed.endpoint, "away", "out/all/")
    words = [*command(own_weed.endpoint, "away", "away"), "--shard-size", str(IMAGES // 10)]
    environ = os.environ | {"AWS_ACCESS_KEY_ID": ADMIN[0], "AWS_SECRET_ACCESS_KEY": ADMIN[1]}
    with subprocess.Popen([sys.executable, "-m", "app.cli", *words], env=environ) as job:
        wait_until(lambda: len(list(target.within("results").list())) >= 2, job)
        own_weed.stop()
        time.sleep(AWAY_S)
        assert job.poll() is None
        own_weed.start()
        assert job.wait(END_S) == 0
    filled.check(records(target, "results"), records(target, "errors"))


def wait_until(done: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + END_S
    while not done():
        assert job.poll() is None, "the job ended"
        assert time.monotonic() < deadline
        time.sleep(0.05)
