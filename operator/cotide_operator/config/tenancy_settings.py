"""The section ``tenancy`` of the configuration file: the classes that a namespace may claim by default.

Part of `settings`; read by `assembly`. Differences between namespaces are written on the Namespace object.
"""

from __future__ import annotations

from typing import Literal

from cotide_core.classes import UNRAISED
from cotide_operator.config.section import Section


class TenancySettings(Section):
    """Defaults of all namespaces."""

    max_class_without_label: Literal["unraised", "online", "batch", "gratis"] = UNRAISED
    """Highest class in a namespace without the label ``cotide.dev/max-class``. ``unraised``: an ordinary pod is online,
    as ever; a label or a PriorityClass does not make pods of a Job or with reclaimed capacity online."""
