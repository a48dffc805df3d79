"""The CUDA device; what needs a GPU is skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from bench.device_model import TOY, RandomMoondream
from engine.attention import attend
from engine.device.cuda import CudaDevice
from engine.device.opening import open_device
from engine.errors import EngineError
from engine.memory import count_pages, page_bytes
from tests.engine.paging import Case, Shape, naive, random_case

THERE = torch.cuda.is_available()
gpu = pytest.mark.skipif(not THERE, reason="no CUDA GPU here")
CPU = torch.device("cpu")


@pytest.mark.skipif(THERE, reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_auto_takes_the_cpu() -> None:
    with pytest.raises(EngineError, match="use device cpu or auto") as raised:
        open_device("cuda")
    assert raised.value.field == "device"
    device = open_device("auto")
    assert device.torch_device == CPU
    device.close()


def test_unknown_devices_are_refused() -> None:
    with pytest.raises(EngineError, match="unknown device 'tpu'"):
        open_device("tpu")


def test_pages_follow_the_memory_given() -> None:
    model = RandomMoondream(TOY, 64, CPU, torch.float32)
    size = page_bytes(model.kv, 16)
    assert size == 2 * 4 * 16 * 128 * 4
    assert count_pages(model, 16, 32, 10 * size + 1, CPU) == 10
    assert count_pages(model, 16, 32, None, CPU) == 32 * 16 // 2 + 256 * 4
    with pytest.raises(EngineError, match="at least two pages"):
        count_pages(model, 16, 32, size, CPU)


def test_a_large_model_leaves_the_machine_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RandomMoondream(TOY, 64, CPU, torch.float32)
    memory = 4 * 100 * page_bytes(model.kv, 16)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": memory // 4096, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert count_pages(model, 16, 32, None, CPU) == 100


@pytest.fixture
def device() -> CudaDevice:
    return CudaDevice()


def on_gpu(case: Case, dtype: torch.dtype) -> Case:
    paged = case.paged
    cache = paged.cache
    cache.keys, cache.values = ([t.cuda().to(dtype) for t in ts] for ts in (cache.keys, cache.values))
    paged.index, paged.table, paged.prefix = paged.index.cuda(), paged.table.cuda(), paged.prefix.cuda()
    case.query, case.key, case.value = (t.cuda().to(dtype) for t in (case.query, case.key, case.value))
    return case


@gpu
@pytest.mark.parametrize(("softcap", "window"), [(None, None), (2.0, None), (None, 70), (2.0, 5)], ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 64), (8, 1, 256), (14, 2, 128), (3, 3, 24)])
@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_the_kernel(
    dtype: torch.dtype,
    off: float,
    heads: int,
    kv_heads: int,
    dim: int,
    softcap: float | None,
    window: int | None,
) -> None:
    shape = Shape((0, 1, 15, 16, 17, 63, 64, 255, 256, 700), heads=heads, kv_heads=kv_heads, dim=dim)
    case = random_case(shape, seed=dim)
    expected = naive(case, dim**-0.5, softcap, window)
    case = on_gpu(case, dtype)
    output = attend(case.paged, 0, case.query, case.key, case.value, dim**-0.5, softcap, window)
    error = (output.double().cpu() - expected).norm() / expected.norm()
    assert error < off


@gpu
def test_copies_wait_for_what_they_copy(device: CudaDevice) -> None:
    source = torch.zeros(1 << 24, device=device.torch_device)
    host = torch.zeros(1 << 24).pin_memory()

    def slow() -> None:
        for _ in range(50):
            source.add_(1)

    after = device.compute(slow)
    device.copy(lambda: host.copy_(source, non_blocking=True), after).wait()
    assert host.eq(50).all()


@gpu
def test_work_with_a_key_is_recorded_once_and_reads_its_inputs_each_time(device: CudaDevice) -> None:
    calls = []
    host = torch.zeros(4, dtype=torch.int64).pin_memory()
    inputs, output = (torch.zeros(4, dtype=torch.int64, device=device.torch_device) for _ in range(2))

    def work() -> None:
        calls.append(1)
        inputs.copy_(host, non_blocking=True)
        output.add_(inputs * 2)

    for value in (1, 2, 3):
        host[:] = value
        device.compute(work, "key").wait()
    assert output.tolist() == [12] * 4
    assert len(calls) == 2
    assert device.recorded == 1


@gpu
def test_what_work_raises_comes_from_wait(device: CudaDevice) -> None:
    def fails() -> None:
        raise MemoryError("out of memory")

    event = device.compute(fails, "key")
    for waiting in (event, device.copy(lambda: None, event)):
        with pytest.raises(MemoryError):
            waiting.wait()
    device.compute(lambda: None).wait()
