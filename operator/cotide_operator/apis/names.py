"""Names of our API group and of its marks on pods, for those who need not load the schemas (pydantic) to know them."""

from __future__ import annotations

from typing import Final

GROUP: Final = "cotide.dev"
VERSION: Final = "v1alpha1"
JOB_LABEL: Final = "cotide.dev/job"
TRACKING_FINALIZER: Final = "cotide.dev/job-tracking"
"""Keeps a pod of a Job in the API until its end is in the Job's status; see `jobs`."""
