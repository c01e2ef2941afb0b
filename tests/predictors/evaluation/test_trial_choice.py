"""Fair baselines: as many trials for each, chosen on training rows, and the same columns as ours has."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.forecasts import MixBatch
from cotide_core.kernels.array_types import Indices
from cotide_lab.predictors.evaluation.baselines import (
    ACCEPT_ALL,
    LOGISTIC,
    QOS_BASELINES,
    REFUSE_ALL,
    QosBaseline,
    qos_columns,
)
from cotide_lab.predictors.evaluation.held_out import OUR_TRIALS
from cotide_lab.predictors.evaluation.trial_choice import TRIALS, choose, log_loss


def mixes(rates: list[float]) -> MixBatch:
    """One job of 1 MB beside each even row."""
    count = len(rates)
    jobs = (np.arange(count) % 2 == 0).astype(float)[:, None]
    nothing = np.zeros(count)
    return MixBatch(np.array(rates), nothing, np.ones(count), nothing, ("sort",), jobs, 1e6 * jobs)


def test_every_contender_has_as_many_trials() -> None:
    assert len(OUR_TRIALS) == TRIALS
    assert {len(method.trials) for method in QOS_BASELINES.values() if method.build} == {TRIALS}
    with pytest.raises(ValueError, match="6 trials, not 1"):
        choose(["a"], np.arange(20), 0, lambda *_: 0.0)


def test_a_rival_sees_the_logarithms_that_ours_sees() -> None:
    found = qos_columns(mixes([np.e - 1.0, 9.0]))
    one_megabyte = np.log1p(1e6)
    # Rate, others, pressure, count, bytes; log rate, log others, log bytes; count x log rate.
    assert found[0] == pytest.approx([np.e - 1.0, 0, 0, 1, 1e6, 1.0, 0, one_megabyte, 1.0])
    assert found[1] == pytest.approx([9.0, 0, 0, 0, 0, np.log(10.0), 0, 0, 0])


def test_the_trial_with_the_lowest_loss_on_held_out_cells_is_chosen() -> None:
    cells = np.repeat(np.arange(12), 2)
    asked: list[tuple[int, Indices, Indices]] = []

    def loss(trial: int, learned: Indices, held: Indices) -> float:
        asked.append((trial, learned, held))
        return abs(trial - 4.0)

    assert choose(range(6), cells, 0, loss) == 4
    for _, learned, held in asked:
        assert not set(cells[learned].tolist()) & set(cells[held].tolist())
        assert len(held) == 6  # three of twelve cells, two rows each
    assert choose(range(6), np.arange(7), 0, loss) == 0, "seven cells are too few for a choice"


def test_log_loss_by_hand() -> None:
    assert log_loss(np.array([0.8, 0.0]), np.array([True, False])) == pytest.approx((-np.log(0.8) - np.log(0.999)) / 2)


def test_a_rival_chooses_a_stiff_model_for_noise_and_a_loose_one_for_a_law() -> None:
    generator = np.random.default_rng(0)
    rates = np.exp(generator.uniform(0.0, 10.0, 400)).tolist()
    asked = mixes(rates)
    law = np.where(np.array(rates) > np.exp(5.0), 2.0, 0.5)
    noise = generator.choice([0.5, 2.0], 400)
    by_law = QosBaseline(method=LOGISTIC, limit_milliseconds=1.0).fit(asked, law)
    by_noise = QosBaseline(method=LOGISTIC, limit_milliseconds=1.0).fit(asked, noise)
    assert by_law.settings_["C"] > by_noise.settings_["C"]
    # A threshold in the logarithm: a straight line in the rate itself would miss a fifth of these.
    assert (by_law.predict(asked) == (law > 1.0)).mean() > 0.97


@pytest.mark.parametrize(("method", "probability"), [(REFUSE_ALL, 1.0), (ACCEPT_ALL, 0.0)])
def test_two_contenders_answer_without_a_look(method: str, probability: float) -> None:
    rival = QosBaseline(method=method, limit_milliseconds=1.0).fit(mixes([1.0, 2.0]), np.array([0.5, 2.0]))
    assert rival.violation_probability(mixes([3.0])).tolist() == [probability]
    assert rival.predict(mixes([3.0])).tolist() == [bool(probability)]
