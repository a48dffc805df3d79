"""The command line against a running service: `pointbox jobs`, and batches that a service answers."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.cli import main
from tests.app.running import serving
from tests.jobs.folders import stores
from tests.sdk.scripted import problem, scripted

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its URL, and the folder of its stores."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "in").mkdir()
    for name in ("scene.jpg", "table.jpg"):
        shutil.copy(f"examples/{name}", folder / "in")
    (folder / "in" / "bad.png").write_bytes(b"\x89PNG\r\n")
    environ = {"POINTBOX_DATA_DIR": str(folder / "data"), "POINTBOX_STORES": stores(folder)}
    with serving(folder / "log.txt", **environ) as running:
        yield running.url, folder


@pytest.fixture
def say(
    service: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Say:
    """Runs `pointbox …`: exit code, output, complaints."""
    monkeypatch.setenv("POINTBOX_URL", service[0])

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def test_a_job_through_the_command_line(say: Say) -> None:
    submit = ("jobs", "submit", "in", "--out", "out/cli", "--detect", "red circle", "star")
    code, out, err = say(*submit, "--shard-size", "1")
    job = out.strip()
    assert (code, err) == (0, f"Follow it with: pointbox jobs watch {job}\n")
    code, out, _ = say("jobs", "watch", job)
    assert (code, out.startswith(f"Job {job}: completed, 3 of 3 images, 1 errors, ")) == (0, True)
    assert job in say("jobs", "list")[1]
    shown = json.loads(say("jobs", "show", job)[1])
    assert (shown["id"], shown["request"]["objects"]) == (job, ["red circle", "star"])
    results = [json.loads(line) for line in say("jobs", "results", job)[1].splitlines()]
    assert [result["key"] for result in results] == ["scene.jpg", "table.jpg"]
    assert {"red circle"} <= {box["label"] for box in results[0]["objects"]}
    (error,) = say("jobs", "results", "--errors", job)[1].splitlines()
    assert json.loads(error)["key"] == "bad.png"
    for action in ("cancel", "resume"):  # it is over, and stays so
        assert f"Job {job}: completed" in say("jobs", action, job)[1]


def test_a_job_of_another_service(say: Say, service: tuple[str, Path]) -> None:
    where = ("--endpoint", service[0])
    _, out, err = say("jobs", "submit", "in", "--out", "out", "--detect", "star", *where)
    (follow,) = err.splitlines()
    assert follow == f"Follow it with: pointbox jobs watch {out.strip()} --endpoint {service[0]}"
    assert say(*follow.partition("pointbox ")[2].split())[0] == 0


def test_a_job_that_failed(say: Say) -> None:
    job = say("jobs", "submit", "in", "--out", "out", "--point", "star", "--manifest", "no.csv")[1].strip()
    code, out, _ = say("jobs", "watch", job)
    assert (code, "failed" in out, "manifest no.csv cannot be read" in out) == (1, True, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("show", "nothing"), "There is no such job"),
        (("submit", "nowhere", "--out", "out", "--detect", "x"), "There is no store 'nowhere'"),
        (("submit", "in", "--out", "out"), "objects"),
        (("list", "--endpoint", "here"), "must look like http://host:8000"),
    ],
)
def test_what_is_wrong_is_one_line(say: Say, words: tuple[str, ...], complaint: str) -> None:
    code, out, err = say("jobs", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert complaint in err


def test_a_service_that_is_away_is_one_line_and_exit_code_1(say: Say) -> None:
    code, out, err = say("jobs", "list", "--endpoint", "http://127.0.0.1:1")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "pointbox: There is no service at http://127.0.0.1:1" in err


@pytest.mark.parametrize(
    ("slug", "status", "code"),
    [("unavailable", 503, 1), ("rate-limited", 429, 1), ("internal", 500, 1), ("forbidden", 403, 2)],
)
def test_what_a_service_refuses_for_now_is_exit_code_1(say: Say, slug: str, status: int, code: int) -> None:
    with scripted() as script:
        script.steps[:] = [problem(slug, status, retry_after="600")]
        ended, out, err = say("jobs", "show", "x", "--endpoint", script.url)
    assert (ended, out, len(err.splitlines())) == (code, "", 1)
    assert err.startswith("pointbox: ")


def test_a_key_that_is_needed_is_called_by_its_variable(say: Say) -> None:
    with scripted() as script:
        script.steps[:] = [problem("unauthenticated", 401)]
        code, _, err = say("jobs", "list", "--endpoint", script.url)
    assert (code, "POINTBOX_API_KEY" in err) == (2, True)


def test_a_batch_that_a_service_answers(say: Say, service: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = service
    asked = (str(folder / "in"), "--detect", "red circle", "--out", str(tmp_path), "--job")
    code, out, _ = say("batch", *asked, "served", "--endpoint", url)
    assert (code, "2 images answered, 1 with errors" in out) == (0, True)
    assert say("batch", *asked, "alone")[0] == 0
    served, alone = ((tmp_path / job / "results" / "00000.jsonl").read_text() for job in ("served", "alone"))
    assert [boxes(line) for line in served.splitlines()] == [boxes(line) for line in alone.splitlines()]
    code, _, err = say("batch", *asked, "other", "--endpoint", url, "--model", "huge")
    assert (code, "there are tiny" in err) == (2, True)


def boxes(line: str) -> tuple[str, list[tuple[float, float]]]:
    result = json.loads(line)
    return result["key"], [(round(box["x_min"], 4), round(box["y_max"], 4)) for box in result["objects"]]


def test_without_the_client_a_hint(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pointbox", None)
    for module in ("app.client", "app.jobs.endpoint"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    code, _, err = say("jobs", "list")
    assert (code, "pip install ./sdk" in err) == (2, True)
    code, _, err = say("detect", "examples/scene.jpg", "star", "--draw", "out.png")
    assert (code, "pip install ./sdk" in err) == (2, True)
