"""Conditions for the start of the operator: the API server answers, and serves our resources.

`assembly` calls it once. With ``--install-crds`` it first applies our CRDs and PriorityClasses; without it the operator
waits for them, with one line in the log. Invariant: nothing here changes a cluster without that option.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final, NamedTuple

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.cache.object_cache import PATHS

_LOG = logging.getLogger(__name__)

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
POLL_SECONDS: Final = 1.0
UNPROCESSABLE: Final = 422
"""Status of a write that would change an immutable field."""


class _ShippedClass(NamedTuple):
    """The fields of a PriorityClass of ours, word for word as in `deploy/base/priority-classes.yaml`.

    With another text, a user of ``--install-crds`` could not apply `deploy/` afterwards: server-side apply reports a
    conflict.
    """

    value: int
    preemption_policy: str
    description: str


PRIORITIES: Final = {
    "cotide-online": _ShippedClass(9000, "Never", "Latency-sensitive services; never evicted for batch."),
    "cotide-batch": _ShippedClass(2000, "Never", "Work that must finish; may be evicted on overload."),
    "cotide-gratis": _ShippedClass(0, "Never", "Best effort; first to go."),
}
"""The name decides the class; the value orders pods within it. None preempts, since any tenant may use the names. API
servers never change a value, so these are the values of every release: an upgrade and its roll-back find the same
ones."""


async def install(client: KubeClient) -> None:
    """Apply our CRDs and PriorityClasses. A PriorityClass with another value stays: no API server changes a value.

    Raises
    ------
    ClusterError
        When the API server refuses one of them.
    """
    from cotide_operator.apis.crd_generation import (  # slow to import, and only this function needs the schemas
        RESOURCES,
        definition,
    )

    for resource in RESOURCES:
        await client.patch(f"{_CRDS}/{resource.crd_name}", definition(resource), "apply")
    for name, shipped in PRIORITIES.items():
        body: dict[str, Any] = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "cotide"}},
            "value": shipped.value,
            "description": shipped.description,
            "preemptionPolicy": shipped.preemption_policy,
        }
        try:
            await client.patch(f"{_PRIORITY_CLASSES}/{name}", body, "apply")
        except ApiError as error:
            if error.status != UNPROCESSABLE:
                raise
            _LOG.warning("PriorityClass %s stays as it is (docs/install.md, Priority classes): %s", name, error)
    _LOG.info("custom resources and priority classes are installed")


async def connect(client: KubeClient) -> None:
    """Open a connection in advance: the first bindings then need no handshake."""
    with contextlib.suppress(ClusterError):  # the result is unused; other requests report an outage
        await client.get("/version")


async def await_resources(client: KubeClient) -> None:
    """Return when the API server serves our resources; log once while it waits.

    Raises
    ------
    ClusterError
        When the API server is unreachable or refuses access.
    """
    is_logged = False
    for kind in ("workloads", "jobs"):
        while not await _served(client, PATHS[kind]):
            if not is_logged:
                _LOG.warning(
                    "the custom resources of cotide.dev are not installed: waiting for them "
                    "(kubectl apply --server-side -k deploy/crds, or start with --install-crds)"
                )
                is_logged = True
            await asyncio.sleep(POLL_SECONDS)


async def _served(client: KubeClient, path: str) -> bool:
    try:
        await client.request("GET", path, params={"limit": "1"})
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


async def await_namespace(client: KubeClient, name: str) -> None:
    """Create the namespace of the lease if it is missing; without the right to do so, the election reports the fault.

    Only leader election calls it.
    """
    try:
        await client.get(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status != 404:
            return
        try:
            await client.create(
                "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        except ClusterError as refused:
            _LOG.warning("the namespace %s of the lease does not exist and can't be created: %s", name, refused)
