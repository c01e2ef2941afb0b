"""Tells the API server whom to trust: the caBundle of our MutatingWebhookConfiguration.

Used by `webhook` beside `shared_certificate`. Only the bundle is ours; what is asked, of whom and with which
failurePolicy is the administrator's, in deploy/admission. Invariant: nothing is written when all is as it should be.
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
        Of the MutatingWebhookConfiguration.
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
            When there is no such configuration, or the API server does not let us.
        """
        try:
            configuration = await self._client.get(self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            raise ClusterError(
                f"MutatingWebhookConfiguration {self._name} is not there, so no pod is shown to the webhook: "
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
            # Somebody changed it meanwhile, most likely another replica to the same: the next look tells.
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
