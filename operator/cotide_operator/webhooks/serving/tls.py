"""TLS settings of a listening socket that changes its certificate while it listens.

`served_certificate` uses it. A certificate is loaded into a new context and checked, then put to use at once: open
connections keep the old one, new connections get the new one. The context in use can't load it: OpenSSL keeps one
certificate for each kind of key, and would still prefer the old one if the kind changes.
"""

from __future__ import annotations

import ssl
import tempfile
from datetime import datetime
from pathlib import Path

from cotide_core.errors import InputError
from cotide_operator.webhooks.serving.certificates import Pair, expires


class ServingContext:
    """The certificate in use, and the context of the listening socket.

    Parameters
    ----------
    client_authority : file of the authorities that sign the certificates of clients, which then must show one; with
        None clients need none.

    Attributes
    ----------
    pair : Pair or None
        The certificate that is served.
    """

    def __init__(self, client_authority: Path | None = None) -> None:
        self._client_authority = client_authority
        self._clients_pem: bytes | None = None
        """Content of that file at its last load: a renewal of the clients' authority replaces the file in place."""
        self.pair: Pair | None = None
        self._current: ssl.SSLContext | None = None
        self._listening: ssl.SSLContext | None = None

    @property
    def listening(self) -> ssl.SSLContext:
        """The context for the socket; a certificate must be loaded before."""
        if self._listening is None:
            raise InputError("no certificate is loaded")
        return self._listening

    def use(self, pair: Pair, now: datetime) -> bool:
        """Use a certificate from now on, with the present authorities of clients; return whether any changed.

        Raises
        ------
        InputError
            When it is unusable (unreadable, expired, of another key); the one in use stays in use.
        """
        clients_pem = self._read_clients()
        if pair == self.pair and clients_pem == self._clients_pem:
            return False
        end = expires(pair.certificate_pem)
        if now >= end:
            raise InputError(f"the certificate expired at {end:%Y-%m-%dT%H:%M:%SZ}")
        self._current = self._context(pair)
        if self._listening is None:
            self._listening = self._context(pair)
            # Called in each handshake, whether the client names a server or not.
            self._listening.sni_callback = self._choose
        self.pair, self._clients_pem = pair, clients_pem
        return True

    def _read_clients(self) -> bytes | None:
        if self._client_authority is None:
            return None
        try:
            return self._client_authority.read_bytes()
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", file=str(self._client_authority)) from None

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        del name, context
        if self._current is not None:
            connection.context = self._current

    def _context(self, pair: Pair) -> ssl.SSLContext:
        context = _context(pair)
        if self._client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self._client_authority)
            except (OSError, ssl.SSLError) as error:
                why = error.strerror or "it holds no certificate"
                raise InputError(f"can't be read: {why}", file=str(self._client_authority)) from None
        return context


def _context(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        _load(context, pair)
    except ssl.SSLError as error:
        words = (error.reason or str(error)).replace("_", " ").lower()
        raise InputError(f"the certificate and the key can't be used together: {words}") from None
    except OSError as error:  # a disk that is full, or read-only
        raise InputError(f"the certificate can't be loaded through a temporary file: {error.strerror}") from None
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    with tempfile.TemporaryDirectory() as directory:  # private to the process; OpenSSL loads from files only
        chain, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        for path, content in ((chain, pair.certificate_pem), (key, pair.key_pem)):
            path.touch(mode=0o600)
            path.write_bytes(content)
        # With a password OpenSSL refuses an encrypted key instead of prompting for one.
        context.load_cert_chain(chain, key, password="")
