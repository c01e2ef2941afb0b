"""The inputs that fuzzing begins with, and a few hostile ones for every parser: nothing but its own error."""

from __future__ import annotations

import pytest
from fuzz_targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st

HOSTILE = (b"", b"\x00", b"\xff\xfe", b"[" * 10_000, b'{"a":' * 10_000, b"9" * 65_536, b"1e308", b"NaN", b'"' * 999)


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_raises_nothing_but_its_own_error(name: str) -> None:
    target, seeds = TARGETS[name]
    for data in (*seeds, *HOSTILE):
        target(data)
        for cut in (1, len(data) // 2, len(data) - 1):
            target(data[:cut])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(TARGETS)), st.binary(max_size=300))
def test_nor_does_it_of_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name][0](data)
