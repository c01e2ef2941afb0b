"""A forecaster of peaks takes over by merit only: better beyond noise, and worse for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_predictors.learning.peak_challenge import PeakChallenge, PeakVerdict, judged, pinball

SLOTS = 288


def losses(cpu: float, memory: float, *, noise: float = 0.02) -> np.ndarray:
    """Slots in which the champion loses 0.1 on average, the challenger so many times that; both meet the same days."""
    generator = np.random.default_rng(5)
    champion = 0.1 * (1 + noise * generator.normal(size=(SLOTS, 2)))
    own = champion * np.array([cpu, memory]) + 0.1 * noise * generator.normal(size=(SLOTS, 2))
    return np.stack([champion, own], axis=1)


@pytest.mark.parametrize(
    ("cpu", "memory", "noise", "promoted", "worse"),
    [
        (0.9, 0.9, 0.02, True, ()),
        (0.9, 1.0, 0.02, True, ()),
        (1.0, 1.0, 0.02, False, ()),
        (0.99, 0.99, 0.001, False, ()),  # certain, and too little to notice
        (0.5, 1.1, 0.02, False, ("memory",)),  # better by far in sum
        (1.2, 1.1, 0.02, False, ("cpu", "memory")),
    ],
)
def test_who_is_promoted(cpu: float, memory: float, noise: float, promoted: bool, worse: tuple[str, ...]) -> None:
    verdict = judged(losses(cpu, memory, noise=noise))
    assert (verdict.promoted, verdict.worse) == (promoted, worse)
    assert verdict.gain == pytest.approx(1 - (cpu + memory) / 2, abs=0.01)


def test_a_gain_that_one_lucky_hour_brought_is_noise() -> None:
    """Twelve slots of 288 in which the champion loses nine times as much: a third on average, from one block of
    eight."""
    found = losses(1.0, 1.0)
    found[100:112, 0] *= 9.0
    verdict = judged(found)
    assert verdict.gain > 0.2
    assert not verdict.promoted


def test_a_challenge_is_judged_once_at_its_end_and_forgotten() -> None:
    challenge = PeakChallenge()
    verdicts = [challenge.score(loss) for loss in losses(0.8, 0.8)[:-1]]
    assert verdicts == [None] * 287
    assert challenge.losses() == pytest.approx(np.array([[0.1, 0.1], [0.08, 0.08]]), rel=0.02)
    last = challenge.score(np.array([[0.1, 0.1], [0.08, 0.08]]))
    assert isinstance(last, PeakVerdict)
    assert last.promoted
    assert challenge.scored == 0
    assert np.isnan(challenge.losses()).all()


def test_a_slot_without_a_measured_node_is_no_slot() -> None:
    challenge = PeakChallenge()
    assert challenge.score(np.full((2, 2), np.nan)) is None
    assert challenge.scored == 0


def test_pinball_counts_a_miss_by_the_level_and_a_reserve_by_the_rest() -> None:
    """At p90: 0.5 above the forecast costs 0.45, 0.5 below 0.05; the mean is 0.25."""
    assert pinball(np.array([1.0, 0.0]), np.array([0.5, 0.5]), 0.9) == pytest.approx(0.25)
    assert np.isnan(pinball(np.array([]), np.array([]), 0.9))
