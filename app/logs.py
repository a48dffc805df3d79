"""Logs of every process: one JSON object a line on stderr. Images and phrases are never logged."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar

import structlog
from structlog.typing import EventDict, Processor

EXCHANGE: ContextVar[dict[str, str]] = ContextVar("exchange")
"""What all lines about one HTTP exchange say: its request id, and the ticket once it has one."""


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
        _of_exchange,
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
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("aiosqlite", "alembic"):  # they tell of every query, with its values, and of every start
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _of_exchange(_logger: object, _method: str, event: EventDict) -> EventDict:
    event.update(EXCHANGE.get({}))
    return event
