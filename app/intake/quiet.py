"""Keeps what image libraries say about odd files out of the logs and off stderr.

Whatever matters to the caller of a picture is a note or a problem of its answer; the rest would be many lines
for each odd file, with the callers' metadata in them.
"""

from __future__ import annotations

import ctypes
import logging
import warnings
from contextlib import suppress
from pathlib import Path

import PIL

_LOGGERS = ("PIL", "tifffile", "pillow_heif")


def silence_image_libraries() -> None:
    """Drop the warnings, the log records and the stderr lines of the image libraries in this process."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.CRITICAL + 1)
        warnings.filterwarnings("ignore", module=rf"{name}(\.|$)")
    for path in _wheel_libraries():
        with suppress(OSError, AttributeError):  # without it the lines stay, and nothing else changes
            ctypes.CDLL(str(path)).TIFFSetErrorHandler(None)


def _wheel_libraries() -> list[Path]:
    """The libtiff in Pillow's wheel, which writes its errors to stderr unless it is told not to."""
    beside = Path(PIL.__file__).parent
    return sorted(Path(beside.parent, "pillow.libs").glob("libtiff*"))
