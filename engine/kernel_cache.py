"""The folder where Triton keeps compiled kernels."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)


def ensure_writable_cache() -> None:
    """Has kernels kept in a temporary folder, and logs a warning, if Triton's folder cannot be written.

    Triton would fail on its first kernel. Each process then compiles the kernels again.
    """
    from triton import knobs

    folder = Path(knobs.cache.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        reason = error.strerror or str(error)
    knobs.cache.dir = tempfile.mkdtemp(prefix="pointbox-kernels-")
    log.warning(
        "compiled kernels cannot be kept in %s (%s): every start compiles them again; set TRITON_CACHE_DIR",
        folder,
        reason,
    )
