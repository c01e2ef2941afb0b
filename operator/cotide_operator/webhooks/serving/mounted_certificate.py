"""A serving certificate from a mounted Secret, as cert-manager and others keep it.

`served_certificate` uses it if a directory is configured. The program that renews the certificate also sets the trusted
authority at the API server (cert-manager's ``cert-manager.io/inject-ca-from``). The directory is read at each check,
since a mounted Secret does not report changes; the two files are small.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_operator.webhooks.serving.certificates import Pair

FILES: Final = ("tls.crt", "tls.key")
"""The keys of a Secret of type kubernetes.io/tls."""


class MountedCertificate:
    """The certificate and key in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def look(self) -> Pair:
        """Return the present certificate and its key.

        Raises
        ------
        InputError
            When one is unreadable; names the file.
        """
        certificate, key = await asyncio.to_thread(self._read)
        return Pair(certificate, key)

    def _read(self) -> list[bytes]:
        found = []
        for name in FILES:
            path = self._directory / name
            try:
                found.append(path.read_bytes())
            except OSError as error:
                raise InputError(f"can't be read: {error.strerror}", file=str(path)) from error
        return found
