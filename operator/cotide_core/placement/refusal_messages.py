"""Words for decisions: why nodes were refused, in kube-scheduler's manner, and why a node was chosen.

Called by `placement` and `cycle`. Each node counts once, under the first reason that refused it. The numbers of a
sentence therefore add up to the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import numpy as np

from cotide_core.instructions import Instruction, NodeVerdict, Wait, WaitReason
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.feasibility import FITS, Reasons
from cotide_core.qos.qos_guard import AtRisk
from cotide_core.state.snapshot import Snapshot

NAMED_SERVICES = 3
"""Services that a sentence names; the rest are summed (chosen: events are cut at 1 KiB)."""


def constraint_verdicts(snapshot: Snapshot, candidates: Candidates, reasons: Reasons) -> list[NodeVerdict]:
    """Return why nodes can't take a shape at all, most nodes first; each with one such node."""
    verdicts = []
    for code, count in candidates.tally.items():
        if code != FITS:
            example = snapshot.name(int(np.argmax(candidates.codes == code)))
            verdicts.append(NodeVerdict(count, reasons.messages[code], reasons.kinds[code], example))
    verdicts.sort(key=lambda verdict: (-verdict.nodes, verdict.message))
    return verdicts


def risk_verdicts(snapshot: Snapshot, refused: Sequence[AtRisk]) -> list[NodeVerdict]:
    """Return why a guard refused rows, most nodes first: one verdict for each of few services and one for the others.

    A probability that follows from the refusal of a smaller pod or an earlier mix is a lower bound.
    """
    ordered = sorted(sorted(refused), key=itemgetter(1), reverse=True) if len(refused) > 1 else refused
    verdicts = [
        _at_risk(snapshot, nodes, probability, row, f"limit of {service}", service)
        for service, nodes, probability, row in ordered[:NAMED_SERVICES]
    ]
    if rest := ordered[NAMED_SERVICES:]:
        nodes = sum([group[1] for group in rest])
        probability, row = min([group[2:] for group in rest])
        verdicts.append(_at_risk(snapshot, nodes, probability, row, f"limits of {len(rest)} other services"))
    return verdicts


def _at_risk(
    snapshot: Snapshot, nodes: int, probability: float, row: int, words: str, service: str = ""
) -> NodeVerdict:
    message = f"would break the latency {words} (p={probability:.2f})"
    return NodeVerdict(nodes, message, WaitReason.QOS_AT_RISK, snapshot.name(row), probability, service)


def services_at_risk(instructions: Iterable[Instruction]) -> set[str]:
    """Return the Workloads that caused refusals of nodes to waiting pods, as far as verdicts name them."""
    return {
        verdict.service
        for instruction in instructions
        if isinstance(instruction, Wait)
        for verdict in instruction.refused
        if verdict.service
    }


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
