"""A forecaster of run times takes over by merit only, and no tenant's runs outvote those of the others."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.errors import ModelError
from cotide_predictors.learning import run_time_challenge
from cotide_predictors.learning.run_time_challenge import HOURS, RunTimeChallenge, RunTimeVerdict, judged

HOUR = 3600.0


def hours(*gains: float, noise: float = 0.02) -> list[dict[bytes, tuple[float, float]]]:
    """Hours of one namespace for each gain; the champion loses 0.4 on average, the challenger so much less."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(HOURS):
        hour = {}
        for number, gain in enumerate(gains):
            champion = 0.4 + noise * generator.normal()
            hour[b"%06d" % number] = (champion, champion - gain + noise * generator.normal())
        found.append(hour)
    return found


@pytest.mark.parametrize(
    ("gains", "noise", "promoted", "worse"),
    [
        ((0.05,), 0.02, True, 0),
        ((0.0,), 0.02, False, 0),
        ((0.005,), 0.001, False, 0),  # certain, and too little to notice
        ((-0.05,), 0.02, False, 1),
        ((0.3, -0.05), 0.02, False, 1),  # better by far in sum
        ((*[0.05] * 30, -0.05), 0.02, True, 1),  # one in thirty: as noise alone may show
        ((*[0.05] * 30, -0.05, -0.05), 0.02, False, 2),
    ],
)
def test_who_is_promoted(gains: tuple[float, ...], noise: float, promoted: bool, worse: int) -> None:
    verdict = judged(hours(*gains, noise=noise))
    assert (verdict.promoted, verdict.worse) == (promoted, worse)
    assert verdict.gain == pytest.approx(np.mean(gains), abs=0.01)


def test_a_gain_of_one_lucky_night_is_noise() -> None:
    """Six hours of 48 in which the challenger is better by .4: .05 on average, from one block of eight."""
    found = hours(0.0)
    for hour in found[12:18]:
        (name, (champion, _)) = next(iter(hour.items()))
        hour[name] = (champion, champion - 0.4)
    verdict = judged(found)
    assert verdict.gain > 0.03
    assert not verdict.promoted


def test_a_tenant_of_more_series_than_count_leaves_the_hour_to_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first three count alone, the others as one; of the other tenant's two, who comes later, both as one."""
    monkeypatch.setattr(run_time_challenge, "MOST_SERIES", 3)
    challenge = RunTimeChallenge()
    for number in range(7):
        challenge.score(b"busy__", b"series%d" % number, 0.9, 0.1 if number < 3 else 0.5, 0.0)
    for number, accuracy in enumerate((0.2, 0.4)):
        challenge.score(b"quiet_", b"series%d" % number, accuracy, 1.0, 0.0)
    challenge.score(b"busy__", b"series", 0.9, 0.1, HOUR)
    (hour,) = challenge.closed
    assert hour[b"busy__"] == pytest.approx((0.1, 0.8))
    assert hour[b"quiet_"] == pytest.approx((0.7, 0.0))


def play(challenge: RunTimeChallenge, count: int, begin: int = 0) -> list[RunTimeVerdict]:
    """Hours in which one tenant has ten thousand runs that speak against the challenger, and two others one each for
    it."""
    generator = np.random.default_rng(7)
    found = []
    for hour in range(begin, begin + count):
        noise = 0.01 * generator.normal()
        for namespace, runs, gain in ((b"loud..", 100, -0.005), (b"quiet1", 1, 0.1), (b"quiet2", 1, 0.1)):
            for _ in range(runs):
                verdict = challenge.score(namespace, b"a", 0.6, 0.6 + gain + noise, hour * HOUR)
                found += [verdict] if verdict is not None else []
    return found


def test_a_challenge_is_judged_once_at_the_end_of_its_last_hour_and_each_namespace_counts_once() -> None:
    challenge = RunTimeChallenge()
    assert play(challenge, HOURS) == []
    assert len(challenge.closed) == HOURS - 1
    champion, challenger = challenge.losses().tolist()
    assert champion == pytest.approx(0.4)
    assert challenger == pytest.approx(0.4 - 0.065, abs=0.01)  # (-0.005 + 0.1 + 0.1) / 3
    (verdict,) = play(challenge, 1, begin=HOURS)
    assert verdict.promoted
    assert challenge.closed == []


def test_series_of_a_namespace_count_alike_however_many_runs_they_have() -> None:
    """99 runs of one series at .9 and one of another at .5 are .7 on average."""
    challenge = RunTimeChallenge()
    for _ in range(99):
        challenge.score(b"shop..", b"many", 0.9, 0.9, 0.0)
    challenge.score(b"shop..", b"one", 0.5, 0.5, 0.0)
    challenge.score(b"shop..", b"one", 0.5, 0.5, HOUR)
    assert challenge.losses() == pytest.approx([0.3, 0.3])


def test_an_hour_without_runs_is_no_hour() -> None:
    challenge = RunTimeChallenge()
    for hour in (0, 5, 500):
        challenge.score(b"shop..", b"one", 0.5, 0.5, hour * HOUR)
    assert len(challenge.closed) == 2


def test_a_challenge_goes_on_after_a_restart() -> None:
    before, after = RunTimeChallenge(), RunTimeChallenge()
    play(before, 20)
    after.restore(before.arrays())
    np.testing.assert_allclose(after.losses(), before.losses(), rtol=1e-6)
    assert [verdict.promoted for verdict in play(after, 40, begin=20)] == [True]


def test_a_digest_keeps_the_namespaces_with_the_most_hours() -> None:
    challenge = RunTimeChallenge()
    for hour in range(4):
        challenge.score(b"always", b"a", 0.5, 0.5, hour * HOUR)
        if hour == 1:
            challenge.score(b"seldom", b"a", 0.5, 0.5, hour * HOUR)
    after = RunTimeChallenge()
    after.restore(challenge.arrays(1))
    assert [set(hour) for hour in after.closed] == [{b"always"}] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"losses": np.zeros((HOURS, 3, 2), np.float32)},
        {"losses": np.full((4, 3, 2), 2.0, np.float32)},
        {"losses": np.full((4, 3, 2), -0.1, np.float32)},
        {"losses": np.zeros((4, 2, 2), np.float32)},
        {"losses": np.zeros((4, 3, 2))},
        {"names": np.zeros(3, np.uint8)},
    ],
)
def test_a_challenge_that_can_not_be_is_refused(change: dict[str, np.ndarray]) -> None:
    before, after = RunTimeChallenge(), RunTimeChallenge()
    play(before, 5)
    with pytest.raises(ModelError, match="kept challenge"):
        after.restore({**before.arrays(), **change})
    assert after.closed == []
