"""`pointbox batch` beside the engine alone, on the same images, and how much memory it takes."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench.serving import POINTBOX, environ
from bench.throughput import MODEL, by_engine
from bench.workloads import Question, questions
from engine.models.base import Model
from engine.models.registry import load_model

PHRASE = "red circle"
ROWS = 32
"""Of the default engine."""
RATE = re.compile(r"(\d+) of (\d+) images, ([\d.]+) images/s, (\d+) errors")


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Rates are images per second; memory is the peak of the batch's process, in resident MB.

    engine: on decoded images, before and after the batch.
    memory_mb: of a third of the images, and of all.
    """

    images: int
    image_kb: float
    engine: tuple[float, float]
    batch: float
    memory_mb: tuple[float, float]

    @property
    def share(self) -> float:
        """Of the engine's own rate."""
        return self.batch / (sum(self.engine) / 2)

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"share": self.share}


def run(images: int, tell: Callable[[str], None]) -> BatchRun:
    """The engine in this process and the batch in one of its own, by turns."""
    files = pictures(images)
    with folder_of(files) as source:
        tell(f"a batch of {images // 3} images")
        _, first = run_batch(source / "third", images // 3)
        model = load_model(MODEL, torch.device("cpu"))
        tell("the engine alone")
        before = _engine(model, files)
        tell(f"a batch of {images} images")
        rate, whole = run_batch(source / "all", images)
        tell("the engine alone again")
        after = _engine(model, files)
    kb = sum(map(len, files)) / images / 1000
    return BatchRun(images, kb, (before, after), rate, (first, whole))


def pictures(count: int, seed: int = 0) -> list[bytes]:
    """JPEGs of a few plain shapes, all different, 256 pixels on the longer side."""
    files = []
    for question in questions(count, seed):
        image, file = Image.fromarray(question.image), io.BytesIO()
        image.thumbnail((256, 256))
        image.save(file, "JPEG", quality=85)
        files.append(file.getvalue())
    return files


@contextmanager
def folder_of(files: Sequence[bytes]) -> Iterator[Path]:
    """A folder with all of them in `all`, and a third of them in `third`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for inner in ("all", "third"):
            (folder / inner).mkdir()
        for number, data in enumerate(files):
            path = folder / "all" / f"{number:06}.jpg"
            path.write_bytes(data)
            if number < len(files) // 3:
                os.link(path, folder / "third" / path.name)
        yield folder


def _engine(model: Model, files: Sequence[bytes]) -> float:
    asked = [Question(np.asarray(Image.open(io.BytesIO(data))), PHRASE) for data in files]
    seconds, _ = by_engine(model, asked, "pipelined", ROWS)
    return len(asked) / seconds


def run_batch(source: Path, images: int) -> tuple[float, float]:
    """Images per second from the first to the last, and the peak of its memory in MB."""
    out = f"{source}-out"
    command = [*POINTBOX, "batch", str(source), "--detect", PHRASE, "--out", out, "--model", MODEL]
    peak = 0.0
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, env=environ({}), stdout=subprocess.DEVNULL, stderr=said) as batch,
    ):
        while batch.poll() is None:
            peak = max(peak, _peak_mb(batch.pid))
            time.sleep(0.1)
        said.seek(0)
        text = said.read().decode()
    told = RATE.findall(text)
    if batch.returncode or not told or told[-1][:2] != (str(images), str(images)):
        raise RuntimeError(f"the batch did not end well: {text[-1000:]}")
    return float(told[-1][2]), peak


def _peak_mb(pid: int) -> float:
    """Resident memory of a process at its highest so far; 0 when it has ended."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) * 1024 / 1e6 if found else 0.0
