"""Sets the authority that the API server trusts: the caBundle of our MutatingWebhookConfiguration.

`webhook` uses it together with `shared_certificate`. Only the bundle is ours; the administrator defines the rules, the
service and the failurePolicy, in deploy/admission. Invariant: nothing is written if the bundle is current.
"""

from __future__ import annotations

import base64
import logging
from typing import Any

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient

_LOG = logging.getLogger(__name__)


class Registration:
    """The configuration of one name.

    Parameters
    ----------
    client : KubeClient
    name : str
        Name of the MutatingWebhookConfiguration.
    """

    def __init__(self, client: KubeClient, name: str) -> None:
        self._client = client
        self._name = name
        self._path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"

    async def trust(self, bundle_pem: bytes) -> None:
        """Make every webhook of the configuration trust a bundle.

        Raises
        ------
        ClusterError
            When the configuration is missing, or the API server refuses access.
        """
        try:
            configuration = await self._client.get(self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            raise ClusterError(
                f"MutatingWebhookConfiguration {self._name} does not exist, so no pod is shown to the webhook: "
                "kubectl apply -k deploy/admission"
            ) from None
        steps = _steps(configuration, base64.b64encode(bundle_pem).decode("ascii"))
        if not steps:
            return
        version = (configuration.get("metadata") or {}).get("resourceVersion")
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        try:
            await self._client.patch(self._path, [test, *steps], "json")
        except ApiError as error:
            # It changed meanwhile, probably by another replica with the same result: the next check shows it.
            if error.status not in (409, 422):
                raise
            return
        _LOG.info("MutatingWebhookConfiguration %s trusts this operator's authority", self._name)


def _steps(configuration: dict[str, Any], bundle: str) -> list[dict[str, Any]]:
    return [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, hook in enumerate(configuration.get("webhooks") or ())
        if (hook.get("clientConfig") or {}).get("caBundle") != bundle
    ]
