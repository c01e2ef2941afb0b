"""What the definitions take, the gate takes, too: no amount beyond 2^53 and no list beyond what is read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.limits import INDEXES_CHARACTERS, MAX_EXACT_INT
from cotide_core.units import resource_amount
from cotide_operator.apis.crd_generation import JOB, definition
from cotide_operator.apis.types import QUANTITY_PATTERN

SCHEMA = definition(JOB)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


@given(st.from_regex(re.compile(QUANTITY_PATTERN, re.ASCII), fullmatch=True))
def test_an_input_size_that_the_definition_takes_is_counted_exactly(text: str) -> None:
    assert 0 <= resource_amount("memory", text) <= MAX_EXACT_INT


@pytest.mark.parametrize(
    "text", ["1e30", "1e13", "1e999999", "8Ei", "9Pi", "9.1P", "9223372036854775807", "1" * 40_000, "-1"]
)
def test_an_input_size_that_nobody_has_is_refused(text: str) -> None:
    assert re.fullmatch(QUANTITY_PATTERN, text) is None


@pytest.mark.parametrize("text", ["0", "4Gi", "1.5G", "250m", "8Pi", "+2k", ".5", "1e3", "100Ti", "123456789012345"])
def test_an_input_size_that_somebody_may_have_is_taken(text: str) -> None:
    assert re.fullmatch(QUANTITY_PATTERN, text) is not None


def test_lists_of_indexes_are_bounded_where_they_are_stored() -> None:
    status = SCHEMA["status"]["properties"]
    assert status["completedIndexes"]["maxLength"] == status["retriedIndexes"]["maxLength"] == INDEXES_CHARACTERS
    # 10,000 indexes that all needed a thousand further pods: "9999:1000," is ten characters.
    assert 10_000 * len("9999:1000,") <= INDEXES_CHARACTERS
