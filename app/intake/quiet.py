"""Keeps what image libraries say about odd files out of the logs and off stderr.

Whatever matters to the caller of a picture is a note or a problem of its answer; the rest would be many lines
for each odd file, with the callers' metadata in them.
"""

from __future__ import annotations

import logging
import warnings

_LOGGERS = ("PIL", "tifffile", "pillow_heif")


def silence_image_libraries() -> None:
    """Drop the warnings and the log records of the image libraries in this process."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
        logger.setLevel(logging.CRITICAL + 1)
        warnings.filterwarnings("ignore", module=rf"{name}(\.|$)")
