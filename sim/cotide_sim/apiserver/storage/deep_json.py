"""JSON that is nested far deeper than orjson goes (it reads 1,024 levels and writes 254).

Called wherever the emulator reads or writes an object. The fast path is orjson's; what that refuses for its depth is
read and written by Python's own json, on a stack that is large enough, and worked on with a raised recursion limit:
for that one piece of synchronous work, so that whoever shares the process is not spared a depth that would trip it
elsewhere. A real API server takes 10,000 levels; of those the emulator takes `DEPTH_MOST`, since its checks recurse on
the stack of whatever thread it was started in.
Source: https://github.com/golang/go/blob/master/src/encoding/json/scanner.go (maxNestingDepth)
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import orjson

T = TypeVar("T")
DEPTH_MOST: Final = 4000
"""Chosen: half of what 8 MiB of stack were seen to bear."""
_STACK_BYTES: Final = 256 * 1024 * 1024
"""Chosen: 60 KB for each level; only what is touched is memory."""
_ONE_AT_A_TIME: Final = threading.Lock()
_FRAMES: Final = 12 * DEPTH_MOST
"""Python frames that the deepest recursion of the emulator over an object takes, and as many again."""


@contextmanager
def deep() -> Iterator[None]:
    """Let what is done meanwhile recurse as deep as an object may be nested; for work that gives way to nobody."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def on_a_large_stack(work: Callable[[], T]) -> T:
    """Do a piece of work while the caller waits, where recursion in C finds room for the deepest object."""
    outcome: list[T] = []
    fault: list[BaseException] = []

    def run() -> None:
        try:
            with deep():
                outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            fault.append(error)

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
        When it is no JSON, or deeper than `DEPTH_MOST`.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not _too_deep(error):
            raise
        if depth_of(body) > DEPTH_MOST:
            raise ValueError("exceeded max depth") from None
        return on_a_large_stack(lambda: json.loads(body))


def dumps(value: Any) -> bytes:
    """Return compact JSON."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        if not _too_deep(error):
            raise
        return on_a_large_stack(lambda: json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def depth_of(body: bytes) -> int:
    """Return how deep JSON is nested, by its brackets outside of strings."""
    level = deepest = 0
    inside = escaped = False
    for character in body:
        if escaped:
            escaped = False
        elif inside:
            escaped = character == 0x5C
            inside = character != 0x22
        elif character == 0x22:
            inside = True
        elif character in b"{[":
            level += 1
            deepest = max(deepest, level)
        elif character in b"}]":
            level -= 1
    return deepest


def _too_deep(error: Exception) -> bool:
    """Whether orjson gave up for the depth; it has no error of its own for that."""
    text = str(error).lower()
    return "recursion limit" in text or "depth limit" in text
