"""Workload classes and how a pod gets one.

Called by translation for every pod without a class. The order of the rules is a contract with users: label, owning or
selecting Workload or Job, named PriorityClass, owner kind, otherwise online. An ordinary pod of priority 0 is therefore
never treated as best effort by accident. The name of a PriorityClass may decide; its value orders pods within a class.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

CLASS_LABEL: Final = "cotide.dev/class"
MAX_CLASS_LABEL: Final = "cotide.dev/max-class"
UNRAISED: Final = "unraised"
"""A cap that is no class. A label or a PriorityClass does not make a pod online that is batch or gratis by its owner,
or that requests reclaimed capacity.
"""


class WorkloadClass(StrEnum):
    """The treatment of a pod: online is never evicted for batch, batch must finish, gratis goes first."""

    ONLINE = "online"
    BATCH = "batch"
    GRATIS = "gratis"

    rank: int
    """2 for online, 1 for batch, 0 for gratis; a namespace's cap compares it."""


for _rank, _class in enumerate((WorkloadClass.GRATIS, WorkloadClass.BATCH, WorkloadClass.ONLINE)):
    _class.rank = _rank
CLASSES: Final = {str(workload_class): workload_class for workload_class in WorkloadClass}
"""Class by its word; an enum's own look-up by value costs ten times as much, and every pod is classified."""

SHIPPED_PRIORITY_CLASSES: Final[Mapping[str, WorkloadClass]] = MappingProxyType(
    {f"cotide-{workload_class}": workload_class for workload_class in WorkloadClass}
)
"""Class by the name of each PriorityClass that is installed with Cotide; an administrator adds names of the cluster."""


def classify(
    *,
    label: str | None = None,
    owner_class: WorkloadClass | None = None,
    named_class: WorkloadClass | None = None,
    owner_kind: str | None = None,
    max_class: str | None = None,
    reclaims: bool = False,
) -> WorkloadClass:
    """Decide a pod's class, in the order of the contract with users.

    Parameters
    ----------
    label : str, optional
        The pod's ``cotide.dev/class`` label; a word that names no class is passed over.
    owner_class : WorkloadClass, optional
        The class of the Workload or Job (ours) that owns or selects the pod.
    named_class : WorkloadClass, optional
        The class that belongs to the name of the pod's PriorityClass; None for other names.
    owner_kind : str, optional
        Kind of the controlling owner, as ``Job.batch``.
    max_class : str, optional
        The namespace's ``cotide.dev/max-class`` label, or `UNRAISED`: caps what its pods may claim.
    reclaims : bool
        Whether the pod requests reclaimed capacity.
    """
    decided = WorkloadClass.ONLINE
    if label is not None and label in CLASSES:
        decided = CLASSES[label]
    elif owner_class is not None:
        decided = owner_class
    elif named_class is not None:
        decided = named_class
    elif owner_kind == "Job.batch":
        decided = WorkloadClass.BATCH
    if max_class == UNRAISED and decided is WorkloadClass.ONLINE:
        return _unraised(owner_class, owner_kind, reclaims=reclaims)
    if max_class is not None and max_class in CLASSES:
        cap = CLASSES[max_class]
        if cap.rank < decided.rank:
            return cap
    return decided


def _unraised(owner_class: WorkloadClass | None, owner_kind: str | None, *, reclaims: bool) -> WorkloadClass:
    """Return the class of a pod that claims to be online, without its claim."""
    if owner_class is not None and owner_class is not WorkloadClass.ONLINE:
        return owner_class
    work = owner_kind == "Job.batch" and owner_class is None
    return WorkloadClass.BATCH if reclaims or work else WorkloadClass.ONLINE
