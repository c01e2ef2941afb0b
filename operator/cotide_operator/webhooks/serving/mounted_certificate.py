"""A serving certificate from a mounted Secret, as cert-manager and others keep it.

Used by `served_certificate`, where a directory of one is configured; whoever renews it also tells the API server whom
to trust (cert-manager's ``cert-manager.io/inject-ca-from``). The directory is read at each look, since a mounted Secret
gives no notice of a change; the two files are small.
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
    """What lies in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def look(self) -> Pair:
        """Return the certificate and its key as they are now.

        Raises
        ------
        InputError
            When one can't be read; names the file.
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
