"""The figures of the queue and of the workers, as Prometheus reads them.

Every API process shows the same ones, since they come from Redis; those of its own HTTP routes are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.admission.figures import Figures
from app.admission.messages import EngineCounts, WorkerInfo
from app.admission.unreadable import READINGS
from app.supervised import RESTARTS

_REFUSALS = ("queue-full", "tenant-queue-full")
_WORKER = ("model", "worker")


def exposition(http: CollectorRegistry, figures: Figures | None) -> bytes:
    """The text format: the figures of this process, and those of all. None: Redis is away."""
    registry = CollectorRegistry()
    own = _troubles("pointbox", "this process", (), [((), READINGS, RESTARTS)])
    registry.register(_Collected([_up(figures), *own, *(_families(figures) if figures else ())]))
    return generate_latest(http) + generate_latest(registry)


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _up(figures: Figures | None) -> Metric:
    return GaugeMetricFamily("pointbox_queue_up", "1 when Redis answers.", int(figures is not None))


def _families(figures: Figures) -> Iterator[Metric]:
    yield from _queue(figures)
    yield from _counts(figures.counts)
    yield from _workers(figures.workers)
    theirs = [((worker.name, worker.id), worker.unreadable, worker.restarts) for worker in figures.workers]
    yield from _troubles("pointbox_worker", "a worker", _WORKER, theirs)
    yield from _engines([(worker, worker.engine) for worker in figures.workers if worker.engine])


def _queue(figures: Figures) -> Iterator[Metric]:
    labels = ("model", "priority")
    waiting = GaugeMetricFamily("pointbox_queue_waiting", "Requests that no worker has taken.", labels=labels)
    taken = GaugeMetricFamily("pointbox_queue_taken", "Requests that a worker has.", labels=labels)
    oldest = GaugeMetricFamily("pointbox_queue_oldest_seconds", "Age of the oldest waiting.", labels=labels)
    for lane in figures.lanes:
        where = (lane.model, lane.priority)
        waiting.add_metric(where, lane.waiting)
        taken.add_metric(where, lane.taken)
        oldest.add_metric(where, lane.oldest_s)
    yield from (waiting, taken, oldest)


def _counts(counts: dict[str, int]) -> Iterator[Metric]:
    admitted = CounterMetricFamily(
        "pointbox_requests_admitted", "Requests taken into the queue.", labels=["priority"]
    )
    refused = CounterMetricFamily(
        "pointbox_requests_refused", "Requests that found it full.", labels=["problem"]
    )
    ended = CounterMetricFamily("pointbox_requests_ended", "Requests by how they ended.", labels=["outcome"])
    dropped = CounterMetricFamily(
        "pointbox_queue_unreadable", "Entries of the queue that were no requests.", labels=[]
    )
    for name, number in sorted(counts.items()):
        what, _, priority = name.partition(":")
        if what == "admitted":
            admitted.add_metric([priority], number)
        elif what == "unreadable":
            dropped.add_metric([], number)
        elif what in _REFUSALS:
            refused.add_metric([what], number)
        else:
            ended.add_metric([what], number)
    yield from (admitted, refused, ended, dropped)


def _troubles(
    prefix: str,
    whose: str,
    labels: tuple[str, ...],
    troubles: list[tuple[tuple[str, ...], Mapping[str, int], Mapping[str, int]]],
) -> Iterator[Metric]:
    """What must not happen, and does no harm alone. `troubles`: whose, unreadable records, restarts."""
    unreadable = CounterMetricFamily(
        f"{prefix}_unreadable_records",
        f"Readings of records in Redis that {whose} cannot read.",
        labels=(*labels, "kind"),
    )
    restarts = CounterMetricFamily(
        f"{prefix}_task_restarts",
        f"Tasks of {whose} that failed and were begun again.",
        labels=(*labels, "task"),
    )
    for who, readings, begun in troubles:
        for kind, number in readings.items():
            unreadable.add_metric((*who, kind), number)
        for task, number in begun.items():
            restarts.add_metric((*who, task), number)
    yield from (unreadable, restarts)


def _requests(what: str, help_text: str, label: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"pointbox_requests_{what}", help_text, labels=[label])


def _workers(workers: list[WorkerInfo]) -> Iterator[Metric]:
    load = GaugeMetricFamily("pointbox_worker_phrases", "Phrases that a worker has.", labels=_WORKER)
    capacity = GaugeMetricFamily("pointbox_worker_phrases_max", "Phrases that it takes.", labels=_WORKER)
    uptime = CounterMetricFamily("pointbox_worker_uptime_seconds", "Since its start.", labels=_WORKER)
    for worker in workers:
        who = (worker.name, worker.id)
        load.add_metric(who, worker.load)
        capacity.add_metric(who, worker.capacity)
        uptime.add_metric(who, worker.uptime_s)
    yield from (load, capacity, uptime)


def _engines(working: list[tuple[WorkerInfo, EngineCounts]]) -> Iterator[Metric]:
    for field, help_text in _GAUGES.items():
        gauge = GaugeMetricFamily(f"pointbox_engine_{field}", help_text, labels=_WORKER)
        for worker, engine in working:
            gauge.add_metric((worker.name, worker.id), getattr(engine, field))
        yield gauge
    pages = GaugeMetricFamily("pointbox_engine_pages", "Pages of KV.", labels=(*_WORKER, "state"))
    for worker, engine in working:
        for state in ("free", "cached", "held"):
            pages.add_metric((worker.name, worker.id, state), getattr(engine, f"pages_{state}"))
    yield pages
    for field, (name, help_text) in _COUNTERS.items():
        counter = CounterMetricFamily(f"pointbox_engine_{name}", help_text, labels=_WORKER)
        for worker, engine in working:
            counter.add_metric((worker.name, worker.id), getattr(engine, field))
        yield counter


_GAUGES = {
    "rows_active": "Rows with a sequence.",
    "rows_max": "Rows of the batch.",
    "waiting": "Sequences without a row.",
}
_COUNTERS = {
    "steps": ("steps", "Forwards launched."),
    "prefill_tokens": ("prefill_tokens", "Image and prompt tokens prefilled."),
    "decode_tokens": ("decode_tokens", "Tokens sampled."),
    "idle_s": ("idle_seconds", "Time without work."),
    "device_s": ("device_seconds", "Time that the device worked; 0 where it does not tell (cuda)."),
}
