"""The section ``tenancy`` of the configuration file: what a namespace may claim without an administrator's word.

Part of `settings`; read by `assembly`. What differs by namespace is written on the Namespace object.
"""

from __future__ import annotations

from typing import Literal

from cotide_core.classes import UNRAISED
from cotide_operator.config.section import Section


class TenancySettings(Section):
    """Defaults of all namespaces."""

    max_class_without_label: Literal["unraised", "online", "batch", "gratis"] = UNRAISED
    """What pods of a namespace without the label ``cotide.dev/max-class`` may claim. ``unraised``: an ordinary pod is
    online, as ever; what a Job owns or asks for reclaimed capacity is not made online by a label or a PriorityClass."""
