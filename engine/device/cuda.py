"""An NVIDIA GPU as a device: a compute stream, a copy stream, CUDA graphs for work with a key.

Imports without a GPU; constructing a CudaDevice needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from engine.device.base import Event


class CudaEvent:
    """A mark on a stream; `error` is what enqueuing the work before it raised."""

    __slots__ = ("error", "mark")

    def __init__(self, mark: torch.cuda.Event, error: BaseException | None) -> None:
        self.mark, self.error = mark, error

    def wait(self) -> None:
        self.mark.synchronize()  # also after an error: copies enqueued before it may still be running
        if self.error is not None:
            raise self.error


class CudaDevice:
    """Work is enqueued by the thread that asks for it; nothing here waits for the GPU but a first recording.

    Work with a key runs as it is the first time, which also compiles and loads what it needs, and is then
    recorded as a CUDA graph; later times replay the graph and do not call the work.  Graphs share one memory
    pool, since one stream replays them one after another and they leave their results in fixed buffers.

    graphs: False runs all work as it is, with the same shapes.
    """

    fixed_shapes = True

    def __init__(self, index: int = 0, *, graphs: bool = True) -> None:
        self.torch_device = torch.device("cuda", index)
        self.compute_stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self._copy_stream = torch.cuda.Stream(self.torch_device)  # type: ignore[no-untyped-call]
        self._recording = graphs
        self._pool = torch.cuda.graph_pool_handle() if graphs else None
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}

    @property
    def recorded(self) -> int:
        """Graphs so far."""
        return len(self._graphs)

    def compute(self, work: Callable[[], None], key: Hashable = None) -> CudaEvent:
        if key is None:  # prefill: weights and buffers were made on the default stream
            self.compute_stream.wait_stream(torch.cuda.default_stream(self.torch_device))
        return self._enqueue(self.compute_stream, lambda: self._run(work, key))

    def divide(self, items: int, size: int, work: Callable[[slice], None]) -> None:
        work(slice(0, items))

    def copy(self, work: Callable[[], None], after: Event) -> CudaEvent:
        assert isinstance(after, CudaEvent)
        if after.error is not None:
            return after
        self._copy_stream.wait_event(after.mark)
        return self._enqueue(self._copy_stream, work)

    def close(self) -> None:
        torch.cuda.synchronize(self.torch_device)
        self._graphs.clear()

    def _enqueue(self, stream: torch.cuda.Stream, work: Callable[[], None]) -> CudaEvent:
        error: BaseException | None = None
        mark = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream), torch.inference_mode():
            try:
                work()
            except Exception as raised:  # whoever waits decides
                error = raised
            mark.record(stream)
        return CudaEvent(mark, error)

    def _run(self, work: Callable[[], None], key: Hashable) -> None:
        if (graph := self._graphs.get(key)) is not None:
            graph.replay()
            return
        work()
        if self._recording and key is not None:
            self._graphs[key] = self._record(work)

    def _record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Recording runs nothing.  Other threads may use CUDA meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self.compute_stream, capture_error_mode="thread_local"
        ):
            work()
        return graph


def upload(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A host tensor on the device; on a GPU the host does not wait for what the stream does before."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
