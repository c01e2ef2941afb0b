"""What must hold where the operator frees nodes: nobody is evicted twice, and no node stays cordoned for ever.

Used by `chaos_run` for plans that consolidate. Empty nodes stay open and pods are not packed, so that they spread and
have to be moved. At the end one node holds all pods, each cordoned node carries our mark ``freed``, and none is left
``draining``.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, Final

from invariant_checker import CheckedPod, InvariantChecker
from write_record import CREATED, WriteRecord

from cotide_operator.consolidation.carrier import FREED, MARK

SECTION: Final = """\
consolidation: {enabled: true, intervalSeconds: 1, stableSeconds: 0, minimumAgeSeconds: 0, cooldownSeconds: 1, \
timeoutSeconds: 20, spareNodes: 9, movesPerHour: 60, packs: false}
"""
LAG_SECONDS: Final = 1.0
"""An operator may not know yet that a pod is leaving; chosen for a busy machine."""


class ConsolidationChecks:
    """Follows one run."""

    def __init__(self, checker: InvariantChecker, namespace: str) -> None:
        self._checker, self._namespace = checker, namespace
        self._leaving: dict[str, float] = {}
        checker.listeners.append(self._changed)

    def _changed(self, plural: str, old: object, new: object) -> None:
        if isinstance(new, CheckedPod) and new.leaving:
            self._leaving.setdefault(new.uid, time.monotonic())

    def unsettled(self) -> str:
        """Say which node is not as it must be at the end; empty where all are."""
        nodes = {name: node for name, node in self._checker.nodes.items() if name.startswith(f"{self._namespace}-n")}
        marks = {name: _mark(node) for name, node in nodes.items() if node.get("spec", {}).get("unschedulable")}
        odd = [f"{name} is cordoned and marked {mark!r}" for name, mark in marks.items() if mark != FREED]
        used = {pod.node for pod in self._checker.pods.values() if pod.holds and pod.node in nodes}
        if not odd and len(used) > 1:
            odd = [f"pods are on {len(used)} nodes, and fit on one"]
        return "; ".join(odd)

    def breaches(self, record: WriteRecord) -> list[str]:
        """Return the evictions that were asked for again although the first one had been granted."""
        granted: dict[str, int] = defaultdict(int)
        found = []
        for write in record.writes:
            if write.kind != "evict":
                continue
            left = self._leaving.get(write.uid, float("inf"))
            if granted[write.uid] or write.asked > left + LAG_SECONDS:
                found.append(f"{write} again, which was granted before")
            granted[write.uid] += write.status == CREATED
        return found


def _mark(node: dict[str, Any]) -> str:
    return str(node["metadata"].get("annotations", {}).get(MARK, ""))
