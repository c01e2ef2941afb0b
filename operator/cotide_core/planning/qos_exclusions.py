"""The latency guard in plans: the nodes that it refused to waiting shapes, and whether each refusal still holds.

Owned by `planning` under the guarded plan policies. A plan covers hours to come, and no forecast of their request rates
exists; the guard therefore decides about starts now. When it refuses one, it also checks all nodes that could take such
a pod, and all waiting pods that the node could take, so that few plans are made in vain. Plans leave a refused node out
for that shape until something on the node improves. Invariant: a pod starts only if the guard admits it on the node as
it is at that moment.
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
"""Shapes of one guard call: the guard forgets the oldest answers beyond `SHAPES_REMEMBERED`."""


@dataclass(slots=True)
class _Refused:
    rows: NDArray[np.intp]
    reliefs: Integers
    """Values of the rows at the time of the refusal."""
    probabilities: Floats
    services: list[str]
    bases: Integers
    """The basis of the probabilities (see `applicability`)."""

    def standing(self, snapshot: Snapshot) -> Booleans:
        """Return which of the refusals still hold: nothing on those rows improved since."""
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
        """Drop all refusals, because another model may answer otherwise."""
        self._refused.clear()

    def keep(self, shapes: Iterable[Shape]) -> None:
        """Drop the refusals of shapes that no longer wait."""
        known = dict.fromkeys(shapes)
        self._waiting = list(known)
        self._refused = {shape: refused for shape, refused in self._refused.items() if shape in known}

    def eased(self, snapshot: Snapshot) -> bool:
        """Whether a refusal was lifted since the last call, so that a plan may find more."""
        fallen = [shape for shape, refused in self._refused.items() if not refused.standing(snapshot).all()]
        for shape in fallen:
            refusal = self._refused.pop(shape)
            stands = refusal.standing(snapshot)
            services = [name for name, still in zip(refusal.services, stands.tolist(), strict=True) if still]
            if services:
                self._refused[shape] = _Refused(
                    refusal.rows[stands],
                    refusal.reliefs[stands],
                    refusal.probabilities[stands],
                    services,
                    refusal.bases[stands],
                )
        return bool(fallen)

    def leave_out(self, shape: Shape, snapshot: Snapshot, may: Booleans) -> None:
        """Set (N,) ``may`` to False where the shape is refused."""
        refusal = self._refused.get(shape)
        if refusal is not None:
            may[refusal.rows[refusal.standing(snapshot)]] = False

    def refuses(self, starts: Sequence[tuple[Shape, int]], snapshot: Snapshot, forecaster: QosForecaster) -> bool:
        """Check the starts of a plan, each by itself; True if one is refused, after all refusals are recorded."""
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
        """Return whether a pod may start on a row now; the probability if a service is concerned, and its basis."""
        rows = np.array([row], np.intp)
        if not self._guard.concerned(snapshot, shape, rows)[0]:
            return True, None, 0
        probability = float(self._guard.probabilities(snapshot, shape, rows, forecaster)[0])
        admitted = probability <= self._guard.threshold
        if not admitted:
            self._note(shape, rows, snapshot)
        return admitted, probability, self._guard.basis(shape, row)

    def nearest(self, shape: Shape, snapshot: Snapshot) -> tuple[float, int] | None:
        """Return the lowest probability among the current refusals where the shape fits, and its basis."""
        refusal = self._refused.get(shape)
        indices = [] if refusal is None else self._standing_indices(refusal, shape, snapshot)
        if refusal is None or not indices:
            return None
        index = min(indices, key=lambda index: (refusal.probabilities.item(index), refusal.rows.item(index)))
        return refusal.probabilities.item(index), refusal.bases.item(index)

    def verdicts(self, shape: Shape, snapshot: Snapshot) -> list[NodeVerdict]:
        """Return why nodes were refused, in words, by the service at risk."""
        refusal = self._refused.get(shape)
        if refusal is None:
            return []
        nearest: dict[str, list[tuple[float, int]]] = {}
        for index in self._standing_indices(refusal, shape, snapshot):
            nearest.setdefault(refusal.services[index], []).append(
                (refusal.probabilities.item(index), refusal.rows.item(index))
            )
        refused = [(service, len(nodes), *min(nodes)) for service, nodes in nearest.items()]
        return risk_verdicts(snapshot, refused)

    def _standing_indices(self, refusal: _Refused, shape: Shape, snapshot: Snapshot) -> list[int]:
        fits = np.asarray(self._feasibility.codes(shape.fit, snapshot, refusal.rows) == FITS)
        return [int(index) for index in np.flatnonzero(refusal.standing(snapshot) & fits)]

    def _ask_about_shapes(self, rows: NDArray[np.intp], snapshot: Snapshot, forecaster: QosForecaster) -> None:
        """Determine which of the waiting shapes these rows can't tolerate."""
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
        """Record that the guard refused some rows, in addition to earlier refusals."""
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
