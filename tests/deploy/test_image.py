"""The container image: its build file, and its very install steps without a container engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
import yaml

from app.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
NOBODY = 65534
INSTALL_S, START_S = 1200, 300
VARIABLES = {PREFIX + field.name.upper() for field in fields(Settings)}


def test_the_build_file_follows_the_linter() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    ended = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_signals_arrive_and_nobody_is_root() -> None:
    assert re.search(r'^ENTRYPOINT \["', DOCKERFILE, re.MULTILINE)  # no shell between
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users
    assert all(re.fullmatch(r"[1-9]\d*:[1-9]\d*", user) for user in users)


def test_build_and_compose_files_name_settings_that_exist() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    named = {
        name for service in compose["services"].values() for name in service.get("environment", {})
    } | set(re.findall(rf"\b{PREFIX}[A-Z_]+(?==)", DOCKERFILE))
    assert {name for name in named if name.startswith(PREFIX)} <= VARIABLES


def test_what_the_build_copies_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert set(copied()) <= kept
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="only root can install as one user and run as another")
def test_installed_by_a_plain_user_and_run_from_a_read_only_tree(tmp_path: Path) -> None:
    home = Path("/tmp") / f"pointbox-image-{os.getpid()}"  # pytest's own folder is closed to others
    source, target, data = home / "src", home / "opt", home / "data"
    try:
        for name in copied():
            place = source / name
            place.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, place)
        data.mkdir()
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        run = as_nobody(source, HOME=str(data))
        subprocess.run(["deploy/install.sh", target], check=True, timeout=INSTALL_S, **run)
        shutil.rmtree(source)
        for path in (home, target, *target.rglob("*")):
            os.chown(path, 0, 0, follow_symlinks=False)
        before = {path: path.lstat().st_mtime_ns for path in target.rglob("*")}
        answer, status = ask_once(target / "bin" / "pointbox", data)
        assert answer["objects"][0]["label"] == "red circle"
        assert status == 0
        assert {path: path.lstat().st_mtime_ns for path in target.rglob("*")} == before
    finally:
        shutil.rmtree(home, ignore_errors=True)


def copied() -> list[str]:
    """What the build copies from the source tree."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def as_nobody(folder: Path, **environ: str) -> dict:
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "PATH"}
    return {"cwd": folder, "user": NOBODY, "group": NOBODY, "extra_groups": [], "env": kept | environ}


def ask_once(command: Path, data: Path) -> tuple[dict, int]:
    """Serve, ask for the red circles of the example picture, end: the answer and the exit status."""
    environ = {
        "HOME": str(data),
        "HF_HOME": str(data / "huggingface"),
        "POINTBOX_DATA_DIR": str(data),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    image = (ROOT / "examples" / "scene.jpg").read_bytes()
    with subprocess.Popen(
        [command, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True, **as_nobody(data, **environ)
    ) as serving:
        try:
            assert serving.stdout is not None
            deadline = time.monotonic() + START_S
            line = ""
            while "ready at" not in line:
                line = serving.stdout.readline()
                assert line, "the service ended before it was ready"
                assert time.monotonic() < deadline
            found = re.search(r"http://\S+", line)
            assert found
            answer = httpx.post(
                f"{found[0]}/v1/detect",
                params={"object": "red circle"},
                content=image,
                headers={"content-type": "image/jpeg"},
                timeout=60,
            )
            serving.send_signal(signal.SIGTERM)
            return answer.raise_for_status().json(), serving.wait(60)
        finally:
            serving.kill()
