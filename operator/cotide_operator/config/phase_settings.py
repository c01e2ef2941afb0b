"""The section ``phases`` of the configuration file: whether phases of Jobs are learned from what earlier runs used.

Part of `settings`; read by `assembly` and `usage.phase_learning`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cotide_operator.config.section import Section


class PhaseSettings(Section):
    """Phases that no Job states."""

    learn: bool = False
    """Whether Jobs with a type and without stated phases get those that earlier runs of the type had."""
    pooled_namespaces: tuple[str, ...] = ()
    """Whose runs teach one another; ``*`` for every namespace. Others learn from their own runs alone."""
    types_most: int = Field(default=1000, ge=1, le=100_000)
    """Types of all namespaces that are kept; of more, the one taught longest ago of the namespace that has most goes.
    Chosen: some 20 kB each."""
    store: Literal["directory", "configMaps", "memory"] = "configMaps"
    """Where they outlive the process: beside the models (``models.directory``), in a ConfigMap of the operator's
    namespace for each that learns, or nowhere."""
    keep_seconds: float = Field(default=60.0, gt=0)
    """Wall seconds between two writes of it; chosen."""
