"""The soak's word "flat" can be refused: a leak in the second half of a run is one, what fills before is none."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MIB = 1 << 20
SAMPLES = 600


@pytest.fixture(scope="module")
def soak() -> Iterator[ModuleType]:
    folder = Path(__file__).resolve().parents[2] / "benchmarks" / "days"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)  # where a program's own folder is when it runs
        yield importlib.import_module("soak")


def judged(soak: ModuleType, memory: Any, series: Any = lambda _: 60) -> tuple[dict[str, Any], list[str]]:
    return soak.verdict([soak.Sample(at, int(memory(at)), series(at), at * 10) for at in range(SAMPLES)])


def test_a_flat_run_with_an_allocators_noise_is_flat(soak: ModuleType) -> None:
    figures, grew = judged(soak, lambda at: 300 * MIB + (at % 7) * MIB)
    assert grew == []
    assert abs(figures["bytes_a_pod"]) < 1000


def test_caches_that_fill_in_the_first_half_are_no_leak(soak: ModuleType) -> None:
    assert judged(soak, lambda at: 250 * MIB + min(at, 290) * MIB // 4)[1] == []


def test_a_kilobyte_that_is_never_given_back_for_each_pod_is_a_leak(soak: ModuleType) -> None:
    # 20 pods a sample; between the middles of the two thirds lie 200 samples: 4,000 pods, 4,096,000 + 15 % bytes
    figures, grew = judged(soak, lambda at: 250 * MIB + at * 20 * 1180)
    assert (grew, figures["bytes_a_pod"]) == (["memory_bytes"], 1180)


def test_a_leak_that_begins_late_is_seen(soak: ModuleType) -> None:
    assert judged(soak, lambda at: 250 * MIB + max(0, at - 400) * MIB // 10)[1] == ["memory_bytes"]


def test_a_series_for_each_name_is_growth_and_a_label_of_fifteen_values_is_not(soak: ModuleType) -> None:
    assert judged(soak, lambda _: 300 * MIB, lambda at: 60 + 15 * (at > 450))[1] == []
    assert judged(soak, lambda _: 300 * MIB, lambda at: 60 + at)[1] == ["series"]
