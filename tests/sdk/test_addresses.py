"""Strings that say where a picture is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointbox.pictures import Upload, prepare, upright
from tests.intake.pictures import encode, plain


@pytest.mark.parametrize("name", ["a.png", "a b#c?ü%.png"])
def test_file_urls_are_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(encode(plain(), "PNG"))
    url = path.as_uri()
    for address in (url, url.replace("file://", "FILE://"), url.replace("file://", "file://localhost")):
        assert prepare(address) == Upload(path.read_bytes())
        assert upright(address).size == plain().size
    with pytest.raises(FileNotFoundError):
        prepare("file:///no/such/file.png")
    with pytest.raises(ValueError, match="other machines"):
        prepare("file://server/share/a.png")


@pytest.mark.parametrize(
    "url", ["s3://bucket/a.png", "S3://bucket/a.png", "gs://b/a.png", "ftp://host/a.png", "blob:https://a/b"]
)
def test_other_schemes_are_refused_by_name(url: str) -> None:
    scheme = url.partition(":")[0].lower()
    for look in (prepare, upright):
        if "://" in url[:7]:
            with pytest.raises(ValueError, match=f"not read from {scheme}://.*pass a path"):
                look(url)
        else:
            with pytest.raises(FileNotFoundError):
                look(url)


def test_names_of_files_with_colons_are_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("12:30 scan.png").write_bytes(b"bytes")
    Path("scan:1.png").write_bytes(b"bytes")
    assert prepare("12:30 scan.png") == prepare("scan:1.png") == Upload(b"bytes")
