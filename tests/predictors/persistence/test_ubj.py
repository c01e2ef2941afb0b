"""Universal Binary JSON as xgboost writes it, and bytes that are none."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_predictors.persistence import ubj

Value = Any


def written(value: Value) -> bytes:
    """The value as UBJ, each number in its widest form, each container without a count."""
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int):
        return b"L" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + text(value)
    if isinstance(value, list):
        return b"[" + b"".join(map(written, value)) + b"]"
    return b"{" + b"".join(text(key) + written(item) for key, item in value.items()) + b"}"


def text(value: str) -> bytes:
    raw = value.encode()
    return b"l" + struct.pack(">i", len(raw)) + raw


documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=8,
)


@given(documents)
def test_what_was_written_comes_back(value: Value) -> None:
    assert ubj.decode(written(value)) == value


@given(st.binary(max_size=60))
def test_bytes_that_are_no_document_are_refused_and_nothing_else_happens(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        ubj.decode(raw)


@settings(max_examples=50)
@given(documents, st.integers(0, 30))
def test_a_document_that_was_cut_is_refused(value: Value, missing: int) -> None:
    raw = written(value)
    with pytest.raises(ValueError, match=r"."):
        ubj.decode(raw[: -1 - missing])


def test_an_array_of_one_sort_of_number_becomes_an_array_of_this_machines_numbers() -> None:
    found = ubj.decode(b"[$d#U\x03" + struct.pack(">3f", 1.5, -2.0, math.inf))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert found.tolist() == [1.5, -2.0, math.inf]


def test_counted_values_have_no_end_mark() -> None:
    assert ubj.decode(b"[#i\x02i\x07Z") == [7, None]


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (b"", "ends within a value"),
        (b"TT", "1 bytes too many"),
        (b"not a model", "nothing is marked b'n'"),
        (b"[$d#L" + struct.pack(">q", 2**60), "ends within a value"),
        (b"[#L" + struct.pack(">q", 2**60), "ends within a value"),
        (b"Si\xff", "no length"),
        (b"[$Z#i\x01", "an array of b'Z'"),
        (b"[" * 100_000, "more than 64 containers"),
    ],
)
def test_each_fault_is_named(raw: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ubj.decode(raw)


def test_a_model_says_the_same_as_in_json() -> None:
    generator = np.random.default_rng(1)
    data = xgboost.DMatrix(generator.normal(size=(50, 3)), generator.integers(0, 2, 50))
    model = xgboost.train({"objective": "binary:logistic", "nthread": 1}, data, 3)
    mine = ubj.decode(bytes(model.save_raw("ubj")))["learner"]["gradient_booster"]["model"]["trees"]
    theirs = json.loads(bytes(model.save_raw("json")))["learner"]["gradient_booster"]["model"]["trees"]
    for name in ("left_children", "right_children", "split_indices"):
        assert [tree[name].tolist() for tree in mine] == [tree[name] for tree in theirs]
    conditions = [tree["split_conditions"].tolist() for tree in mine]
    assert conditions == [np.float32(tree["split_conditions"]).tolist() for tree in theirs]
