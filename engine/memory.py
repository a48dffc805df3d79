"""How many pages of KV there are room for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.errors import EngineError
from engine.models.base import KvShape, Model

CACHED_IMAGES = 256
CPU_SHARE = 0.25
"""Of a machine's memory, which cached images would otherwise fill one after another."""
_MEMORY = re.compile("memory|overflow")
"""torch has no kind of its own for errors of the CPU's allocator."""
GPU_SHARE = 0.8
"""Of a GPU's memory that is free once the model is loaded; the rest is for activations and graphs."""


def page_bytes(kv: KvShape, page_size: int) -> int:
    """Keys and values of one page in every layer."""
    return 2 * kv.layers * page_size * kv.kv_heads * kv.head_dim * kv.dtype.itemsize


def count_pages(
    model: Model, page_size: int, max_batch: int, kv_memory: int | None, device: torch.device
) -> int:
    """Pages for half of `max_batch` rows at full context and 256 cached images on a CPU if they fit into a
    quarter of its memory, for all rows on a GPU if they fit into its free memory; or as many as fit into
    `kv_memory` bytes.

    Raises EngineError where not even two fit.
    """
    whole = max_batch * -(-model.max_context // page_size)
    images = CACHED_IMAGES * -(-model.image_tokens // page_size)
    size = page_bytes(model.kv, page_size)
    if kv_memory is not None:
        pages = kv_memory // size
    elif device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        pages = min(whole + images, int(free * GPU_SHARE) // size)
    else:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        pages = min(whole // 2 + images, int(memory * CPU_SHARE) // size)
    if pages < 2:
        raise EngineError(
            "out-of-memory", f"kv_memory must hold at least two pages of {size:,} bytes", "kv_memory"
        )
    return pages


@contextmanager
def allocating(kv_bytes: int, rows: int) -> Iterator[None]:
    """Around what takes the engine's memory.  Raises EngineError where there is not so much."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _MEMORY.search(str(error)):
            raise
        raise EngineError(
            "out-of-memory",
            f"no memory for {kv_bytes:,} bytes of KV and {rows:,} rows: lower kv_memory or max_batch",
            "kv_memory",
        ) from error
