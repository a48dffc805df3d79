"""`pointbox keys` and `pointbox db`, as a person uses them."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest

from app.cli import main


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POINTBOX_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("POINTBOX_DATABASE_URL", raising=False)
    return tmp_path / "data"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_key_from_its_making_to_its_end(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    choices = ("--scopes", "infer,jobs", "--rate", "60", "--concurrency", "4", "--expires", "90d")
    assert run("keys", "create", "--tenant", "acme", "--name", "tests", *choices) == 0
    made = capsys.readouterr()
    key = made.out.strip()
    assert key.startswith("pb_")
    assert key not in made.err
    assert "not shown again" in made.err
    assert run("keys", "list") == 0
    listed = capsys.readouterr().out
    assert key[:11] in listed
    assert "acme" in listed
    assert key not in listed
    assert run("keys", "list", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["key"], row["tenant"], row["scopes"]) == (key[:11], "acme", ["infer", "jobs"])
    assert (row["rate_per_minute"], row["concurrency"], row["state"]) == (60, 4, "works")
    assert run("keys", "revoke", key[:11]) == 0
    assert run("keys", "list", "--json") == 0
    listed = capsys.readouterr().out
    assert "is revoked." in listed
    assert '"state": "revoked"' in listed
    assert run("keys", "revoke", key) == 0  # nothing is wrong, and nothing changes
    assert f"Key {key[:11]} of tenant acme was revoked already, on 20" in capsys.readouterr().out
    assert not any(key.encode() in file.read_bytes() for file in data.iterdir())


def test_nothing_yet(capsys: pytest.CaptureFixture[str]) -> None:
    for command, says in (("list", "no keys"), ("usage", "Nothing")):
        assert run("keys", command) == 0
        assert says in capsys.readouterr().out
    assert run("keys", "usage", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run("db", "upgrade") == 0
    assert re.search(r"version \d{4}\.$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("keys create", "--tenant"),
        ("keys create --tenant anonymous", "another name"),
        ("keys create --tenant a --expires soon", "90d"),
        ("keys create --tenant a --expires 99999999999d", "--expires must be at most 36500d"),
        ("keys create --tenant a --expires 36501d", "--expires must be at most 36500d"),
        ("keys usage --days 0", "--days must be between 1 and 36500, not 0"),
        ("keys usage --days 99999999", "--days must be between 1 and 36500, not 99999999"),
        ("keys create --tenant a --name a\nb", "a name is one line"),
        ("keys create --tenant a --scopes all", "there are infer"),
        ("keys revoke pb_none", "keys list"),
        ("serve --auth maybe", "--auth"),
    ],
)
def test_mistakes_are_one_line(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*line.split(" ")) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_a_database_that_is_away(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTBOX_DATABASE_URL", "postgresql://someone:secret@127.0.0.1:1/none")
    assert run("keys", "list") == 1  # nothing that the caller said is wrong
    error = capsys.readouterr().err
    assert error.startswith("pointbox: the database cannot be used: Connect call failed ('127.0.0.1', 1)")
    assert "secret" not in error


def test_a_file_that_is_no_database(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    data.mkdir()
    (data / "pointbox.db").write_bytes(b"a letter to the editor " * 100)
    assert run("keys", "list") == 1
    assert capsys.readouterr().err == "pointbox: the database cannot be used: file is not a database\n"


def test_tables_of_a_later_version(
    capsys: pytest.CaptureFixture[str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("db", "upgrade") == 0
    with contextlib.closing(sqlite3.connect(data / "pointbox.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()
    monkeypatch.setenv("POINTBOX_REDIS_URL", "redis://127.0.0.1:1")
    for line in ("db upgrade", "keys list", "api --auth on"):
        capsys.readouterr()
        assert run(*line.split()) == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert said.startswith("pointbox: the database is at version 9999, which this Pointbox does not know")
