"""JSON that is nested far deeper than orjson allows (it reads 1,024 levels and writes 254).

Called wherever the emulator reads or writes an object. The fast path is orjson. Python's own json reads and writes
documents that orjson refuses for their depth, on a stack that is large enough. A real API server takes 10,000 levels,
and so does the emulator. Its checks recurse over an object, so that a request that meets a deep one runs again, from
its beginning, on a large stack (`Room`). So does every later request, since the stored object may be met again. Source:
https://github.com/golang/go/blob/master/src/encoding/json/scanner.go (maxNestingDepth)
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np
import orjson

T = TypeVar("T")
MAX_DEPTH: Final = 10_000
"""Largest accepted number of levels. Source: see the module."""
_MAX_QUICK: Final = 1024
"""Levels that orjson reads, and that fit on any stack."""
_STACK_BYTES: Final = 512 * 1024 * 1024
"""Chosen: 50 KB for each level; only touched pages use memory."""
_FRAMES: Final = 12
"""Python frames for each level in the deepest recursion of the emulator over an object, doubled."""
_ONE_AT_A_TIME: Final = threading.Lock()


class _StackState(threading.local):
    """Where this thread's work runs."""

    has_room = False
    """On a large stack."""
    may_begin_anew = False
    """By a `Room`, on an ordinary one."""


_STACK: Final = _StackState()


class _TooDeepHereError(Exception):
    """The document needs a large stack, and its request can run again there."""


class Room:
    """Runs requests on a stack with enough room; one for each server."""

    def __init__(self) -> None:
        self._met_deep = False

    def carry_out(self, work: Callable[[], T]) -> T:
        """Return the result of a piece of synchronous work, on a large stack where it needs one.

        Nothing was written when it starts again: a request's body is read first, and deep stored objects came by such a
        request, or are met for the first time after the server's start.
        """
        if self._met_deep:
            return on_a_large_stack(work)
        _STACK.may_begin_anew = True
        try:
            with _deep(_MAX_QUICK):
                return work()
        except _TooDeepHereError:
            self._met_deep = True
        finally:
            _STACK.may_begin_anew = False
        return on_a_large_stack(work)


@contextmanager
def _deep(levels: int) -> Iterator[None]:
    """Allow deep recursion into an object meanwhile; for work without an await."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES * levels))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def on_a_large_stack(work: Callable[[], T]) -> T:
    """Do a piece of work while the caller waits, where recursion in C has room for the deepest object.

    It runs as if in the caller's event loop, which does nothing else meanwhile.
    """
    outcome: list[T] = []
    fault: list[BaseException] = []
    loop = asyncio._get_running_loop()

    def run() -> None:
        _STACK.has_room = True
        asyncio._set_running_loop(loop)
        try:
            with _deep(MAX_DEPTH):
                outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            fault.append(error)
        finally:
            asyncio._set_running_loop(None)

    with _ONE_AT_A_TIME:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="deep JSON")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if fault:
        raise fault[0]
    return outcome[0]


def loads(body: bytes) -> Any:
    """Return decoded JSON.

    Raises
    ------
    ValueError
        When it is not JSON, or deeper than `MAX_DEPTH`.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not _too_deep(error):
            raise
        if depth_of(body) > MAX_DEPTH:
            raise ValueError("exceeded max depth") from None
        if _STACK.has_room:
            return json.loads(body)
        if _STACK.may_begin_anew:
            raise _TooDeepHereError from None
        return on_a_large_stack(lambda: json.loads(body))


def dumps(value: Any) -> bytes:
    """Return compact JSON."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        if not _too_deep(error):
            raise
        if _STACK.has_room:
            return _written(value)
        return on_a_large_stack(lambda: _written(value))


def _written(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def depth_of(body: bytes) -> int:
    """Return the depth of JSON, by its brackets outside of strings."""
    # Escapes are blanked out first, so that each remaining quote begins or ends a string.
    plain = np.frombuffer(body.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
    outside = (np.cumsum(plain == ord('"'), dtype=np.int64) & 1) == 0
    opens = outside & ((plain == ord("{")) | (plain == ord("[")))
    closes = outside & ((plain == ord("}")) | (plain == ord("]")))
    return int(np.cumsum(opens.astype(np.int64) - closes).max(initial=0))


def _too_deep(error: Exception) -> bool:
    """Whether orjson failed because of the depth; it has no error of its own for that."""
    text = str(error).lower()
    return "recursion limit" in text or "depth limit" in text
