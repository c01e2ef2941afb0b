"""Which nodes can take a pod, and why the others can't: vectorised, by shape.

Called by `placement` through `Candidates`. Each node gets one code per shape: 0 if the pod fits, otherwise the number
of the first reason that refuses it. The reasons follow kube-scheduler's order: the node itself, ports, exclusiveness,
resources. Reclaimed capacity is the amount that a node publishes less the amount that its pods hold of it, and at most
what is physically present. The node's own fields (labels, taints, readiness) are matched in Python once per distinct
constraints and changed node; all else is numpy over rows. Invariant: a cached code equals a fresh evaluation of that
row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.events import HostPort, Taint
from cotide_core.instructions import WaitReason
from cotide_core.kernels.array_types import Floats, Integers
from cotide_core.placement.constraints.peer_codes import MAY_LEAVE, REFUSALS, PeerCodes
from cotide_core.placement.constraints.peer_trial import PeerTrial
from cotide_core.placement.constraints.preferences import WEIGHT, preferences, prefers
from cotide_core.placement.constraints.volume_reach import refused_by_volumes
from cotide_core.placement.label_index import LabelIndex
from cotide_core.placement.node_predicates import MISMATCH, refusal, soft_taints
from cotide_core.state.host_load import ONLINE_RANK
from cotide_core.state.node_columns import CPU_COLUMN, MEMORY_COLUMN
from cotide_core.state.node_refusals import Asked
from cotide_core.state.shapes import Columns, Constraints, FitShape
from cotide_core.state.snapshot import Snapshot
from cotide_core.units import PODS, RECLAIMED_CPU, RECLAIMED_MEMORY

Codes = NDArray[np.int16]
Rows = NDArray[np.intp] | slice
Stamp = tuple[int, tuple[int, ...], int]
"""State of other pods and of images, and the number of nodes; see `Feasibility.stamp`."""
FITS: Final = 0
GONE: Final = 1
"""The code of a row without a node: verdicts never count it."""
REASONS_KEPT: Final = 8192
"""Number of sentences before the numbers restart. Chosen: a quarter of the range of int16."""
MAX_CODES: Final = 32_000
OTHERWISE: Final = "node(s) were refused for other reasons"
_ONE_BY_ONE: Final = 16
"""Up to this number of rows, matching each row is faster than the index of labels (chosen)."""
_PHYSICAL: Final = slice(CPU_COLUMN, MEMORY_COLUMN + 1)
"""Cpu and memory are adjacent, and a slice costs no copy."""
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - compared as data, nothing is bound here


class Reasons:
    """Numbers the sentences that refuse nodes, so that a column of int16 can hold them.

    Taints and resources come and go, so the number of sentences is unbounded. At `REASONS_KEPT` sentences the owner of
    the codes drops them all and restarts (see `Placer.renew`); sentences beyond `MAX_CODES` share one.
    """

    def __init__(self) -> None:
        self.messages: list[str] = ["", ""]
        self.kinds: list[WaitReason] = [WaitReason.WAITING_FOR_TURN, WaitReason.NO_MATCHING_NODE]
        self._numbers: dict[str, int] = {}

    def number(self, message: str, kind: WaitReason) -> int:
        """Return the code of a sentence."""
        found = self._numbers.get(message)
        if found is None:
            if len(self.messages) >= MAX_CODES:
                return self._numbers.get(OTHERWISE, GONE)
            found = self._numbers[message] = len(self.messages)
            self.messages.append(message)
            self.kinds.append(kind)
        return found


class NodeMatches:
    """Codes of the nodes' own fields for one set of constraints, updated for changed nodes."""

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints
        self._seen = -1
        self.codes: Codes = np.full(0, GONE, np.int16)
        self.cells = self.codes.data
        """The rows of ``codes`` as Python numbers."""
        self.soft: Integers = np.zeros(0, np.int64)
        """(N,) untolerated PreferNoSchedule taints."""
        self.any_soft = False

    def refresh(self, snapshot: Snapshot, reasons: Reasons, index: LabelIndex) -> bool:
        """Match the nodes with changed labels, taints or readiness again; True if there were any."""
        clock = snapshot.columns.spec_clock
        if clock == self._seen and len(self.codes) == snapshot.size:
            return False
        missing = snapshot.size - len(self.codes)
        if missing > 0:
            self.codes = np.concatenate([self.codes, np.full(missing, GONE, np.int16)])
            self.cells = self.codes.data
            self.soft = np.concatenate([self.soft, np.zeros(missing, np.int64)])
        rows = np.flatnonzero(snapshot.spec_versions > self._seen).tolist()
        wished = self._constraints
        if not (wished.node_selector or wished.node_terms):
            labelled: list[bool | None] = [True] * snapshot.size
        elif len(rows) > _ONE_BY_ONE:
            labelled = index.matches(wished, snapshot).tolist()
        else:
            labelled = [None] * snapshot.size
        by_volumes = [""] * snapshot.size
        if rows and (wished.volume_terms or wished.open_claims):
            by_volumes = refused_by_volumes(wished, index, snapshot)
        no_match = WaitReason.NO_MATCHING_NODE
        tainted: dict[tuple[Taint, ...], int] = {}
        for row in rows:
            node = snapshot.nodes[row]
            if node is None:
                self.codes[row], self.soft[row] = GONE, 0
                continue
            plain = not (node.taints or node.pressures or node.unschedulable or by_volumes[row])
            if plain and node.ready and labelled[row]:
                self.codes[row], self.soft[row] = FITS, 0
                continue
            why = refusal(node, wished, labelled=labelled[row], volumes=by_volumes[row])
            self.codes[row] = FITS if why is None else reasons.number(why, no_match)
            soft = tainted.get(node.taints)
            if soft is None:
                soft = tainted[node.taints] = soft_taints(node, wished.tolerations)
            self.soft[row] = soft
        self._seen = clock
        self.any_soft = bool(self.soft.any())
        return True


