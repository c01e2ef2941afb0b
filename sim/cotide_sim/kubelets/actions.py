"""The actions of fake nodes on an API server for their pods.

Made by `residents`, carried out by `writer`, which keeps the order for each pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from cotide_sim.kubelets.statuses import Status


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Make this the pod's status."""

    key: str
    uid: str
    status: Status


@dataclass(frozen=True, slots=True)
class RemovePod:
    """No container of the pod runs any more: delete it permanently."""

    key: str
    uid: str


Action = WriteStatus | RemovePod
