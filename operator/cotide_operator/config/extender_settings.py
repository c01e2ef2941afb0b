"""The section ``extender``: kube-scheduler requests from Cotide the nodes that a pod may use.

Part of `settings`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from cotide_operator.config.object_names import SchedulerNames
from cotide_operator.config.section import Section

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""RFC 1123 label: the name of a Service or a namespace."""
ASSISTED: Final = "cotide-assisted"
"""Name of the profile of kube-scheduler that deploy/extender makes."""


class ExtenderSettings(Section):
    """A scheduler extender in the operator's process."""

    enabled: bool = False
    """Whether every replica serves the extender."""
    port: int = Field(default=9444, ge=1, le=65_535)
    """Port of the extender."""
    scheduler_names: SchedulerNames = (ASSISTED,)
    """The extender handles the pods of these schedulers. kube-scheduler sends the pods of all its profiles; the others
    keep all nodes."""
    assume_seconds: float = Field(default=30.0, gt=0)
    """Wall seconds of a pod's assumption on the answered node without a binding there. Chosen: far above a binding,
    and below a pod's wait for a volume; such a pod counts again when the watch shows it."""
    binds: bool = False
    """Whether the verb ``bind`` is served: then the operator binds, and writes the reason on the pod."""
    certificate_directory: Path | None = None
    """Directory of ``tls.crt`` and ``tls.key``; None: the operator makes its own and keeps it in a Secret."""
    client_authority: Path | None = None
    """Authorities of clients' certificates; a client must then show one. With None any client that connects is
    served."""
    service_name: str = Field(default="cotide-extender", pattern=_LABEL)
    """Service that kube-scheduler uses; its Secret is ``<serviceName>-certificate``."""
    service_namespace: str = Field(default="cotide-system", pattern=_LABEL)
    """Namespace of that Service."""

    @model_validator(mode="after")
    def _knows_who_binds(self) -> ExtenderSettings:
        if self.binds and self.client_authority is None:
            raise ValueError("binds needs clientAuthority: otherwise any client could bind any pod to any node")
        return self
