"""What the event loop tells of connections is one line; of all else, the whole trace."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cotide_operator.observability.logging_setup import log_broken_connections

CLOSED = RuntimeError("unable to perform operation on a transport: the handler is closed")


@pytest.mark.parametrize(
    ("context", "has_trace"),
    [
        ({"message": "Fatal error on SSL protocol", "exception": CLOSED, "transport": object()}, False),
        ({"message": "Fatal error on SSL protocol", "exception": KeyError("a"), "transport": object()}, True),
        ({"message": "Task exception was never retrieved", "exception": CLOSED}, True),
    ],
)
def test_a_connection_that_broke_is_one_line(
    caplog: pytest.LogCaptureFixture, context: dict[str, object], has_trace: bool
) -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(log_broken_connections)
    with caplog.at_level(logging.INFO):
        loop.call_exception_handler(context)
    loop.close()
    (line,) = caplog.records
    assert bool(line.exc_info) is has_trace
    assert str(context["message"]) in line.getMessage()
