"""Few uncertain refusals are tried: bounded in number and in risk, and never beside an exclusive service."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from cotide_core.config import ExplorationConfig
from cotide_core.placement.exploration import LEAST_ACCEPTED, Exploration


def snapshot(exclusive: int = 0) -> Any:
    """As much of one as it looks at: a row with one service."""
    services = [[SimpleNamespace(workload="shop/web")]]
    return SimpleNamespace(exclusive_counts=np.array([exclusive]), columns=SimpleNamespace(services=services))


def accepting(count: int, share: float = 0.01) -> Exploration:
    exploration = Exploration(ExplorationConfig(share, 0.3))
    for _ in range(count):
        exploration.accepted(snapshot(), 0)
    return exploration


def test_one_of_a_hundred_is_tried() -> None:
    exploration, tried = accepting(99), []
    assert not exploration.allows(snapshot(), 0, 0.2)
    for accepted in range(100, 401):
        exploration.accepted(snapshot(), 0)
        if exploration.allows(snapshot(), 0, 0.2):
            exploration.tried(snapshot(), 0)
            tried.append(accepted)
    assert tried == [100, 200, 300, 400]


def test_nothing_is_tried_in_the_first_twenty() -> None:
    assert not accepting(LEAST_ACCEPTED - 1, share=0.1).allows(snapshot(), 0, 0.2)
    assert accepting(LEAST_ACCEPTED, share=0.1).allows(snapshot(), 0, 0.2)


def test_a_sure_refusal_stands() -> None:
    assert not accepting(1000).allows(snapshot(), 0, 0.31)


def test_beside_an_exclusive_service_nothing_is_tried() -> None:
    assert not accepting(1000).allows(snapshot(exclusive=1), 0, 0.2)


def test_without_knobs_there_is_none() -> None:
    exploration = Exploration(None)
    for _ in range(1000):
        exploration.accepted(snapshot(), 0)
    assert not exploration.allows(snapshot(), 0, 0.0)
