"""Names of schedulers and PriorityClasses in the configuration file, checked as the API server checks such names.

Part of `settings` and of its sections.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

DEFAULT_SCHEDULER_NAME: Final = "cotide"
"""The scheduler's name of our pods by default."""
SUBDOMAIN_CHARACTERS: Final = 253
"""RFC 1123; k8s.io/apimachinery, ``DNS1123SubdomainMaxLength``."""
RESERVED: Final = "system-"
SYSTEM_PRIORITY_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
"""All names that begin with `RESERVED`: the API server refuses others (kubernetes/pkg/apis/scheduling)."""
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _subdomain(name: str) -> str:
    if not name:
        raise ValueError("must not be empty")
    if len(name) > SUBDOMAIN_CHARACTERS or _SUBDOMAIN.fullmatch(name) is None:
        raise ValueError(
            f"{name[:SUBDOMAIN_CHARACTERS]!r} is no DNS name: at most {SUBDOMAIN_CHARACTERS} lower-case letters, "
            "digits, hyphens and dots, with a letter or digit at both ends"
        )
    return name


def _priority_class(name: str) -> str:
    if name.startswith(RESERVED) and name not in SYSTEM_PRIORITY_CLASSES:
        raise ValueError(f"no PriorityClass has this name: {RESERVED} is reserved by Kubernetes")
    return _subdomain(name)


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"names {twice} twice")
    return names


SchedulerName = Annotated[str, AfterValidator(_subdomain)]
"""``spec.schedulerName`` of a pod."""
SchedulerNames = Annotated[tuple[SchedulerName, ...], Field(min_length=1), AfterValidator(_distinct)]
"""At least one, each once."""
PriorityClassName = Annotated[str, AfterValidator(_priority_class)]
