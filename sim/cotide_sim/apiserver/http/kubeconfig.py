"""The kubeconfig for clients of the embedded server.

Called by the server; the text is read by kubectl, by the official client and by ours.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from cotide_core.errors import InputError
from cotide_files.replacement import replace_file

NAME: Final = "cotide"


def kubeconfig_text(url: str, token: str = "", authority_pem: bytes | None = None) -> str:
    """Return a kubeconfig with one cluster, one user and one context."""
    cluster: dict[str, Any] = {"server": url}
    if authority_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(authority_pem).decode()
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": "default"}}],
        "current-context": NAME,
    }
    return yaml.safe_dump(value, sort_keys=False)


def write_kubeconfig(path: Path, text: str) -> None:
    """Write a kubeconfig that only its owner can read, complete or not at all.

    An existing path that is not a plain file, such as /dev/stdout, a pipe or a link, is written in place and not
    replaced.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise InputError(f"can't write the kubeconfig: {error.strerror}", file=str(path)) from None
