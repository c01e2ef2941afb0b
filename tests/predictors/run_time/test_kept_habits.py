"""Learned run times as bytes: the same forecasts after a restart, and nothing of a file that somebody changed."""

from __future__ import annotations

import numpy as np
import pytest
from engine_objects import pod

from cotide_core.errors import ModelError
from cotide_core.events import PodPhase, PodUpserted
from cotide_core.forecasting.heuristics import HeuristicCompletion
from cotide_predictors.persistence.model_files import pack, write_arrays
from cotide_predictors.run_time.habits import namespace_weights
from cotide_predictors.run_time.habits.kept_habits import KIND, arrays_of, file_of, kept, restore, to_files
from cotide_predictors.run_time.habits.keyed_states import KeyedStates
from cotide_predictors.run_time.habits.likeness import likeness_of
from cotide_predictors.run_time.habits.live_catalogue import HABITS, LIVE_PREDICTORS, LivePredictor
from cotide_predictors.run_time.habits.namespace_weights import FIRST_LEVEL, NamespaceWeights, read
from cotide_predictors.run_time.habits.pod_run_times import PodRunTimes

FILE = file_of("habits")


def taught(*seconds: float, champion: LivePredictor = HABITS) -> PodRunTimes:
    """Run times of namespaces n0, n1 and n2 in turn."""
    run_times = PodRunTimes(champion)
    for number, length in enumerate(seconds):
        one = pod(f"n{number % 3}/etl-{number}", job=f"n{number % 3}/etl-{number}", requested_seconds=60.0)
        run_times.arrived([PodUpserted(one)], HeuristicCompletion())
        over = one._replace(phase=PodPhase.SUCCEEDED, started_seconds=0.0, finished_seconds=length)
        run_times.arrived([PodUpserted(over)], HeuristicCompletion())
    return run_times


@pytest.mark.parametrize("name", LIVE_PREDICTORS)
def test_after_a_restart_every_forecast_is_as_before(name: LivePredictor) -> None:
    before, after = taught(*range(20, 320, 10), champion=name), PodRunTimes(name)
    restore(after, to_files(kept(before)))
    for namespace in ("n0", "n1", "n2", "n3"):
        question = likeness_of(pod(f"{namespace}/etl-7", job=f"{namespace}/etl-7")), 60.0
        assert repr(after.forecaster.forecast(*question)) == repr(before.forecaster.forecast(*question))
    assert after.accuracies == before.accuracies


def test_a_digest_keeps_what_was_learned_last() -> None:
    before, after = taught(100.0, 200.0, 300.0), PodRunTimes()
    restore(after, to_files(kept(before, most_keys=1)))
    alike = [
        after.forecaster.forecast(likeness_of(pod(f"n{n}/etl-7", job=f"n{n}/etl-7")), 60.0).alike for n in range(3)
    ]
    assert alike == [0, 0, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"runs0": np.full((3, 5), -1)},
        {"runs0": np.zeros((2, 5))},
        {"runs1": np.full((3, 5), 10**9)},
        {"keys0": np.zeros((3, 16), np.uint8)},
        {"keys0": np.zeros((3, 4), np.uint8)},
        {"case_weights": np.zeros((3, 2, 27))},
        {"case_weights": np.full((3, 2, 27), np.nan)},
        {"case_counts": np.zeros(3, np.int64)},
        {"cases": np.full((3, 2), 25, np.int32)},
        {"cases": np.full((3, 2), -1, np.int32)},
        {"learners": np.zeros((3, 6), np.uint8)},
        {"levels": np.full(3, np.nan)},
        {"levels": np.full(2, 0.9)},
        {"outcomes": np.full((3, 2, 40), np.inf)},
        {"outcomes": np.tile([[[0.0], [1.0]]], (3, 1, 40))},
        {"accuracies": np.full((3, 3), 2.0)},
    ],
)
def test_numbers_that_can_not_be_are_refused_and_nothing_is_taken_up(change: dict[str, np.ndarray]) -> None:
    arrays = {**arrays_of(taught(100.0, 200.0, 300.0).contenders[0]), **change}
    run_times = PodRunTimes()
    with pytest.raises(ModelError, match="habits"):
        restore(run_times, pack(KIND, {}, {FILE: write_arrays(arrays)}))
    assert len(run_times.forecaster) == 0
    assert run_times.accuracies == {}


def test_of_a_mixture_kept_with_one_set_of_weights_for_all_the_past_runs_are_taken_up() -> None:
    arrays = arrays_of(taught(100.0, 200.0, 300.0).contenders[0])
    for name in ("learners", "levels", "cases", "case_counts", "case_weights"):
        del arrays[name]
    shared = {
        "weights": np.full((25, 2, 27), 1 / 54), "counts": np.full(25, 10**6), "level": np.array([0.5]),
        "outcomes": np.full((2, 40), 7.0),
    }  # fmt: skip
    after = PodRunTimes()
    restore(after, pack(KIND, {}, {FILE: write_arrays({**arrays, **shared})}))
    found = [after.forecaster.forecast(likeness_of(pod(f"n{n}/etl-7", job=f"n{n}/etl-7")), 60.0) for n in range(3)]
    assert [one.alike for one in found] == [1, 1, 1]
    assert [one.seconds for one in found] == [pytest.approx(100, abs=9), pytest.approx(200, abs=9), 300]


