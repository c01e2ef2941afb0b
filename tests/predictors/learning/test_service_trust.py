"""Trust by service: earned over slots, lost by coverage or Brier score, and earned back."""

from __future__ import annotations

import numpy as np

from cotide_predictors.learning.service_trust import ServiceTrust, Trust

THRESHOLD = 0.1
WEB = "d/web"


def pass_slots(
    trust: ServiceTrust, first: int, slots: int, *, model: float, broken: float, heuristic: float = 0.4, each: int = 10
) -> int:
    """Score ten samples a slot, of which a share broke; return the next slot."""
    labels = np.arange(each) < broken * each
    for slot in range(first, first + slots):
        trust.score([WEB] * each, np.full(each, model), np.full(each, heuristic), labels, slot)
    return first + slots


def test_it_takes_48_slots_to_be_trusted() -> None:
    trust = ServiceTrust(THRESHOLD)
    after = pass_slots(trust, 0, 48, model=0.01, broken=0.0)  # the 48th is not over yet
    assert trust.state(WEB) is Trust.LEARNING
    pass_slots(trust, after, 1, model=0.01, broken=0.0)
    assert trust.state(WEB) is Trust.TRUSTED
    assert trust.trusted() == (WEB,)


def test_a_model_that_is_worse_than_the_heuristic_is_not_trusted() -> None:
    trust = ServiceTrust(THRESHOLD)
    pass_slots(trust, 0, 60, model=0.6, broken=0.0, heuristic=0.05)
    assert trust.state(WEB) is Trust.LEARNING


def test_it_falls_back_where_more_breaks_than_the_guard_promises_and_comes_back() -> None:
    """Of ten accepted samples a slot three break: after n of 288 slots coverage is 1 - .3 n / (60 + n)."""
    trust = ServiceTrust(THRESHOLD)
    after = pass_slots(trust, 0, 60, model=0.05, broken=0.0)
    after = pass_slots(trust, after, 20, model=0.05, broken=0.3)
    assert trust.state(WEB) is Trust.TRUSTED  # 1 - .3 x 20/80 = .925
    after = pass_slots(trust, after, 15, model=0.05, broken=0.3)
    assert trust.state(WEB) is Trust.FALLEN_BACK  # .3 x 34/94 = .109
    pass_slots(trust, after, 300, model=0.05, broken=0.0)
    assert trust.state(WEB) is Trust.TRUSTED


def test_precision_and_recall_are_of_saying_that_it_breaks() -> None:
    trust = ServiceTrust(THRESHOLD)
    said, broke = np.array([0.9, 0.9, 0.0, 0.0]), np.array([True, False, True, False])
    for slot in (0, 1):
        trust.score([WEB] * 4, said, said, broke, slot)
    scores = trust.scores(WEB)
    assert (scores.records, scores.precision, scores.recall, scores.coverage) == (1, 0.5, 0.5, 0.5)
    assert scores.brier == np.mean((said - broke) ** 2)


def test_services_stand_for_themselves() -> None:
    trust = ServiceTrust(THRESHOLD)
    for slot in range(60):
        trust.score([WEB, "d/db"], np.array([0.0, 0.0]), np.array([0.5, 0.0]), np.array([False, True]), slot)
    assert trust.trusted() == (WEB,)


def test_what_is_kept_is_what_is_restored() -> None:
    trust, again = ServiceTrust(THRESHOLD), ServiceTrust(THRESHOLD)
    pass_slots(trust, 0, 60, model=0.01, broken=0.0)
    again.restore(trust.windows(48))
    assert again.trusted() == (WEB,)
    assert again.scores(WEB).records == 48
