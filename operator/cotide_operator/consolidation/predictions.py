"""Predictions of consolidation, each scored by its outcome.

`controller` feeds it. Three kinds of predictions::

    node_empties   a node was cordoned to empty by itself: in p50 seconds, nine times in ten in p90
    pod_ends       a pod was not moved, because it ends before the move would pay
    overload       a node did not take a pod although its requests fit, because its forecast shows an overload
                   within the horizon

An outcome is ``right`` or ``wrong``. It is ``unknown`` when the node or pod is gone, or without measurements. Each
outcome is a line of ``consolidation.jsonl`` next to the ledger, and counts in the metrics. Invariant: a prediction is
scored at most once. Pure; times are seconds of the operator's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

NODE_EMPTIES: Final = "node_empties"
POD_ENDS: Final = "pod_ends"
OVERLOAD: Final = "overload"
RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"
MAX_OPEN: Final = 2000
"""Open predictions of one kind; chosen."""
LATE_FACTOR: Final = 2.0
"""A node that is not empty after so many times its p90 is given back, and the prediction counts as wrong."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that refused `pod` only because of its forecast: its capacity, and the load that the pod would have
    added."""

    node: str
    pod: str
    capacity: tuple[float, float]
    added: tuple[float, float]


@dataclass(slots=True)
class _Open:
    made: float
    until: float
    p50: float = 0.0
    p90: float = 0.0
    refusal: Refusal | None = None
    peak: tuple[float, float] | None = None


Score = Callable[[str, str, str, Mapping[str, Any]], object]
"""Receives kind, subject, outcome and figures."""


class Predictions:
    """Predictions that wait for their outcome.

    Parameters
    ----------
    score : receives each outcome.
    horizon_seconds : of predictions about loads.
    pays_after_seconds : a pod that ends within it was rightly not moved.
    """

    def __init__(self, score: Score, *, horizon_seconds: float, pays_after_seconds: float) -> None:
        self._score = score
        self._horizon, self._pays_after = horizon_seconds, pays_after_seconds
        self._nodes: dict[str, _Open] = {}
        self._pods: dict[tuple[str, str], _Open] = {}
        self._loads: dict[str, _Open] = {}

    def empties(self, node: str, p50: float, p90: float, now: float) -> None:
        """Remember that a node was left to empty, now or by an earlier operator."""
        self._nodes.setdefault(node, _Open(now, now + LATE_FACTOR * p90, p50, p90))

    def emptied(self, node: str, now: float) -> None:
        """Score a node that is empty: right when it was within its p90."""
        prediction = self._nodes.pop(node, None)
        if prediction is not None:
            took = now - prediction.made
            outcome = RIGHT if took <= prediction.p90 else WRONG
            self._score(NODE_EMPTIES, node, outcome, {"seconds": took, "p50": prediction.p50, "p90": prediction.p90})

    def gave_up(self, node: str, now: float, *, late: bool) -> None:
        """Score a node that was given back before it was empty: wrong when it was late, else unknown."""
        prediction = self._nodes.pop(node, None)
        if prediction is not None:
            figures = {"seconds": now - prediction.made, "p50": prediction.p50, "p90": prediction.p90}
            self._score(NODE_EMPTIES, node, WRONG if late else UNKNOWN, figures)

    def ends(self, pod: str, uid: str, p50: float, p90: float, now: float) -> None:
        """Remember that a pod was not moved because it ends soon."""
        if len(self._pods) < MAX_OPEN:
            self._pods.setdefault((pod, uid), _Open(now, now + self._pays_after, p50, p90))

    def follow_pods(self, running: Mapping[str, str], ended: Mapping[str, str], now: float) -> None:
        """Score pods; `running`, `ended`: uid by key of the running pods, and of those that ended by themselves."""
        for (key, uid), prediction in list(self._pods.items()):
            if running.get(key) == uid and now < prediction.until:
                continue
            del self._pods[key, uid]
            outcome = WRONG if running.get(key) == uid else RIGHT if ended.get(key) == uid else UNKNOWN
            self._score(
                POD_ENDS, key, outcome, {"seconds": now - prediction.made, "p50": prediction.p50, "p90": prediction.p90}
            )

    def pods(self) -> list[str]:
        """Return the keys of the pods with an open prediction."""
        return [key for key, _ in self._pods]

    def loads(self) -> list[str]:
        """Return the nodes with an open prediction about their load."""
        return list(self._loads)

    def refused(self, refusal: Refusal, now: float) -> None:
        """Remember a node that did not take a pod because of its forecast; one at a time for each node."""
        if len(self._loads) < MAX_OPEN:
            self._loads.setdefault(refusal.node, _Open(now, now + self._horizon, refusal=refusal))

    def follow_loads(self, used: Mapping[str, tuple[float, float]], now: float) -> None:
        """Take the present use of nodes (cpu, memory), and score the refusals with an elapsed horizon."""
        for node, prediction in list(self._loads.items()):
            seen = used.get(node)
            if seen is not None:
                before = prediction.peak or (0.0, 0.0)
                prediction.peak = max(before[0], seen[0]), max(before[1], seen[1])
            if now < prediction.until:
                continue
            del self._loads[node]
            self._judge(node, prediction)

    def _judge(self, node: str, prediction: _Open) -> None:
        refusal, peak = prediction.refusal, prediction.peak
        if refusal is None or peak is None:
            self._score(OVERLOAD, node, UNKNOWN, {})
            return
        share = max(
            (at + more) / has for at, more, has in zip(peak, refusal.added, refusal.capacity, strict=True) if has > 0
        )
        self._score(OVERLOAD, node, RIGHT if share > 1.0 else WRONG, {"pod": refusal.pod, "share": round(share, 4)})
