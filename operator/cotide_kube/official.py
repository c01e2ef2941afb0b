"""The official Kubernetes client, for what needs no throughput: the commands connect and read with it.

Called by `consolidation.official_client` and `explain.reader`. The operator itself does without: loading this client
takes 0.3 s of cpu and 29 MB where our own reading of a kubeconfig takes 0.05 s (measured), before the first list can be
asked for and in every replica; and it posts half as many bindings a second. A command that waits for one answer pays
no more than for our own client, whose HTTP library takes as long to load.

Invariant: whatever goes wrong is a `ClusterError`, and a file that is no kubeconfig an `InputError`, in one sentence;
answers are the server's own bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError, read_status
from cotide_kube.credentials import SERVICE_ACCOUNT
from cotide_kube.kubeconfig import expanded, read

TIMEOUT_SECONDS: Final = 30.0
"""For one request; chosen: somebody waits at a terminal."""


def connect(kubeconfig: str | None = None, context: str | None = None, *, retries: bool = True) -> Any:
    """Return the official client's `ApiClient`, by a kubeconfig or from inside a cluster.

    Parameters
    ----------
    retries : whether its HTTP library asks up to three times more by itself, each time with a time-out of its own.

    Raises
    ------
    ClusterError
        When there is no usable configuration.
    InputError
        When the file named is no kubeconfig.
    """
    from kubernetes import client
    from kubernetes import config as untyped

    config: Any = untyped
    configuration: Any = client.Configuration()
    if not retries:
        configuration.retries = False
    try:
        return config.new_client_from_config(
            config_file=kubeconfig, context=context, client_configuration=configuration
        )
    except (config.ConfigException, OSError) as error:
        if kubeconfig is not None or context is not None:
            raise ClusterError(f"the kubeconfig can't be used: {error}") from error
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException as inside:
            raise ClusterError(f"no kubeconfig ({error}), and no cluster around us ({inside})") from inside
        return client.ApiClient(configuration)
    except Exception as error:  # its reader checks nothing: what trips it is what the file holds
        named = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        if os.pathsep not in named:
            read(expanded(named), context)  # raises, too, and says which field
        raise ClusterError(f"the kubeconfig can't be read: {' '.join(str(error).split())}") from error


def namespace_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace of a context, or of the pod around us; ``default`` where none is named."""
    from kubernetes import config as untyped

    config: Any = untyped
    try:
        contexts, current = config.list_kube_config_contexts(config_file=kubeconfig)
    except Exception:  # noqa: BLE001 - no kubeconfig, or one that `connect` has refused in words
        own: Path = SERVICE_ACCOUNT / "namespace"
        return own.read_text(encoding="utf-8").strip() if own.exists() else "default"
    chosen = next((one for one in contexts if one["name"] == context), current)
    return str((chosen.get("context") or {}).get("namespace") or "default")


def ask(call: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    """Return the bytes of an answer.

    Raises
    ------
    ApiError
        When the API server refuses.
    ClusterError
        When it can't be reached.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return bytes(call(*args, **kwargs, _preload_content=False, _request_timeout=TIMEOUT_SECONDS).data)
    except ApiException as error:
        status = int(error.status or 0)
        body = error.body.encode() if isinstance(error.body, str) else b""
        raise ApiError(status, *read_status(status, body)) from error
    except HTTPError as error:
        raise ClusterError(f"the API server can't be reached: {error}") from error
