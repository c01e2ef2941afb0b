"""`WantedNodes`: which of the nodes that Cotide holds free are needed by waiting pods.

Called by the operator's `consolidation.controller` and by `rounds` at each look. Pods of many kinds may wait that no
node takes, and each must be checked on all nodes. So all nodes are checked at once, by columns. First fit in the given
order. Invariant: whether a node would take a pod, were it empty and open, is decided by `node_predicates`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from cotide_core.events import Node, Pod
from cotide_core.kernels.array_types import Booleans
from cotide_core.placement.constraints.volume_reach import refused_by_volumes
from cotide_core.placement.label_index import LabelIndex
from cotide_core.placement.node_predicates import refusal, uncordoned
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import Constraints, FitShape, ShapeTable
from cotide_core.state.snapshot import Snapshot

SPARE_KINDS: Final = 64
"""Kinds of nodes that are remembered beyond twice the number of rows, before all are counted again. Chosen."""


class Wanted(NamedTuple):
    """The needs of waiting pods.

    Attributes
    ----------
    nodes : idle nodes of ours that hold those pods that fit there.
    hope : whether any node of the cluster could take any of the pods, were it empty.
    uncovered : the same for pods that these nodes do not hold.
    """

    nodes: tuple[str, ...] = ()
    hope: bool = False
    uncovered: bool = False


class WantedNodes:
    """Finds wanted nodes; results about labels and taints stay valid while the state is the same object."""

    def __init__(self) -> None:
        self._state: ClusterState | None = None
        self._empty = _EmptyNodes()

    def of(self, state: ClusterState, waiting: Iterable[Pod], idle: Iterable[str]) -> Wanted:
        """Return which idle nodes of ours the waiting pods need.

        A pod that no node of the cluster could take even if it were empty has no hope. It needs none of our nodes, and
        prevents no consolidation.
        """
        if state is not self._state:
            self._state, self._empty = state, _EmptyNodes()
        table = ShapeTable(by_job=False)
        fits = [table.of(pod, state).fit for pod in waiting]  # before the snapshot: a new type moves the arrays
        if not fits:
            return Wanted()
        snapshot = Snapshot.of(state)
        self._empty.begin(snapshot)
        row_of = state.columns.row_of
        names = [name for name in idle if name in row_of]
        rows = np.array([row_of[name] for name in names], np.int64)
        left = snapshot.free[:, rows].copy()
        wanted: dict[str, None] = {}
        hope = uncovered = False
        for fit in fits:
            able = self._empty.able(fit)
            first = -1
            if able is not None and len(rows):
                there = able[rows]
                for column, amount in fit.demanded:
                    if amount:
                        there &= left[column] >= amount
                first = int(there.argmax()) if there.any() else -1
            if first >= 0:
                wanted[names[first]] = None
                hope = True
                for column, amount in fit.demanded:
                    left[column, first] -= amount
            elif self._empty.takes(fit):
                hope = uncovered = True
        return Wanted(tuple(wanted), hope, uncovered)


class _EmptyNodes:
    """All nodes as if they were open and empty. Taints and conditions repeat many times: each kind is checked once."""

    def __init__(self) -> None:
        self._index = LabelIndex()
        self._seen = -1
        self._kinds: dict[object, int] = {}
        self._samples: list[Node] = []
        self._kind_of = np.zeros(0, np.int64)
        """(N,) kind of each row; meaningless for rows without a node."""
        self._able: dict[Constraints, Booleans] = {}
        self._takes: dict[FitShape, bool] = {}
        self._snapshot: Snapshot

    def begin(self, snapshot: Snapshot) -> None:
        """Apply the changes; results about shapes are dropped, since their table changes at each look."""
        self._snapshot = snapshot
        self._able.clear()
        self._takes.clear()
        if len(self._kinds) > 2 * snapshot.size + SPARE_KINDS:
            self._kinds, self._samples, self._seen = {}, [], -1
        missing = snapshot.size - len(self._kind_of)
        if missing > 0:
            self._kind_of = np.concatenate((self._kind_of, np.zeros(missing, np.int64)))
        for row in np.flatnonzero(snapshot.spec_versions > self._seen).tolist():
            node = snapshot.nodes[row]
            if node is not None:
                bare = uncordoned(node)
                key = bare.taints, bare.ready, bare.pressures
                self._kind_of[row] = number = self._kinds.setdefault(key, len(self._kinds))
                if number == len(self._samples):
                    self._samples.append(bare)
        self._seen = snapshot.columns.spec_clock

    def able(self, fit: FitShape) -> Booleans | None:
        """Return (N,) whether each node takes such pods, apart from their amounts; None for a resource that no node
        offers.
        """
        if fit.missing:
            return None
        constraints = fit.constraints
        able = self._able.get(constraints)
        if able is None:
            able = self._able[constraints] = self._looked(constraints)
        return able

    def takes(self, fit: FitShape) -> bool:
        """Whether any node takes such a pod."""
        known = self._takes.get(fit)
        if known is None:
            able = self.able(fit)
            if able is not None:
                able = able.copy()
                for column, amount in fit.demanded:
                    if amount:
                        able &= self._snapshot.allocatable[column] >= amount
            known = self._takes[fit] = able is not None and bool(able.any())
        return known

    def _looked(self, constraints: Constraints) -> Booleans:
        snapshot = self._snapshot
        tolerant = Constraints(tolerations=constraints.tolerations)
        takes = [refusal(sample, tolerant, labelled=True, volumes="") is None for sample in self._samples]
        able: Booleans = snapshot.alive & np.array(takes or [False], np.bool_)[self._kind_of[: snapshot.size]]
        if constraints.node_selector or constraints.node_terms:
            able &= self._index.matches(constraints, snapshot)
        if (constraints.volume_terms or constraints.open_claims) and able.any():
            able &= np.array([not why for why in refused_by_volumes(constraints, self._index, snapshot)], np.bool_)
        return able
