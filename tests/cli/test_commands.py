"""The `pointbox` command on the real engine: what it prints, what it writes, how it says no."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import huggingface_hub
import msgspec
import numpy as np
import pytest
from PIL import Image

from app.catalogue import Catalogue
from app.cli import main
from app.spatial.schemas import Box, DetectAnswer, PointAnswer
from tests.models.adapters import TEXT, Recipe, write_adapter
from tests.models.checkpoints import TINY

SCENE = "examples/scene.jpg"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def side_by_side(lines: list[str], output: int) -> list[tuple[int, str]]:
    """Exit code and complaints of processes that run at the same time: each imports much."""
    commands = [[sys.executable, "-m", "app.cli", *line.split()] for line in lines]
    running = [subprocess.Popen(c, stdout=output, stderr=subprocess.PIPE, text=True) for c in commands]
    try:
        complaints = [process.communicate(timeout=300)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, said) for process, said in zip(running, complaints, strict=True)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "text.jpg").write_text("no picture")
    (folder / "empty.png").write_bytes(b"")
    (folder / "half.jpg").write_bytes(Path(SCENE).read_bytes()[:9000])
    Image.new("RGB", (4, 4)).save(folder / "small.png")
    (folder / "folder.png").mkdir()
    return folder


BAD_USE = [
    ("detect {}/missing.jpg x", "There is no file"),
    ("detect {} x", "is a folder: `pointbox batch`"),
    ("detect http://127.0.0.1:1/a.jpg x", "a file on this machine, not a URL: download it"),
    ("point s3://bucket/a.jpg x", "a file on this machine, not a URL"),
    ("detect /dev/null/a.jpg x", "cannot be read: Not a directory"),
    ("detect {}/text.jpg x", "not an image"),
    ("detect {}/empty.png x", "no bytes"),
    ("detect {}/half.jpg x", "truncated"),
    ("point {}/small.png x", "at least 8"),
    (f"detect {SCENE} x --model no-such-model", "no-such-model"),
    (f"detect {SCENE} x --draw {{}}/out.nothing", "--draw"),
    (f"detect {SCENE} x --draw {{}}/no/such/folder.png", "--draw"),
    (
        f"detect {SCENE} x --draw /proc/out.png",
        "--draw cannot write /proc/out.png: No such file or directory.\n",
    ),
    (f"detect {SCENE} x --draw {{}}/folder.png", "it is a folder"),
    (f"detect {SCENE} x --draw {{}}/out.fits", "use a name that ends in .png"),
    (f"detect {SCENE} x --min-score 1.5", "--min-score must be between 0 and 1"),
    (f"point {SCENE} x --min-score nan", "--min-score must be between 0 and 1"),
    (f"detect {SCENE} x --region 0,0,1", "--region is four numbers with commas, such as 0.1,0.2,0.8,0.9"),
    (f"detect {SCENE} x --region a,b,c,d", "--region is four numbers with commas"),
    (f"detect {SCENE} x --region -0.1,0,1,1", "0 <= x_min < x_max <= 1"),
    (f"detect {SCENE} x --region 0,0,801,600 --pixels", "0 <= x_min < x_max <= 800"),
    (f"detect {SCENE} x --max-objects 0", "--max-objects"),
    (f"detect {SCENE} x --max-objects many", "--max-objects"),
    (f"detect {SCENE} x --dedupe perhaps", "--dedupe"),
    (f"detect {SCENE} x --device tpu", "cuda"),
    (f"detect {SCENE} x --max-batch 0", "--max-batch must be"),
    (f"detect {SCENE} x --kv-memory lots", "512M or 2G"),
    (f"detect {SCENE} x --kv-memory 1K", "pointbox: --kv-memory must hold"),
    (f"detect {SCENE} x --kv-memory 900000T", "--kv-memory"),
    (f"detect {SCENE} x --kv-memory 8K", "--kv-memory"),
    (f"detect {SCENE} x --colour red", "--colour"),
    (f"detect {SCENE} x --dtype int4", "--dtype"),
    (f"detect {SCENE} x --revision main", "revisions"),
    (f"detect {SCENE} x --adapter cats", "no adapter 'cats'; it has none"),
    (f"detect {SCENE} x --adapter cats={{}}/nothing", "adapter_config.json is missing"),
    (f"detect {SCENE} x --model acme/large", "hf download acme/large"),
    (f"detect {SCENE}", "PHRASE"),
    ("point", "IMAGE"),
    ("paint a b", "paint"),
    ("serve --port 99999", "port"),
    ("serve --port http", "port"),
    ("serve --batch-share 2", "--batch-share must be at most 1"),
    ("serve --kv-memory -1", "--kv-memory must be"),
    ("worker --max-batch few", "--max-batch"),
    ("api", "POINTBOX_REDIS_URL must be set"),
    ("worker", "POINTBOX_REDIS_URL must be set"),
    ("batch --detect star examples --out {}/out", "SOURCE requires an argument. Put it before --detect"),
    ("jobs submit --point star pictures --out labels", "SOURCE requires an argument. Put it before --detect"),
    ("batch examples --detect a --point b --out {}/out", "not for both"),
    ("batch examples --point a --out {}/out --format yolo", "boxes, not points"),
    ("batch examples --detect a --out {}/out --max-objects 1001", "--max-objects must be between 1 and 1000"),
    ("batch examples --detect a --out {}/out --shard-size 0", "--shard-size must be 1 or more"),
    ("batch examples --detect a --out {}/out --model no-such-model", "no-such-model"),
    ("jobs list --limit 0", "--limit must be 1 or more, not 0"),
    ("bench pipeline --streams 0", "--streams"),
    ("keys create --tenant a --expires 3y", "--expires must look like 90d"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_USE, ids=[line for line, _ in BAD_USE])
def test_bad_use_is_one_line_and_exit_code_2(
    line: str, reason: str, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POINTBOX_REDIS_URL", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert run(*line.format(files).split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("pointbox: ")
    assert reason in err


def test_a_setting_of_the_environment_goes_by_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTBOX_TENANT_QUEUE_BYTES", "10")
    assert run("detect", SCENE, "x") == 2
    said = "pointbox: POINTBOX_TENANT_QUEUE_BYTES must be at least POINTBOX_BODY_LIMIT_BYTES\n"
    assert capsys.readouterr().err == said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full disk to write to")
def test_a_disk_without_room_is_one_line_and_exit_code_1() -> None:
    with open("/dev/full", "w") as full:
        ended = side_by_side([f"detect {SCENE} red", f"detect {SCENE} red --json"], full.fileno())
    assert ended == [(1, "pointbox: No space left on device\n")] * 2


def test_an_output_that_the_shell_closed() -> None:
    command = ["sh", "-c", 'exec "$0" -m app.cli models --json >&-', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("phrase", ["", "  ", "x" * 257])
def test_phrases_that_cannot_be_asked(phrase: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("detect", SCENE, phrase) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_process_of_its_own_shows_no_traceback() -> None:
    command = [sys.executable, "-m", "app.cli", "detect", "missing.jpg", "red circle"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "pointbox: There is no file missing.jpg.\n"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs to see what a process has loaded")
def test_ctrl_c_while_torch_is_imported_is_quiet() -> None:
    command = [sys.executable, "-m", "app.cli", "detect", SCENE, "red circle"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
        until = time.monotonic() + 60
        while "libtorch_python" not in Path(f"/proc/{asking.pid}/maps").read_text():
            assert asking.poll() is None
            assert time.monotonic() < until
        asking.send_signal(signal.SIGINT)
        out, err = asking.communicate(timeout=60)
    assert asking.returncode in (-signal.SIGINT, 130)
    assert (out, err) == ("", "")


def test_json_is_the_answer_of_the_route(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("detect", SCENE, "red circle", "yellow star", "--json") == 0
    answer = msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer, strict=True)
    assert (answer.model, answer.image.width, answer.image.height) == ("tiny", 800, 600)
    assert [phrase.object for phrase in answer.phrases] == ["red circle", "yellow star"]
    assert answer.objects
    assert answer.metrics.intake_ms > 0
    assert run("point", SCENE, "red circle", "--json", "--max-objects", "1") == 0
    points = msgspec.json.decode(capsys.readouterr().out, type=PointAnswer, strict=True)
    assert len(points.points) == 1


def test_an_engine_of_a_given_size_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("detect", SCENE, "red circle", "yellow star", "--json") == 0
    usual = msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer).objects
    size = ("--device", "cpu", "--max-batch", "1", "--kv-memory", "3M")
    assert run("detect", SCENE, "red circle", "yellow star", "--json", *size) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer).objects == pytest.approx(usual)


def test_an_adapter_changes_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_adapter(tmp_path / "mine", TINY, Recipe(TEXT, strength=1.0))
    answers = []
    for more in ((), ("--adapter", f"mine={folder}"), ("--dtype", "bfloat16")):
        assert run("detect", SCENE, "red circle", "--json", *more) == 0
        answers.append(msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer).objects)
    assert answers[0] != answers[1]
    assert answers[0] != answers[2]  # the scores at least


def test_the_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "--json") == 0
    catalogue = msgspec.json.decode(capsys.readouterr().out, type=Catalogue, strict=True)
    families = {family.name: family for family in catalogue.families}
    assert families["paligemma"].tasks == ["detect", "point"]
    assert families["paligemma"].prefix == "prompt"
    tiny = next(model for model in catalogue.models if model.name == "tiny")
    assert (tiny.family, tiny.source) == ("paligemma", "bundled")
    assert tiny.bytes > 10**6
    assert run("models") == 0
    out = capsys.readouterr().out
    for word in ("paligemma", "tiny", "bundled", catalogue.cache):
        assert word in out.replace("\n", "")


def test_pixels(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("detect", SCENE, "red circle", "--json") == 0
    fractions = msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer).objects[0]
    assert run("detect", SCENE, "red circle", "--json", "--pixels") == 0
    pixels = msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer).objects[0]
    assert pixels.x_max == pytest.approx(fractions.x_max * 800, abs=0.01)
    assert pixels.y_max == pytest.approx(fractions.y_max * 600, abs=0.01)


def test_region_and_min_score_mean_what_they_mean_over_http(capsys: pytest.CaptureFixture[str]) -> None:
    def objects(*more: str) -> list[Box]:
        assert run("detect", SCENE, "red circle", "--json", *more) == 0
        return msgspec.json.decode(capsys.readouterr().out, type=DetectAnswer).objects

    (circle,) = objects()
    assert objects("--min-score", str(circle.score - 0.01))
    assert not objects("--min-score", str(min(1.0, circle.score + 0.01)))
    assert objects("--region", "0.2,0.1,0.6,0.6") == pytest.approx([circle], abs=0.02)
    assert objects("--region", "160,60,480,360", "--pixels")
    for box in objects("--region", "0.6,0,1,1"):
        assert box.x_min >= 0.6
    assert run("point", SCENE, "red circle", "--json", "--region", "0.2,0.1,0.6,0.6") == 0
    (point,) = msgspec.json.decode(capsys.readouterr().out, type=PointAnswer).points
    assert 0.2 <= point.x <= 0.6


@pytest.mark.parametrize("units", [[], ["--pixels"]])
def test_the_table_and_the_drawing(
    units: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = tmp_path / "out.png"
    assert run("detect", SCENE, "red circle", "--dedupe", "off", "--draw", str(drawn), *units) == 0
    out = capsys.readouterr().out
    assert "scene.jpg, 800 x 600" in out
    assert "red circle" in out
    assert "x_min" in out
    before, after = np.asarray(Image.open(SCENE)), np.asarray(Image.open(drawn))
    assert before.shape == after.shape
    assert (before != after).any()
    assert (before[400:] == after[400:]).all()  # the circle is in the upper half


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["detect", "--help"], ["serve", "--help"], ["--version"], []):
        assert run(*arguments) == 0
    assert "0.1.0" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_fault() -> None:
    read, write = os.pipe()
    os.close(read)
    ended = side_by_side(["models", "models --json", "--help", "keys --help"], write)
    os.close(write)
    assert ended == [(141, "")] * 4
