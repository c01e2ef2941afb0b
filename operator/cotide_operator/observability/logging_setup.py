"""The operator's log: one line for each event on stderr, as text for people or JSON for machines.

The command line sets it up once. Invariant: data never goes to stderr and logs never to stdout; libraries log from
WARNING up only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

_LOG = logging.getLogger(__name__)

LEVELS: Final = ("debug", "info", "warning", "error")
Format = Literal["text", "json"]


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def set_up(level: str, style: Format) -> None:
    """Send our log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for package in ("cotide_operator", "cotide_node_agent", "cotide_kube"):
        logging.getLogger(package).setLevel(level.upper())


def log_broken_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a broken connection in one line, and other errors in full: an exception handler of a loop.

    The request on the connection fails with the error anyway. uvloop reports it once more, with a trace, if TLS had
    data to send on a connection that was closed meanwhile, as after a stop of the whole process.
    """
    if "transport" in context and isinstance(context.get("exception"), OSError | RuntimeError):
        _LOG.warning("a connection broke: %s: %s", context.get("message", ""), context["exception"])
    else:
        loop.default_exception_handler(context)
