"""A certificate authority and a server certificate, made at start.

Called by the server when TLS is on. The keys live in memory, and for the instant that OpenSSL needs to load them in a
private temporary directory.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=365)
"""Chosen: longer than any emulator runs."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts: the authority that clients trust, and the server's own chain and key."""

    authority_pem: bytes
    server_pem: bytes
    key_pem: bytes

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS settings of the listening socket."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        with tempfile.TemporaryDirectory() as directory:
            chain = Path(directory) / "server.pem"
            chain.touch(mode=0o600)
            chain.write_bytes(self.server_pem + self.key_pem)
            context.load_cert_chain(chain)
        return context


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternatives(host: str) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName("kubernetes")]
    addresses = {"127.0.0.1", "::1"}
    try:
        ipaddress.ip_address(host)
        addresses.add(host)
    except ValueError:
        names.append(x509.DNSName(host))
    return names + [x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)]


def self_signed(host: str) -> Certificates:
    """Return a new authority and a certificate for a host, for localhost and for the loopback addresses."""
    now = datetime.now(UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_id = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())

    def builder(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name("cotide-authority"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
         "decipher_only"), False,
    )  # fmt: skip
    authority = (
        builder("cotide-authority", authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(authority_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        builder("cotide-apiserver", server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_alternatives(host)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_id), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Certificates(
        authority.public_bytes(pem),
        server.public_bytes(pem),
        server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
