"""What the latency guard says to plans: which nodes it refused to which waiting shapes, and whether that still stands.

Owned by `planning` under the guarded plan policies. A plan is about hours to come, whose request rates nobody
forecasts; so the guard is asked where a pod would start now. When it refuses, it is asked about all nodes that could
take such a pod, and about all waiting pods that the node could take, so that few plans are made in vain. A refused node
is left out of plans for that shape until something on the node got better. Invariant: no pod starts where the guard,
asked about the node as it is at that moment, refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import QosForecaster
from cotide_core.instructions import NodeVerdict
from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.placement.refusal_messages import risk_verdicts
from cotide_core.qos.prediction_cache import SHAPES_REMEMBERED
from cotide_core.qos.qos_guard import QosGuard
from cotide_core.state.shapes import FitShape, Shape
from cotide_core.state.snapshot import Snapshot

SHAPES_AT_ONCE: Final = SHAPES_REMEMBERED // 2
"""Shapes that one call asks about: the guard forgets the answers about the oldest beyond `SHAPES_REMEMBERED`."""


@dataclass(slots=True)
class _Refused:
    rows: NDArray[np.intp]
    reliefs: Integers
    """Of the rows when they were refused."""
    probabilities: Floats
    services: list[str]
    bases: Integers
    """What the probabilities rest on (see `applicability`)."""

    def standing(self, snapshot: Snapshot) -> Booleans:
        """Return which of the refusals stand: nothing on those rows got better since."""
        return np.asarray(snapshot.relief_versions[self.rows] == self.reliefs)


class PlanGuard:
    """Refusals by shape.

    Parameters
    ----------
    guard : of the policy.
    """

    def __init__(self, guard: QosGuard, feasibility: Feasibility) -> None:
        self._guard = guard
        self._feasibility = feasibility
        self._refused: dict[Shape, _Refused] = {}
        self._waiting: list[Shape] = []

    def forget(self) -> None:
        """Drop all refusals: another model answers otherwise."""
        self._refused.clear()

    def keep(self, shapes: Iterable[Shape]) -> None:
        """Drop the refusals of shapes that are not among the waiting."""
        known = dict.fromkeys(shapes)
        self._waiting = list(known)
        self._refused = {shape: refused for shape, refused in self._refused.items() if shape in known}

    def eased(self, snapshot: Snapshot) -> bool:
        """Whether a refusal fell since it was last asked for, so that a plan may find more."""
        fallen = [shape for shape, refused in self._refused.items() if not refused.standing(snapshot).all()]
        for shape in fallen:
            one = self._refused.pop(shape)
            stands = one.standing(snapshot)
            services = [name for name, still in zip(one.services, stands.tolist(), strict=True) if still]
            if services:
                self._refused[shape] = _Refused(
                    one.rows[stands], one.reliefs[stands], one.probabilities[stands], services, one.bases[stands]
                )
        return bool(fallen)

    def leave_out(self, shape: Shape, snapshot: Snapshot, may: Booleans) -> None:
        """Set (N,) ``may`` to False where the shape is refused."""
        one = self._refused.get(shape)
        if one is not None:
            may[one.rows[one.standing(snapshot)]] = False

    def refuses(self, starts: Sequence[tuple[Shape, int]], snapshot: Snapshot, forecaster: QosForecaster) -> bool:
        """Ask about the starts of a plan, each by itself; True when one is refused, and all is known of it by then."""
        rows: dict[Shape, set[int]] = {}
        for shape, row in starts:
            rows.setdefault(shape, set()).add(row)
        wanted = [(shape, np.array(sorted(some), np.intp)) for shape, some in rows.items()]
        self._guard.prefetch(snapshot, wanted, forecaster)
        refused, on = [], set[int]()
        for shape, some in wanted:
            over = some[self._guard.probabilities(snapshot, shape, some, forecaster) > self._guard.threshold]
            if len(over):
                refused.append(shape)
                on.update(over.tolist())
        for shape in refused:
            self._ask_about_nodes(shape, snapshot, forecaster)
        if on:
            self._ask_about_shapes(np.array(sorted(on), np.intp), snapshot, forecaster)
        return bool(refused)

    def admits(
        self, shape: Shape, row: int, snapshot: Snapshot, forecaster: QosForecaster
    ) -> tuple[bool, float | None, int]:
        """Return whether a pod may start on a row now; the probability where a service is concerned, and its basis."""
        rows = np.array([row], np.intp)
        if not self._guard.concerned(snapshot, shape, rows)[0]:
            return True, None, 0
        probability = float(self._guard.probabilities(snapshot, shape, rows, forecaster)[0])
        admitted = probability <= self._guard.threshold
        if not admitted:
            self._note(shape, rows, snapshot)
        return admitted, probability, self._guard.basis(shape, row)

    def nearest(self, shape: Shape, snapshot: Snapshot) -> tuple[float, int] | None:
        """Return the lowest probability among the refusals that stand where the shape fits, and its basis."""
        one = self._refused.get(shape)
        indices = [] if one is None else self._standing_indices(one, shape, snapshot)
        if one is None or not indices:
            return None
        index = min(indices, key=lambda index: (one.probabilities.item(index), one.rows.item(index)))
        return one.probabilities.item(index), one.bases.item(index)

    def verdicts(self, shape: Shape, snapshot: Snapshot) -> list[NodeVerdict]:
        """Return why nodes were refused, in words, by the service at risk."""
        one = self._refused.get(shape)
        if one is None:
            return []
        nearest: dict[str, list[tuple[float, int]]] = {}
        for index in self._standing_indices(one, shape, snapshot):
            nearest.setdefault(one.services[index], []).append((one.probabilities.item(index), one.rows.item(index)))
        refused = [(service, len(nodes), *min(nodes)) for service, nodes in nearest.items()]
        return risk_verdicts(snapshot, refused)

    def _standing_indices(self, one: _Refused, shape: Shape, snapshot: Snapshot) -> list[int]:
        fits = np.asarray(self._feasibility.codes(shape.fit, snapshot, one.rows) == FITS)
        return [int(index) for index in np.flatnonzero(one.standing(snapshot) & fits)]

    def _ask_about_shapes(self, rows: NDArray[np.intp], snapshot: Snapshot, forecaster: QosForecaster) -> None:
        """Find out which of the waiting shapes these rows can't bear."""
        fitting: dict[FitShape, NDArray[np.intp]] = {}
        wanted = []
        for shape in self._waiting:
            if shape.fit not in fitting:
                fitting[shape.fit] = rows[self._feasibility.codes(shape.fit, snapshot, rows) == FITS]
            some = fitting[shape.fit]
            known = self._refused.get(shape)
            if known is not None:
                some = some[~np.isin(some, known.rows)]
            if len(some):
                wanted.append((shape, some))
        for first in range(0, len(wanted), SHAPES_AT_ONCE):
            part = wanted[first : first + SHAPES_AT_ONCE]
            self._guard.prefetch(snapshot, part, forecaster)
            for shape, some in part:
                over = self._guard.probabilities(snapshot, shape, some, forecaster) > self._guard.threshold
                if over.any():
                    self._note(shape, some[over], snapshot)

    def _ask_about_nodes(self, shape: Shape, snapshot: Snapshot, forecaster: QosForecaster) -> None:
        rows = np.flatnonzero(self._feasibility.codes(shape.fit, snapshot, slice(0, snapshot.size)) == FITS)
        probabilities = self._guard.probabilities(snapshot, shape, rows, forecaster)
        self._note(shape, rows[probabilities > self._guard.threshold], snapshot)

    def _note(self, shape: Shape, rows: NDArray[np.intp], snapshot: Snapshot) -> None:
        """Remember that the guard refused some rows, beside what was refused before."""
        probabilities, services, bases = self._guard.at_risk(shape, rows)
        known = self._refused.get(shape)
        if known is not None:
            rest = ~np.isin(known.rows, rows)
            rows = np.concatenate([rows, known.rows[rest]])
            probabilities = np.concatenate([probabilities, known.probabilities[rest]])
            services = services + [name for name, kept in zip(known.services, rest.tolist(), strict=True) if kept]
            bases = np.concatenate([bases, known.bases[rest]])
            before = known.reliefs[rest]
        else:
            before = np.zeros(0, np.int64)
        fresh = len(rows) - len(before)
        reliefs = np.concatenate([snapshot.relief_versions[rows[:fresh]], before])
        order = np.argsort(rows)
        self._refused[shape] = _Refused(
            rows[order],
            reliefs[order],
            probabilities[order],
            [services[index] for index in order.tolist()],
            bases[order],
        )
