"""Rules of entering the queue: which pods this scheduler places, and which changes of a waiting pod matter.

Called by `cycle.Scheduler` for each reported pod.
"""

from __future__ import annotations

from cotide_core.events import Pod, PodPhase
from cotide_core.state.cluster_state import PodRecord


def is_schedulable(record: PodRecord) -> bool:
    """Whether this scheduler must place a pod: ours, pending, not being deleted, neither bound nor assumed."""
    pod = record.pod
    return pod.ours and record.node is None and pod.phase is PodPhase.PENDING and not pod.terminating


def is_irrelevant_update(before: Pod, after: Pod) -> bool:
    """Whether a waiting pod changed only in fields that do not affect its placement.

    Our own status updates (attempts, demotions, a nomination) come back and do not count as a change. Labels matter
    only where selectors read them; the caller checks that.
    """
    ours = after._replace(
        attempts=before.attempts,
        demotions=before.demotions,
        nominated_node=before.nominated_node,
        labels=before.labels,
    )
    return before in (after, ours)