RowCode = Callable[[int, NodeMatches], int]
"""Returns whether one row fits, by the up-to-date matches of the shape."""


class Feasibility:
    """Evaluates shapes over rows; keeps the matches of each distinct set of constraints.

    Attributes
    ----------
    index : labels of the nodes.
    """

    def __init__(self) -> None:
        self.index = LabelIndex()
        self.renew()

    def renew(self) -> None:
        """Restart the numbers of the reasons; the owners of codes must drop them."""
        self.reasons = Reasons()
        self._matches: dict[Constraints, NodeMatches] = {}
        self.reasons.number(OTHERWISE, WaitReason.NO_MATCHING_NODE)
        self._ports = self.reasons.number(
            "node(s) didn't have free ports for the requested pod ports", WaitReason.INSUFFICIENT_SLACK
        )
        self._held = self.reasons.number("node(s) run an exclusive online service", WaitReason.NO_MATCHING_NODE)
        self._shared = self.reasons.number(
            "node(s) run another online service and the Workload is exclusive", WaitReason.NO_MATCHING_NODE
        )
        self.mismatch = self.reasons.number(MISMATCH, WaitReason.NO_MATCHING_NODE)
        no_match = WaitReason.NO_MATCHING_NODE
        self._peer_codes = PeerCodes(self.index, [self.reasons.number(why, no_match) for why in REFUSALS])
        self._may_leave = [self.reasons.number(why, no_match) for why in MAY_LEAVE]

    def matches(self, shape: FitShape, snapshot: Snapshot) -> NodeMatches:
        """Return the nodes' own codes for a shape, up to date."""
        found = self._matches.get(shape.constraints)
        if found is None:
            found = self._matches[shape.constraints] = NodeMatches(shape.constraints)
        found.refresh(snapshot, self.reasons, self.index)
        return found

    def node_codes(self, shape: FitShape, snapshot: Snapshot) -> Codes:
        """Return (N,) the combined codes of nodes, of recent refusals by kubelets and of other pods; read only."""
        codes = self._own_codes(shape, snapshot)
        if shape.depends:
            codes = codes.copy()
            self._refuse_peers(shape, snapshot, slice(0, snapshot.size), codes)
        return codes

    def _own_codes(self, shape: FitShape, snapshot: Snapshot) -> Codes:
        codes = self.matches(shape, snapshot).codes
        refused = self._closed(shape, snapshot)
        if refused:
            codes = codes.copy()
            for row, code in refused.items():
                if codes[row] == FITS:
                    codes[row] = code
        return codes

    def codes(self, shape: FitShape, snapshot: Snapshot, rows: Rows) -> Codes:
        """Return the code of each of the rows for a shape: 0 if its pods fit."""
        codes = self._own_codes(shape, snapshot)[rows].copy()
        if shape.host_ports:
            self._refuse_ports(shape, snapshot, rows, codes)
        if shape.online and (shape.exclusive or snapshot.exclusive_counts.any()):
            self._refuse_services(shape, snapshot, rows, codes)
        short = picked(snapshot.free, shape.columns, rows) < shape.amounts
        if short.any():
            for resource, lacking in zip(shape.resources[: shape.before], short[: shape.before], strict=True):
                codes[lacking & (codes == FITS)] = self._short_of(resource)
        if shape.missing:
            codes[codes == FITS] = self._short_of(shape.missing)
        if shape.physical is not None:
            self._refuse_double_booking(shape.physical, snapshot, rows, codes)
        if shape.depends:
            self._refuse_peers(shape, snapshot, rows, codes)
        return codes

    def taking(self, shape: FitShape, snapshot: Snapshot, rows: list[int]) -> list[int]:
        """Return the rows that take a shape, of a few rows; checks the rules of other pods first, as their codes are
        cached.
        """
        if shape.peers is not None:
            peer_codes = self._peer_codes.of(shape, snapshot)
            rows = [row for row in rows if peer_codes.item(row) == FITS]
        if not rows:
            return []
        fits = (self.codes(shape, snapshot, np.array(rows, np.intp)) == FITS).tolist()
        return [row for row, fit in zip(rows, fits, strict=True) if fit]

    def stamp(self, shape: FitShape, snapshot: Snapshot) -> Stamp:
        """Return a value that changes whenever other pods, or other nodes' images, may change the codes of a shape."""
        peers = 0
        if shape.peers is not None and not shape.peers.only_evens:
            peers = snapshot.state.matches.version(shape.peers)
        if not shape.images:
            return peers, (), 0
        return peers, snapshot.state.images.versions(shape.images), snapshot.node_count

    def preferences(
        self, shape: FitShape, snapshot: Snapshot, fits: NDArray[np.bool_], weight: float = WEIGHT
    ) -> Floats | None:
        """Return (N,) the preferences of a shape among the rows that fit (`constraints.preferences`); None: nothing."""
        if shape.peers is None or not prefers(shape.peers):
            return None
        return preferences(shape, snapshot, self.index, fits, weight)

    def row_code(self, shape: FitShape, snapshot: Snapshot) -> RowCode:
        """Return a function that computes the code of one row like `codes`, in plain numbers, since every bind changes
        one row.

        It holds the cells that it reads, and is valid as long as the snapshot shows all.
        """
        if not shape.counts or shape.depends:
            return lambda row, _: int(self.codes(shape, snapshot, slice(row, row + 1))[0])
        refusals, free = snapshot.state.refusals, snapshot.cells.free
        asked = list(zip(shape.demanded, shape.resources, strict=True))[: shape.before]
        wanted = [(free[column], amount, resource) for (column, amount), resource in asked]
        missing = shape.missing

        def code(row: int, matches: NodeMatches) -> int:
            closed = refusals.closed
            if closed and snapshot.name(row) in closed:
                return int(self.codes(shape, snapshot, slice(row, row + 1))[0])
            found = matches.cells[row]
            if found != FITS:
                return found
            for left, amount, resource in wanted:
                if left[row] < amount:
                    return self._short_of(resource)
            return self._short_of(missing) if missing else FITS

        return code

    def allowed(self, shape: FitShape, snapshot: Snapshot) -> NDArray[np.bool_]:
        """Return (N,) whether a batch or gratis shape may use a node, regardless of free amounts."""
        if shape.missing:
            return np.zeros(snapshot.size, np.bool_)
        codes = self.node_codes(shape, snapshot).copy()
        if shape.host_ports:
            self._refuse_ports(shape, snapshot, slice(0, snapshot.size), codes)
        return np.asarray(codes == FITS)

    def _closed(self, shape: FitShape, snapshot: Snapshot) -> dict[int, int]:
        """Return the codes of rows with a kubelet that recently refused such a pod."""
        refusals = snapshot.state.refusals
        if not refusals.closed:
            return {}
        constraints = shape.constraints
        asked = Asked(shape.resources, shape.demanded, bool(constraints.node_selector or constraints.node_terms))
        closed: dict[int, int] = {}
        for node in refusals.closed:
            row = snapshot.columns.row_of.get(node, snapshot.size)
            reason = refusals.refusal(node, asked)
            if reason is not None and row < snapshot.size:
                message = f"node(s) recently refused a pod like this: {reason}"
                closed[row] = self.reasons.number(message, WaitReason.INSUFFICIENT_SLACK)
        return closed

    def may_open(self, shape: FitShape, snapshot: Snapshot) -> NDArray[np.bool_]:
        """Return (N,) rows that could take a shape if pods left them: only these pods refuse it there.

        Includes the rows that fit; ignores amounts and ports.
        """
        codes = self._own_codes(shape, snapshot).copy()
        if shape.missing:
            return np.zeros(snapshot.size, np.bool_)
        if shape.online and (shape.exclusive or snapshot.exclusive_counts.any()):
            self._refuse_services(shape, snapshot, slice(0, snapshot.size), codes)
        if shape.peers is not None:
            peer_codes = self._peer_codes.of(shape, snapshot)
            codes[~np.isin(peer_codes, [FITS, *self._may_leave])] = GONE
        return np.asarray(codes == FITS)

    def peer_trial(self, shape: FitShape, snapshot: Snapshot) -> PeerTrial | None:
        """Return the check of a shape's rules about other pods with some of these gone; None without such rules."""
        return None if shape.peers is None else PeerTrial(shape, self.index, snapshot)

    def forget(self, used: set[Constraints]) -> None:
        """Forget the matches of constraints that no waiting pod has."""
        self._matches = {key: value for key, value in self._matches.items() if key in used}

    def _refuse_peers(self, shape: FitShape, snapshot: Snapshot, rows: Rows, codes: Codes) -> None:
        peer_codes = self._peer_codes.of(shape, snapshot)[rows]
        codes[:] = np.where(codes == FITS, peer_codes, codes)

    def _short_of(self, resource: str) -> int:
        message = "Too many pods" if resource == PODS else f"Insufficient {resource}"
        return self.reasons.number(message, WaitReason.INSUFFICIENT_SLACK)

    def _refuse_double_booking(self, asked: Integers, snapshot: Snapshot, rows: Rows, codes: Codes) -> None:
        """Refuse reclaimed capacity that batch and gratis pods hold already by plain requests.

        The published amount may be older than the latest plain pod; the physical amount is current.
        """
        held = snapshot.held[:ONLINE_RANK, :, rows].sum(axis=0)
        short = picked(snapshot.allocatable, _PHYSICAL, rows) - held < asked
        for resource, lacking in zip((RECLAIMED_CPU, RECLAIMED_MEMORY), short, strict=True):
            codes[lacking & (codes == FITS)] = self._short_of(resource)

    def _refuse_ports(self, shape: FitShape, snapshot: Snapshot, rows: Rows, codes: Codes) -> None:
        for index, row in enumerate(_listed(rows, snapshot.size)):
            taken = snapshot.ports[row]
            if taken and codes[index] == FITS and ports_conflict(shape.host_ports, taken):
                codes[index] = self._ports

    def _refuse_services(self, shape: FitShape, snapshot: Snapshot, rows: Rows, codes: Codes) -> None:
        # A Workload's own pods never block it: "another" online service is one of another Workload.
        own = np.zeros(snapshot.size, np.int64)
        if shape.service is not None:
            for row, count in snapshot.state.workload_rows(shape.service).items():
                own[row] = count
        exclusives = snapshot.exclusive_counts - (own if shape.exclusive else 0)
        if shape.service is not None:
            codes[(exclusives[rows] > 0) & (codes == FITS)] = self._held
        if shape.exclusive:
            codes[((snapshot.service_counts - own)[rows] > 0) & (codes == FITS)] = self._shared


def picked(table: Integers, columns: Columns, rows: Rows) -> Integers:
    """Return the (R, K) part of a table."""
    if isinstance(columns, slice) or isinstance(rows, slice):
        return table[columns, rows]
    return table[columns[:, None], rows]


def _listed(rows: Rows, size: int) -> list[int]:
    return list(range(size))[rows] if isinstance(rows, slice) else [int(row) for row in rows]


def ports_conflict(wanted: tuple[HostPort, ...], taken: Collection[HostPort]) -> bool:
    """Whether requested host ports conflict with used ports."""
    ports = {(have.protocol, have.port) for have in taken}
    for want in wanted:
        if (want.protocol, want.port) not in ports:
            continue
        for have in taken:
            same_port = want.port == have.port and want.protocol == have.protocol
            if same_port and (want.host_ip == have.host_ip or _ANY_ADDRESS in (want.host_ip, have.host_ip)):
                return True
    return False
