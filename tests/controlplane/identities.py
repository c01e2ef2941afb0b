"""Who is who on a throwaway control plane: an authority of its own, certificates, and the key that signs tokens.

Called by `control_plane`. Invariant: nothing of this outlives the folder that it is written into.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=2)
"""Chosen: longer than any test runs."""


class Authority:
    """Makes certificates that the server trusts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("cotide-tests")
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
             "decipher_only"), False,
        )  # fmt: skip
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True
            )
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "authority.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, file: str, addresses: Sequence[str] = ()) -> tuple[Path, Path]:
        """Return certificate and key of a server on the loopback address and on more addresses."""
        numbers = [x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", *addresses)]
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), *numbers]
        return self._issue(file, _name(file), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Return certificate and key of a user in groups."""
        return self._issue(user, _name(user, *groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def signing_key(self) -> Path:
        """Return a key for the tokens of service accounts."""
        return self._write_key("tokens", ec.generate_private_key(ec.SECP256R1()))

    def _issue(
        self, file: str, subject: x509.Name, usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        path = self.folder / f"{file}.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path, self._write_key(file, key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    def _write_key(self, file: str, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self.folder / f"{file}.key"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return path


def _name(common: str, *groups: str) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, common)])
