"""Certificates of the webhook: an authority of our own, and the certificates that it signs.

`shared_certificate` calls it. Pure except for the keys, which are random: the time is passed in. Elliptic-curve keys
(P-256), since every API server accepts them and they are made in a millisecond.

Source of the profile: RFC 5280; names as the API server checks them: https://kubernetes.io/docs/reference/
access-authn-authz/extensible-admission-controllers/#service-reference
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cotide_core.errors import InputError

AUTHORITY_LIFE: Final = timedelta(days=3650)
"""Chosen: longer than most clusters live; it is renewed nevertheless."""
SERVING_LIFE: Final = timedelta(days=90)
"""Chosen: the usual life of a certificate that renews itself. Must stay below a third of the authority's, so that an
authority that is renewed in time outlives all its certificates."""
RENEWAL_SHARE: Final = 2 / 3
"""Share of its life after which a certificate is renewed: cert-manager's default."""
SKEW: Final = timedelta(minutes=5)
"""Largest lag of an API server's clock behind ours; chosen. Never more than a tenth of a certificate's life."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate (with those that follow it in its file) and its key, as PEM."""

    certificate_pem: bytes
    key_pem: bytes


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, in its order.

    Raises
    ------
    InputError
        When there is none, or one can't be read.
    """
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion) as error:
        raise InputError(f"holds no readable certificate: {error}") from None


def expires(pem: bytes) -> datetime:
    """Return when the first certificate of a PEM text ends."""
    return read_certificates(pem)[0].not_valid_after_utc


def begins(pem: bytes) -> datetime:
    """Return the start of the validity of the first certificate of a PEM text."""
    return read_certificates(pem)[0].not_valid_before_utc


def due(pem: bytes, now: datetime) -> bool:
    """Whether the first certificate of a PEM text has lived two thirds of its life."""
    certificate = read_certificates(pem)[0]
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * RENEWAL_SHARE


def names_in(pem: bytes) -> set[str]:
    """Return the valid names and addresses of the first certificate of a PEM text."""
    try:
        found = read_certificates(pem)[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = found.get_values_for_type(x509.IPAddress)
    return {*found.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)}


def signed_by(pem: bytes, authorities_pem: bytes) -> bool:
    """Whether one of these authorities signed the first certificate of a PEM text."""
    certificate = read_certificates(pem)[0]
    for authority in read_certificates(authorities_pem):
        try:
            certificate.verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


def belongs_to(key_pem: bytes, pem: bytes) -> bool:
    """Whether a key of ours belongs to the first certificate of a PEM text; raises InputError."""
    return read_key(key_pem).public_key() == read_certificates(pem)[0].public_key()


def make_authority(now: datetime, life: timedelta = AUTHORITY_LIFE) -> Pair:
    """Return a new authority, which can sign certificates of servers and no further authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial number makes the name of an authority differ from the previous one.
    serial = x509.random_serial_number()
    name = _name(f"cotide-admission-{serial:x}"[:64])
    certificate = (
        _builder(name, name, key.public_key(), now, life, serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def make_serving(authority: Pair, names: Sequence[str], now: datetime, life: timedelta = SERVING_LIFE) -> Pair:
    """Return a new certificate of a server for these names and addresses; the first is its common name.

    Raises
    ------
    InputError
        When the authority can't be read.
    """
    issuer = read_certificates(authority.certificate_pem)[0]
    signer = read_key(authority.key_pem)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(names[0][:64]), issuer.subject, key.public_key(), now, life, x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the key of one of our authorities.

    Raises
    ------
    InputError
        When it is no such key.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise InputError(f"holds no readable key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError("holds a key that is not on an elliptic curve")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
    serial: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - min(SKEW, life / 10))
        .not_valid_after(now + life)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return Pair(certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
