"""Builders of a Job's and a Workload's pods as a look at them sees them."""

from __future__ import annotations

from typing import Any

from cotide_operator.controllers.child_pods import ChildPod


def child_pod(index: int, phase: str = "Pending", *, of: str = "count", **fields: Any) -> ChildPod:
    """The pod of an index: ``OF-INDEX``, uid ``uid-OF-INDEX``; any field may differ."""
    name = f"{of}-{index}"
    return ChildPod(**{"name": name, "uid": f"uid-{name}", "index": index, "phase": phase, **fields})
