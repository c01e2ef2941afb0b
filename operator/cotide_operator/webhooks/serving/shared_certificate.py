"""A self-made authority and serving certificate, in one Secret that all replicas share and any of them renews.

`served_certificate` uses it without a given certificate. Each check makes at most one step and writes it with the
version that it read. If two replicas renew at once, the server refuses one (409), which then reads the other's result::

    nothing, unusable, not valid yet -> authority and certificate
    authority past 2/3 of its life ---> a new authority in front of the old one in ca.crt; the certificate stays
    certificate past 2/3 of its life -> a new certificate, by the first authority

Invariant: the authority of a served certificate was in ca.crt one check earlier, so that the API server has had time to
learn it. Exceptions are the very first one, and a Secret that was not renewed in time.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from cotide_core.errors import ClusterError, InputError
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.webhooks.serving.certificates import (
    AUTHORITY_LIFE,
    SERVING_LIFE,
    Pair,
    begins,
    belongs_to,
    due,
    expires,
    make_authority,
    make_serving,
    names_in,
    read_certificates,
    signed_by,
)

_LOG = logging.getLogger(__name__)

FIELDS: Final = {
    "bundle_pem": "ca.crt",
    "authority_key_pem": "ca.key",
    "certificate_pem": "tls.crt",
    "key_pem": "tls.key",
}
TRIES: Final = 5
"""Lost races in a row before a check ends; chosen: each one means that another replica wrote."""


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """Content of the Secret, as PEM; ``bundle_pem`` has the signing authority in front of former ones."""

    bundle_pem: bytes
    authority_key_pem: bytes
    certificate_pem: bytes
    key_pem: bytes

    @property
    def serving(self) -> Pair:
        """The certificate that is served."""
        return Pair(self.certificate_pem, self.key_pem)

    @property
    def authority(self) -> Pair:
        """The authority that signs."""
        return Pair(self.bundle_pem, self.authority_key_pem)


@dataclass(frozen=True, slots=True)
class Lives:
    """Lifetimes of new certificates; tests shorten them."""

    authority: timedelta = field(default=AUTHORITY_LIFE)
    serving: timedelta = field(default=SERVING_LIFE)


def renewed(
    kept: StoredCertificate | None, names: Sequence[str], now: datetime, lives: Lives = Lives()
) -> StoredCertificate:
    """Return the due content of the Secret: the same object if nothing is due.

    Raises
    ------
    InputError
        When the present content is unreadable.
    """
    if kept is None or not _is_good(kept.bundle_pem, now):
        authority = make_authority(now, lives.authority)
        serving = make_serving(authority, names, now, lives.serving)
        return StoredCertificate(authority.certificate_pem, authority.key_pem, serving.certificate_pem, serving.key_pem)
    if not belongs_to(kept.authority_key_pem, kept.bundle_pem):
        # No client would trust its certificates, and each check would sign a new one.
        raise InputError("has an authority with the key of another")
    lost = (
        not belongs_to(kept.key_pem, kept.certificate_pem)
        or not _is_good(kept.certificate_pem, now)
        or not signed_by(kept.certificate_pem, kept.bundle_pem)
    )
    if due(kept.bundle_pem, now) and not lost:
        authority = make_authority(now, lives.authority)
        bundle = authority.certificate_pem + _living(kept.bundle_pem, now)
        return StoredCertificate(bundle, authority.key_pem, kept.certificate_pem, kept.key_pem)
    if lost or due(kept.certificate_pem, now) or not set(names) <= names_in(kept.certificate_pem):
        serving = make_serving(kept.authority, names, now, lives.serving)
        return StoredCertificate(kept.bundle_pem, kept.authority_key_pem, serving.certificate_pem, serving.key_pem)
    return kept


def _is_good(pem: bytes, now: datetime) -> bool:
    """Whether a certificate is valid now: one from a clock that ran ahead is not valid yet, maybe for years."""
    return begins(pem) <= now < expires(pem)


def _living(bundle: bytes, now: datetime) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(
        certificate.public_bytes(Encoding.PEM)
        for certificate in read_certificates(bundle)
        if now < certificate.not_valid_after_utc
    )


class SharedCertificate:
    """The Secret, and its renewal.

    Parameters
    ----------
    client : KubeClient
    namespace, name : str
        Of the Secret.
    names : sequence of str
        Names that the certificate must contain.
    now : callable
        The time of day; tests pass their own.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        names: Sequence[str],
        *,
        now: Callable[[], datetime],
        lives: Lives = Lives(),
    ) -> None:
        self._client = client
        self._namespace, self._name, self._names = namespace, name, tuple(names)
        self._now, self._lives = now, lives
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"

    async def look(self) -> StoredCertificate:
        """Return the content of the Secret, after the due renewal.

        Raises
        ------
        ClusterError
            When the API server refuses access.
        """
        for _ in range(TRIES):
            secret = await self._read()
            kept = self._kept(secret)
            try:
                wanted = renewed(kept, self._names, self._now(), self._lives)
            except InputError as error:
                _LOG.warning("Secret %s/%s %s: its content is made again", self._namespace, self._name, error)
                wanted = renewed(None, self._names, self._now(), self._lives)
            if wanted is kept or await self._write(secret, wanted):
                return wanted
        raise ClusterError(f"Secret {self._namespace}/{self._name} was changed by others {TRIES} times in a row")

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(f"{self._collection}/{self._name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _kept(self, secret: Mapping[str, Any] | None) -> StoredCertificate | None:
        data = (secret or {}).get("data") or {}
        try:
            return StoredCertificate(
                **{name: base64.b64decode(data[key], validate=True) for name, key in FIELDS.items()}
            )
        except (KeyError, TypeError, binascii.Error):
            return None

    async def _write(self, secret: dict[str, Any] | None, wanted: StoredCertificate) -> bool:
        """Write the Secret; False when another replica was faster."""
        data = {key: base64.b64encode(getattr(wanted, name)).decode("ascii") for name, key in FIELDS.items()}
        try:
            if secret is None:
                metadata = {
                    "name": self._name,
                    "namespace": self._namespace,
                    "labels": {"app.kubernetes.io/part-of": "cotide"},
                }
                body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
                await self._client.create(self._collection, {**body, "metadata": metadata, "data": data})
            else:  # its metadata contains its resourceVersion: a stale one is refused
                await self._client.replace(f"{self._collection}/{self._name}", {**secret, "data": data})
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        end = expires(wanted.certificate_pem)
        _LOG.info("Secret %s/%s renewed: the webhook's certificate ends %s", self._namespace, self._name, end.date())
        return True
