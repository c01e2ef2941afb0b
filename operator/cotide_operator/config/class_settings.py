"""The section ``classes`` of the configuration file: classes of pods by the names of their PriorityClasses.

Part of `settings`; read by `assembly`. The other rules that give a pod its class are in `cotide_core.classes`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, field_validator

from cotide_core.classes import SHIPPED_PRIORITY_CLASSES, WorkloadClass
from cotide_operator.config.object_names import PriorityClassName
from cotide_operator.config.section import Section


class ClassSettings(Section):
    """The meaning of PriorityClass names in this cluster."""

    by_priority_class: Mapping[PriorityClassName, WorkloadClass] = Field(
        default_factory=lambda: dict(SHIPPED_PRIORITY_CLASSES)
    )
    """Class of a pod by the name of its PriorityClass. The shipped names keep their class unless the map names them."""

    @field_validator("by_priority_class")
    @classmethod
    def _with_shipped(cls, given: Mapping[str, WorkloadClass]) -> Mapping[str, WorkloadClass]:
        return {**SHIPPED_PRIORITY_CLASSES, **given}
