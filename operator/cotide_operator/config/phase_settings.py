"""The section ``phases`` of the configuration file: phases of Jobs that are learned from the usage of earlier runs.

Part of `settings`; read by `assembly` and `usage.phase_learning`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cotide_operator.config.section import Section


class PhaseSettings(Section):
    """Phases that no Job states."""

    learn: bool = False
    """Whether Jobs with a type and without stated phases get those of earlier runs of the type."""
    pooled_namespaces: tuple[str, ...] = ()
    """Namespaces that share their runs for learning; ``*`` for every namespace. Others learn from their own runs."""
    types_most: int = Field(default=1000, ge=1, le=100_000)
    """Stored types of all namespaces; beyond that, the namespace with most types loses the one taught longest ago.
    Chosen: some 20 kB each."""
    store: Literal["directory", "configMaps", "memory"] = "configMaps"
    """Where the phases outlive the process: next to the models (``models.directory``), in a ConfigMap of the operator's
    namespace for each namespace that learns, or nowhere."""
    keep_seconds: float = Field(default=60.0, gt=0)
    """Wall seconds between two writes of the store; chosen."""
