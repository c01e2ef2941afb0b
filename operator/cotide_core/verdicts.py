"""Words for decisions: why nodes were refused, in kube-scheduler's manner, and why a node was chosen.

Called by `placement` and `cycle`. Each node is counted once, under the first reason that refused it, so that the
numbers of a sentence add up to the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cotide_core.candidates import Candidates
from cotide_core.columns import Floats
from cotide_core.feasibility import FITS, Reasons
from cotide_core.instructions import NodeVerdict, WaitReason
from cotide_core.shapes import Shape
from cotide_core.snapshot import Snapshot

NAMED_SERVICES = 3
"""Services that a sentence names one by one; the rest are summed (chosen: events are cut at 1 KiB)."""


class Refuser(Protocol):
    """Whoever refused nodes for the sake of a latency limit."""

    def at_risk(self, shape: Shape, rows: NDArray[np.intp]) -> tuple[Floats, list[str]]:
        """Return the probabilities with which rows were refused, and the Workloads that they are about."""
        ...


def constraint_verdicts(snapshot: Snapshot, candidates: Candidates, reasons: Reasons) -> list[NodeVerdict]:
    """Return why nodes can't take a shape at all, most nodes first; each with one such node."""
    verdicts = []
    for code, count in candidates.tally.items():
        if code != FITS:
            example = snapshot.name(int(np.argmax(candidates.codes == code)))
            verdicts.append(NodeVerdict(count, reasons.messages[code], reasons.kinds[code], example))
    verdicts.sort(key=lambda verdict: (-verdict.nodes, verdict.message))
    return verdicts


def risk_verdicts(snapshot: Snapshot, shape: Shape, guard: Refuser, rows: NDArray[np.intp]) -> list[NodeVerdict]:
    """Group the rows that the guard refused by the service at risk.

    The probability that is named is the lowest of the group: how near the pod came. Where it follows from the refusal
    of a smaller pod or an earlier mix it is the least that it can be.
    """
    if not len(rows):
        return []
    probabilities, services = guard.at_risk(shape, rows)
    groups: dict[str, list[tuple[float, int]]] = {}
    for nearest, service in zip(zip(probabilities.tolist(), rows.tolist(), strict=True), services, strict=True):
        known = groups.get(service)
        if known is None:
            groups[service] = [nearest]
        else:
            known.append(nearest)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    verdicts = []
    for service, members in ordered[:NAMED_SERVICES]:
        verdicts.append(_at_risk(snapshot, members, f"limit of {service}"))
    rest = [member for _, members in ordered[NAMED_SERVICES:] for member in members]
    if rest:
        words = f"limits of {len(ordered) - NAMED_SERVICES} other services"
        verdicts.append(_at_risk(snapshot, rest, words))
    return verdicts


def _at_risk(snapshot: Snapshot, members: list[tuple[float, int]], words: str) -> NodeVerdict:
    """Return the verdict on nodes given as (probability, row)."""
    probability, row = min(members)
    message = f"would break the latency {words} (p={probability:.2f})"
    return NodeVerdict(len(members), message, WaitReason.QOS_AT_RISK, snapshot.name(row), probability)


def sentence(verdicts: Sequence[NodeVerdict], nodes: int) -> str:
    """Return ``0/40 nodes are available: 25 would break ..., 15 Insufficient cpu``."""
    if not nodes:
        return "0/0 nodes are available: no node is registered"
    return f"0/{nodes} nodes are available: " + ", ".join(f"{v.nodes} {v.message}" for v in verdicts)


def overall(verdicts: Sequence[NodeVerdict]) -> WaitReason:
    """Return the reason that is closest to a placement: risk, then slack, then no matching node."""
    found = {verdict.reason for verdict in verdicts}
    for reason in (WaitReason.QOS_AT_RISK, WaitReason.INSUFFICIENT_SLACK):
        if reason in found:
            return reason
    return WaitReason.NO_MATCHING_NODE
