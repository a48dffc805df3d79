"""A record of what ran when, as Chrome-trace JSON for Perfetto."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Span:
    """One interval; times in seconds of `time.perf_counter()`."""

    name: str
    step: int
    kind: str
    rows: int
    thread: str
    begin: float
    end: float


class Trace:
    """Collects spans from any thread.

    spans: of threads of the host.  device_spans: of streams, from devices that know when work ran.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.device_spans: list[Span] = []

    @contextmanager
    def span(self, name: str, step: int, kind: str, rows: int) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            thread = threading.current_thread().name
            self.spans.append(Span(name, step, kind, rows, thread, begin, time.perf_counter()))

    def device(self, step: int, kind: str, rows: int, ran: dict[str, tuple[float, float]]) -> None:
        """When the device ran the parts of a step; copies have a line of their own."""
        for name, (begin, end) in ran.items():
            stream = "copy stream" if name == "copy" else "compute stream"
            self.device_spans.append(Span(name, step, kind, rows, stream, begin, end))

    def write(self, path: Path) -> None:
        """Chrome-trace JSON: open it in Perfetto."""
        spans = [*self.spans, *self.device_spans]
        threads = {name: i for i, name in enumerate(dict.fromkeys(s.thread for s in spans))}
        events: list[dict[str, object]] = [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}}
            for name, tid in threads.items()
        ]
        events += [
            {
                "ph": "X",
                "name": f"{s.name} {s.step}",
                "cat": s.kind,
                "pid": 1,
                "tid": threads[s.thread],
                "ts": s.begin * 1e6,
                "dur": (s.end - s.begin) * 1e6,
                "args": {"rows": s.rows},
            }
            for s in spans
        ]
        path.write_text(json.dumps({"traceEvents": events}))
