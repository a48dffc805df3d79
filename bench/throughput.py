"""Requests per second of the default model on the CPU, against what its users would do without an engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from bench.generate import Generator
from bench.workloads import Question, questions
from engine.device.cpu import CpuDevice
from engine.engine import Engine
from engine.events import Event, Failed, Finished
from engine.loop import Mode
from engine.models.base import Model
from engine.models.registry import CHECKPOINTS, load_model
from engine.request import Request

MODEL = "tiny"
MAX_TOKENS = 251
"""Fifty objects and the end."""
ROUNDS = 2
Runner = Callable[[Sequence[Question]], tuple[float, list[float]]]
"""Seconds for all questions, and of each."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to answer the questions.

    latency_ms: p50 and p99 from when a request could begin, with `concurrency` of them at a time.
    """

    name: str
    requests_per_s: float
    p50_ms: float
    p99_ms: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(concurrency: int, requests: int, phrases: int, tell: Callable[[str], None]) -> list[Way]:
    """Every way answers the same questions, `phrases` to a picture, in ROUNDS rounds by turns."""
    model = load_model(MODEL, torch.device("cpu"))
    generator = Generator(CHECKPOINTS / MODEL, model, MAX_TOKENS)
    ways: dict[str, Runner] = {
        "pipelined": lambda asked: by_engine(model, asked, "pipelined", concurrency),
        "blocking": lambda asked: by_engine(model, asked, "blocking", concurrency),
        "generate, one at a time": lambda asked: by_generate(generator, asked, 1, True),
        f"generate, batches of {concurrency}": lambda asked: by_generate(generator, asked, concurrency, True),
        "generate, one at a time, unmasked": lambda asked: by_generate(generator, asked, 1, False),
        f"generate, batches of {concurrency}, unmasked": lambda asked: by_generate(
            generator, asked, concurrency, False
        ),
    }
    for runner in ways.values():
        runner(questions(2, seed=1))  # first times are slower
    took = dict.fromkeys(ways, 0.0)
    latencies: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        asked = questions(max(1, requests // ROUNDS), seed=2 + number, phrases=phrases)
        for name, runner in ways.items():
            tell(f"{name}, round {number + 1} of {ROUNDS}")
            seconds, each = runner(asked)
            took[name] += seconds
            latencies[name] += each
    return [_way(name, took[name], latencies[name]) for name in ways]


def by_engine(
    model: Model, asked: Sequence[Question], mode: Mode, concurrency: int
) -> tuple[float, list[float]]:
    """`concurrency` requests at a time, on images new to the engine; its start is not counted."""
    latencies: list[float] = []
    failures: list[Exception] = []
    free = threading.Semaphore(concurrency)

    def submit(engine: Engine, question: Question) -> None:
        begin = time.perf_counter()

        def hear(event: Event) -> None:
            if isinstance(event, Finished | Failed):
                latencies.append(time.perf_counter() - begin)
                if isinstance(event, Failed):
                    failures.append(event.error)
                free.release()

        engine.submit(Request("detect", question.image, (question.phrase,), dedupe=False), hear)

    with Engine(model, CpuDevice(), mode=mode, max_batch=concurrency, max_tokens=MAX_TOKENS) as engine:
        begin = time.perf_counter()
        for question in asked:
            free.acquire()
            submit(engine, question)
        for _ in range(concurrency):
            free.acquire()
        seconds = time.perf_counter() - begin
    if failures:
        raise failures[0]
    return seconds, latencies


def by_generate(
    generator: Generator, asked: Sequence[Question], batch: int, masked: bool
) -> tuple[float, list[float]]:
    """All requests of a batch take as long as the batch."""
    latencies: list[float] = []
    for first in range(0, len(asked), batch):
        begin = time.perf_counter()
        group = asked[first : first + batch]
        generator.answer(group, masked)
        latencies += [time.perf_counter() - begin] * len(group)
    return sum(latencies[::batch]), latencies


def _way(name: str, took: float, latencies: list[float]) -> Way:
    p50, p99 = (1e3 * float(np.percentile(latencies, q)) for q in (50, 99))
    return Way(name, len(latencies) / took, p50, p99)