def test_a_digest_of_weights_fits_its_bytes_and_is_of_the_namespaces_that_learned_last() -> None:
    weights = NamespaceWeights()
    for number in range(500):
        learned = weights.taught(number.to_bytes(6, "big"))
        learned.counts[: 1 + number % 25] = 1
    arrays = weights.arrays(120_000)
    assert sum(array.nbytes for array in arrays.values()) <= 120_000
    names = [row.tobytes() for row in arrays["learners"]]
    assert len(names) > 30
    assert names == [number.to_bytes(6, "big") for number in range(500 - len(names), 500)]
    found = read(arrays, names)
    assert [np.count_nonzero(found[name].counts) for name in names] == [
        1 + number % 25 for number in range(500 - len(names), 500)
    ]


def test_of_a_digest_half_is_half_as_large() -> None:
    run_times = PodRunTimes("habits", "fmkf")
    for number in range(400):
        one = pod(f"n{number}/etl", job=f"n{number}/etl", requested_seconds=60.0)
        over = one._replace(phase=PodPhase.SUCCEEDED, started_seconds=0.0, finished_seconds=100.0 + number)
        run_times.arrived([PodUpserted(one), PodUpserted(one)], HeuristicCompletion())
        run_times.arrived([PodUpserted(over)], HeuristicCompletion())
    whole, half = (
        sum(array.nbytes for arrays in kept(run_times, 400, halvings).values() for array in arrays.values())
        for halvings in range(2)
    )
    assert half < 0.6 * whole


def test_of_too_many_namespaces_the_one_that_learned_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_weights, "MOST_NAMESPACES", 2)
    weights = NamespaceWeights()
    for name in (b"a", b"b", b"a", b"c"):
        weights.taught(name).level[0] = 0.6
    assert [float(weights.of(name).level[0]) for name in (b"a", b"b", b"c")] == [0.6, FIRST_LEVEL, 0.6]


def test_shares_are_those_of_what_was_taken_up() -> None:
    """Of three keys one goes for a newcomer: the oldest of the namespace that has two of them."""
    table = KeyedStates(np.zeros(1), np.full(1, 9.0), 3)
    names = [b"aaaaaa0000000001", b"bbbbbb0000000001", b"bbbbbb0000000002", b"cccccc0000000001", b"bbbbbb0000000003"]
    table.replace({name: np.ones(1) for name in names[:3]})
    table.put(names[3], np.ones(1))
    assert [table.get(name) is not None for name in names] == [True, False, True, True, False]
    table.retain([b"bbbbbb"])
    table.put(names[2], np.full(1, np.nan))
    for name in names[:3]:
        table.put(name, np.ones(1))
    table.put(names[4], np.ones(1))
    assert [table.get(name) is not None for name in names] == [True, False, True, False, True]


def test_a_changed_byte_and_a_model_of_another_kind_are_refused() -> None:
    files = to_files(kept(taught(100.0)))
    with pytest.raises(ModelError, match="sha256"):
        restore(PodRunTimes(), {**files, FILE: files[FILE][:-1] + b"x"})
    with pytest.raises(ModelError, match="hold no run times"):
        restore(PodRunTimes(), pack("qos", {}, {FILE: files[FILE]}))


def table_of(name: LivePredictor, **change: np.ndarray) -> dict[str, bytes]:
    """Files of three runs of 100 s, with some arrays changed."""
    arrays = {**arrays_of(taught(100.0, 100.0, 100.0, champion=name).contenders[0]), **change}
    return to_files({file_of(name): arrays})


@pytest.mark.parametrize(
    "change",
    [
        {"owners_rows": np.full((3, 60), np.nan)},
        {"owners_rows": np.full((3, 60), 1e9)},
        {"owners_rows": np.zeros((2, 60))},
        {"owners_rows": np.zeros((3, 60), np.int64)},
        {"owners_keys": np.zeros((3, 16), np.uint8)},
        {"namespaces_keys": np.zeros((3, 4), np.uint8)},
    ],
)
def test_a_table_that_can_not_be_is_refused_and_nothing_is_taken_up(change: dict[str, np.ndarray]) -> None:
    run_times = PodRunTimes("fmkf")
    with pytest.raises(ModelError, match="fmkf"):
        restore(run_times, table_of("fmkf", **change))
    assert len(run_times.forecaster) == 0
    assert run_times.accuracies == {}


def test_a_forecaster_takes_up_what_was_kept_of_it_and_leaves_what_was_kept_of_others() -> None:
    run_times = PodRunTimes("fmkf", "mlkf")
    restore(run_times, table_of("mlkf"))
    assert [len(contender.forecaster) for contender in run_times.contenders] == [0, 3]


def test_a_digest_of_a_table_fits_its_bytes_and_is_of_the_latest() -> None:
    """16 bytes of key and 4 of number a row: 100 rows in 2,000 bytes."""
    table = KeyedStates(np.zeros(1), np.full(1, 1e6), 1_000)
    for number in range(500):
        table.put(number.to_bytes(16, "big"), np.array([float(number)]))
    keys, rows = table.arrays(2_000)
    assert (len(keys), rows.dtype) == (100, np.float32)
    assert rows[:, 0].tolist() == list(range(400, 500))
