"""Names of our API group and of its marks on pods, without the schemas (pydantic), for modules that need only names."""

from __future__ import annotations

from typing import Final

GROUP: Final = "cotide.dev"
VERSION: Final = "v1alpha1"
JOB_LABEL: Final = "cotide.dev/job"
TRACKING_FINALIZER: Final = "cotide.dev/job-tracking"
"""Keeps a pod of a Job in the API until its end is in the Job's status; see `jobs`."""

PHASE_ANNOTATION: Final = "cotide.dev/phase"
"""On a pod of a Job with phases, written by its work: the present phase."""
PHASE_SIGNAL_ANNOTATION: Final = "cotide.dev/phase-signal"
"""On a pod of a Job with phases: the signal with which it requests the next one. Its one value is
`READINESS_SIGNAL`."""
READINESS_SIGNAL: Final = "readiness"
PHASE_SINCE_ANNOTATION: Final = "cotide.dev/phase-since"
"""When the granted phase was granted."""
PHASE_ENDS_ANNOTATION: Final = "cotide.dev/phase-ends"
"""When the granted phase should end; absent if its length is unknown."""
GRANTED_PHASE_ANNOTATION: Final = "cotide.dev/granted-phase"
"""The phase for the present size of its container; the work may wait for it."""
LEARNED_PHASES_ANNOTATION: Final = "cotide.dev/learned-phases"
"""On a pod of a Job without phases of its own: those of earlier runs of its type, as JSON."""
PHASE_NOTE_ANNOTATION: Final = "cotide.dev/phase-note"
"""Why a phase was granted without its size."""
KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
"""Of Kueue's pod integration: its webhook gates pods with this label; those of one group are admitted at once."""
KUEUE_FINALIZER: Final = "kueue.x-k8s.io/managed"
"""Keeps a pod of a group that ended, or was deleted, until a replacement follows."""
KUEUE_RETRIABLE_ANNOTATION: Final = "kueue.x-k8s.io/retriable-in-group"
"""``false`` on a pod of a group: failed pods get no replacement, so that the group ends when none is active."""
CONSOLIDATION_MARK: Final = "cotide.dev/consolidation"
"""Annotation of a node that is being emptied, or was: its state in consolidation, which provisioning takes over."""
