"""Names of our API group and of its marks on pods, for those who need not load the schemas (pydantic) to know them."""

from __future__ import annotations

from typing import Final

GROUP: Final = "cotide.dev"
VERSION: Final = "v1alpha1"
JOB_LABEL: Final = "cotide.dev/job"
TRACKING_FINALIZER: Final = "cotide.dev/job-tracking"
"""Keeps a pod of a Job in the API until its end is in the Job's status; see `jobs`."""

PHASE_ANNOTATION: Final = "cotide.dev/phase"
"""On a pod of a Job with phases, written by its work: where it is."""
PHASE_SIGNAL_ANNOTATION: Final = "cotide.dev/phase-signal"
"""On a pod of a Job with phases: what shows that it wants the next one. Its one value is `READINESS_SIGNAL`."""
READINESS_SIGNAL: Final = "readiness"
PHASE_SINCE_ANNOTATION: Final = "cotide.dev/phase-since"
"""When the granted phase was granted."""
PHASE_ENDS_ANNOTATION: Final = "cotide.dev/phase-ends"
"""When the granted phase should end; absent where its length is not known."""
GRANTED_PHASE_ANNOTATION: Final = "cotide.dev/granted-phase"
"""The phase whose size its container has; the work waits for it, if it cares."""
LEARNED_PHASES_ANNOTATION: Final = "cotide.dev/learned-phases"
"""On a pod of a Job without phases of its own: those that earlier runs of its type had, as JSON."""
PHASE_NOTE_ANNOTATION: Final = "cotide.dev/phase-note"
"""Why a phase was granted without its size."""
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
"""Of Kueue's pod integration: its webhook gates pods with the first; those of one group are admitted at once."""
KUEUE_FINALIZER: Final = "kueue.x-k8s.io/managed"
"""Keeps a pod of a group that ended, or was deleted, until another one follows it."""
KUEUE_RETRIABLE_ANNOTATION: Final = "kueue.x-k8s.io/retriable-in-group"
"""``false`` on a pod of a group: nobody follows those that failed, so that the group is over when none is active."""
