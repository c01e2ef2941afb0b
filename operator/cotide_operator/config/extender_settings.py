"""The section ``extender``: kube-scheduler asks Cotide which nodes a pod may have.

Part of `settings`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field, model_validator

from cotide_operator.config.object_names import SchedulerNames
from cotide_operator.config.section import Section

_LABEL: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""RFC 1123 label: what names a Service or a namespace."""
ASSISTED: Final = "cotide-assisted"
"""Name of the profile of kube-scheduler that deploy/extender makes."""


class ExtenderSettings(Section):
    """A scheduler extender beside the operator."""

    enabled: bool = False
    port: int = Field(default=9444, ge=1, le=65_535)
    scheduler_names: SchedulerNames = (ASSISTED,)
    """Whose pods are looked at. kube-scheduler asks about the pods of all its profiles; the others keep all nodes."""
    assume_seconds: float = Field(default=30.0, gt=0)
    """Wall seconds for which a pod counts on the node that was answered before anybody bound it there. Chosen: far
    above a binding, and below what a pod may wait for a volume, which then counts anew when the watch tells."""
    binds: bool = False
    """Whether the verb ``bind`` is served: then it is the operator that binds, and writes why onto the pod."""
    certificate_directory: Path | None = None
    """Holds ``tls.crt`` and ``tls.key``; None: the operator makes its own and keeps it in a Secret."""
    client_authority: Path | None = None
    """Authorities of clients' certificates; a client must then show one. None lets everybody ask who can connect."""
    service_name: str = Field(default="cotide-extender", pattern=_LABEL)
    service_namespace: str = Field(default="cotide-system", pattern=_LABEL)

    @model_validator(mode="after")
    def _knows_who_binds(self) -> ExtenderSettings:
        if self.binds and self.client_authority is None:
            raise ValueError("binds needs clientAuthority: else whoever reaches the port could bind any pod anywhere")
        return self
