"""Who is who on a throwaway control plane: an authority of its own, certificates, and the key that signs tokens.

Called by `control_plane`. Invariant: nothing of this outlives the folder that it is written into.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOOPBACK = "127.0.0.1"


class Authority:
    """Makes certificates that the server trusts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = trustme.CA()
        self.path = folder / "authority.pem"
        self._own.cert_pem.write_to_path(self.path)

    def server(self, file: str, addresses: Sequence[str] = ()) -> tuple[Path, Path]:
        """Return certificate and key of a server on the loopback address and on more addresses."""
        return self._written(file, self._own.issue_cert("localhost", LOOPBACK, *addresses, common_name=file))

    def client(self, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Return certificate and key of a user in a group."""
        # With the address beside the name: servers written in Go refuse a certificate whose list of addresses is empty.
        return self._written(user, self._own.issue_cert(LOOPBACK, common_name=user, organization_name=group))

    def signing_key(self) -> Path:
        """Return a key for the tokens of service accounts."""
        pem, plain = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        key = ec.generate_private_key(ec.SECP256R1())
        return self._kept("tokens", trustme.Blob(key.private_bytes(pem, plain, serialization.NoEncryption())))

    def _written(self, file: str, made: trustme.LeafCert) -> tuple[Path, Path]:
        path = self.folder / f"{file}.pem"
        made.cert_chain_pems[0].write_to_path(path)
        return path, self._kept(file, made.private_key_pem)

    def _kept(self, file: str, key: trustme.Blob) -> Path:
        path = self.folder / f"{file}.key"
        path.touch(mode=0o600)
        key.write_to_path(path)
        return path
