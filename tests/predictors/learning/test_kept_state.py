"""Samples and trust as bytes: exact to single precision, and refused when somebody changed them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cotide_core.errors import ModelError
from cotide_core.recording.samples import MeasuredMix
from cotide_predictors.learning.kept_state import ARRAYS, from_files, to_files
from cotide_predictors.learning.service_trust import SlotRecord
from cotide_predictors.persistence.model_files import MANIFEST, pack, write_arrays

SAMPLES = [
    MeasuredMix("d/web", 100.0, 0.0, 10.0, 0.25, (("sort", 2, 2**33), ("", 1, 0)), 4.5),
    MeasuredMix("d/db", 7.0, 3.0, 200.0, 0.0, (), 250.0),
]
WINDOWS = {"d/web": ("Trusted", [SlotRecord(10, 0.5, 1.5, 9, 0, 1)]), "d/new": ("Learning", [])}


def test_what_is_written_is_read_back() -> None:
    samples, windows, model = from_files(to_files(SAMPLES, WINDOWS, "m"))
    assert samples == SAMPLES
    assert windows == WINDOWS
    assert model == "m"


def test_nothing_is_something_that_can_be_kept() -> None:
    assert from_files(to_files([], {}, "")) == ([], {}, "")


def test_a_changed_byte_is_found() -> None:
    files = to_files(SAMPLES, WINDOWS, "m")
    with pytest.raises(ModelError, match="sha256"):
        from_files({**files, ARRAYS: files[ARRAYS][:-1] + b"x"})


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": np.array([[1.0, 0, 10, 0, np.nan]])},
        {"numbers": np.array([[1.0, 0, 10, 0, -4.0]])},
        {"service": np.array([9])},
        {"jobs": np.array([[0, 3, 1, 1.0]])},
        {"jobs": np.array([[5, 0, 1, 1.0]])},
        {"records": np.zeros((1, 3))},
    ],
)
def test_numbers_that_do_not_fit_are_refused(change: dict[str, np.ndarray]) -> None:
    arrays = {
        "service": np.array([0]),
        "numbers": np.array([[1.0, 0, 10, 0, 4.0]]),
        "jobs": np.zeros((0, 4)),
        "records": np.zeros((0, 7)),
        **change,
    }
    body = {"services": ["d/web"], "types": ["sort"], "trust": {}, "model": ""}
    with pytest.raises(ModelError):
        from_files(pack("learned", body, {ARRAYS: write_arrays(arrays)}))


def test_a_model_is_no_state() -> None:
    files = to_files([], {}, "")
    document = json.loads(files[MANIFEST]) | {"kind": "qos"}
    with pytest.raises(ModelError, match="hold no samples"):
        from_files({**files, MANIFEST: json.dumps(document).encode()})
