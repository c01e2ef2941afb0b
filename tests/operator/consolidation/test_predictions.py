"""What consolidation predicted is scored once, when it came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotide_operator.consolidation.predictions import Predictions, Refusal


class Scores:
    """Predictions and what they were scored as."""

    def __init__(self) -> None:
        self.scored: list[tuple[str, str, str]] = []
        self.figures: list[Mapping[str, Any]] = []
        self.predictions = Predictions(self._score, horizon_seconds=300.0, pays_after_seconds=1800.0)

    def _score(self, kind: str, subject: str, outcome: str, figures: Mapping[str, Any]) -> None:
        self.scored.append((kind, subject, outcome))
        self.figures.append(figures)


def test_a_node_that_is_empty_by_its_p90_was_predicted_rightly() -> None:
    scores = Scores()
    for name in ("in-time", "late", "given-up", "wanted"):
        scores.predictions.empties(name, 420.0, 720.0, 1000.0)
    scores.predictions.empties("in-time", 1.0, 2.0, 1500.0)  # told again by the next look: the first one counts
    scores.predictions.emptied("in-time", 1720.0)
    scores.predictions.emptied("in-time", 1721.0)
    scores.predictions.emptied("late", 1721.0)
    scores.predictions.gave_up("given-up", 2500.0, late=True)
    scores.predictions.gave_up("wanted", 1100.0, late=False)
    outcomes = ["right", "wrong", "wrong", "unknown"]
    assert [outcome for _, _, outcome in scores.scored] == outcomes
    assert scores.figures[0] == {"seconds": 720.0, "p50": 420.0, "p90": 720.0}


def test_a_pod_that_ended_before_its_move_would_have_paid_was_left_rightly() -> None:
    scores = Scores()
    for name in ("ends", "runs", "replaced", "gone"):
        scores.predictions.ends(f"d/{name}", f"u-{name}", 600.0, 900.0, 0.0)
    running = {"d/runs": "u-runs", "d/replaced": "another"}
    scores.predictions.follow_pods({**running, "d/ends": "u-ends"}, {}, 300.0)
    scores.predictions.follow_pods(running, {"d/ends": "u-ends"}, 700.0)
    scores.predictions.follow_pods(running, {}, 1799.0)
    assert ("pod_ends", "d/runs", "wrong") not in scores.scored
    scores.predictions.follow_pods(running, {}, 1800.0)
    assert sorted(scores.scored) == [
        ("pod_ends", "d/ends", "right"),
        ("pod_ends", "d/gone", "unknown"),
        ("pod_ends", "d/replaced", "unknown"),
        ("pod_ends", "d/runs", "wrong"),
    ]


def test_a_refusal_was_right_when_the_pod_would_have_come_on_top_of_too_much() -> None:
    scores = Scores()
    for name in ("hot", "cool", "silent"):
        scores.predictions.refused(Refusal(name, "d/p", (1000.0, 1000.0), (300.0, 10.0)), 0.0)
    scores.predictions.follow_loads({"hot": (800.0, 10.0), "cool": (700.0, 10.0)}, 100.0)
    scores.predictions.follow_loads({"hot": (100.0, 10.0), "cool": (100.0, 10.0)}, 299.0)
    assert scores.scored == []
    scores.predictions.follow_loads({"hot": (100.0, 10.0), "cool": (100.0, 10.0)}, 300.0)
    # (800 + 300) / 1000 above one; (700 + 300) / 1000 just not.
    outcomes = [("overload", "hot", "right"), ("overload", "cool", "wrong"), ("overload", "silent", "unknown")]
    assert scores.scored == outcomes
    assert scores.figures[0]["share"] == 1.1
