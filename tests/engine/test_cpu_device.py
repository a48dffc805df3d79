"""The CPU device divides what does not hang together, and leaves torch's settings as they were."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from engine.device.cpu import PART, SMALL, CpuDevice, threads


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    """Three threads, whatever the machine has."""
    with threads(3):
        device = CpuDevice()
    yield device
    device.close()


def divided(device: CpuDevice, items: int, size: int) -> list[tuple[slice, str, int]]:
    """The parts in order; the thread of each and how many threads its operators take."""
    parts = []
    lock = threading.Lock()

    def work(part: slice) -> None:
        assert torch.is_inference_mode_enabled()
        with lock:
            parts.append((part, threading.current_thread().name, torch.get_num_threads()))

    device.compute(lambda: device.divide(items, size, work)).wait()
    return sorted(parts, key=lambda part: part[0].start)


@pytest.mark.parametrize("items", [3, 4, 5, 11, 12, 13, 40])
def test_large_work_is_done_in_parts_of_one_thread_each(device: CpuDevice, items: int) -> None:
    parts = divided(device, items, SMALL)
    places = [i for part, _, _ in parts for i in range(part.start, part.stop)]
    assert places == list(range(items))
    assert all(part.stop - part.start <= PART for part, _, _ in parts)
    assert len(parts) >= 2
    assert all(name.startswith("pointbox-part") and count == 1 for _, name, count in parts)


def test_few_items_of_moderate_size_have_a_thread_each(device: CpuDevice) -> None:
    parts = divided(device, 2, SMALL - 1)
    assert [part for part, _, _ in parts] == [slice(0, 1), slice(1, 2)]
    assert all(count == 1 for _, _, count in parts)


def test_small_work_stays_on_one_thread(device: CpuDevice) -> None:
    assert divided(device, 9, SMALL // 10) == [(slice(0, 9), "pointbox-compute", 1)]


def test_fewer_large_items_than_threads_share_all_of_them(device: CpuDevice) -> None:
    assert divided(device, 2, SMALL) == [(slice(0, 2), "pointbox-compute", 3)]


def test_one_part_that_fails_fails_the_step_and_the_next_one_runs(device: CpuDevice) -> None:
    others = []

    def work(part: slice) -> None:
        if part.start == 0:
            raise ValueError("a part failed")
        time.sleep(0.05)
        others.append(part)

    with pytest.raises(ValueError, match="a part failed"):
        device.compute(lambda: device.divide(12, SMALL, work)).wait()
    assert len(others) == 2, "the step failed before all of its parts were over"
    assert len(divided(device, 12, SMALL)) == 3


@pytest.mark.parametrize("work", [lambda: None, lambda: torch.ones(4, 4) @ torch.ones(4, 4)])
def test_the_process_keeps_its_number_of_threads(device: CpuDevice, work: Callable[[], None]) -> None:
    before = torch.get_num_threads()
    device.compute(work).wait()
    divided(device, 12, SMALL)
    divided(device, 1, SMALL)
    assert torch.get_num_threads() == before
    seen = []
    fresh = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    fresh.start()
    fresh.join()
    assert seen == [before], "a thread that starts later"
