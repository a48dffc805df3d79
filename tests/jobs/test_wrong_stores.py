"""POINTBOX_STORES that cannot be used: one line that says which store and which field, and status 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.jobs.named import Stores
from app.settings import SettingsError

WRONG = [
    ("{", r"must be JSON, stores by name: .* it ends too early"),
    ("{'a': 1}", r"must be JSON, stores by name"),
    ('{"a": 1}', r"the store 'a': The body must be an object, not a number"),
    ('{"a": {"url": "x"}, "b": {}}', r"the store 'b': The field 'url' is missing"),
    ('{"b": {"url": "x", "secret": "y"}}', r"the store 'b': The field 'secret' is not known"),
    ('{"b": {"url": "x", "write": "yes"}}', r"the store 'b': `write` must be true or false, not text"),
    ('{"b": {"url": "x"}, "b": {"url": "y"}}', r"The field 'b' is given twice"),
    ('{"a": {"url": "gs://bucket"}}', r"'a': gs://bucket is neither a folder nor s3://bucket/prefix"),
    ('{"a": {"url": "s3://"}}', r"'a': s3:// is neither a folder nor"),
    ('{"a": {"url": "s3://b", "endpoint": "localhost:1"}}', r"'a': s3://b/ cannot be reached like this"),
    ('{"a": {"url": "s3://b", "endpoint": "http://127.0.0.1:1"}}', r"'a': .*\"allow_http\": true"),
    (
        '{"a": {"url": "s3://b", "access_key_env": "NOT_SET"}}',
        r"'a': the environment variable NOT_SET is not",
    ),
    ("no/such/file", r"no/such/file cannot be read: No such file or directory"),
]


@pytest.mark.parametrize(("stores", "says"), WRONG)
def test_the_store_and_the_field_are_named(stores: str, says: str) -> None:
    with pytest.raises(SettingsError, match=rf"^POINTBOX_STORES.*{says}") as refused:
        Stores.read(stores)
    assert "\n" not in str(refused.value)


def test_a_file_that_holds_no_json(tmp_path: Path) -> None:
    (tmp_path / "stores.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"^POINTBOX_STORES must be JSON"):
        Stores.read(str(tmp_path / "stores.json"))


def test_every_command_says_so_in_one_line(tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "POINTBOX_STORES": '{"mine": {"url": "/x", "secret": "y"}}',
        "POINTBOX_REDIS_URL": "redis://127.0.0.1:1",
        "POINTBOX_DATA_DIR": str(tmp_path),
        "POINTBOX_PORT": "0",
    }
    commands = [[sys.executable, "-m", "app.cli", part] for part in ("serve", "api", "worker")]
    running = [subprocess.Popen(c, env=environ, stderr=subprocess.PIPE, text=True) for c in commands]
    try:
        for process in running:
            (line,) = process.communicate(timeout=120)[1].splitlines()
            assert process.returncode == 2, process.args
            assert line == "pointbox: POINTBOX_STORES: the store 'mine': The field 'secret' is not known."
    finally:
        for process in running:
            process.kill()
