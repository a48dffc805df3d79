"""Logs of every process: one JSON object a line on stderr. Images and phrases are never logged."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor


def configure(level: str, process: str) -> None:
    """Send structlog's and the standard library's logs through one JSON formatter.

    Args:
        level: debug, info, warning or error.
        process: written into every line: api, worker or serve.
    """

    def named(_logger: object, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        named,
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("aiosqlite", "alembic"):  # they tell of every query, with its values, and of every start
        logging.getLogger(chatty).setLevel(logging.WARNING)
