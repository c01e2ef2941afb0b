"""Why a server could not be reached, in a few plain words and with advice; the same for every library.

Called by `transport` and by the clients of Prometheus (aiohttp), and by `official` (urllib3). Both libraries wrap the
error of the system or of TLS in errors of their own. Their words are for programmers: classes, object reprs, a count of
retries. The system's error is looked for inside.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Final, NamedTuple

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG",
                            "RECORD_LAYER_FAILURE"})  # fmt: skip
"""OpenSSL's reasons, of its versions 1.1 to 3.5, for an answer that is no TLS."""
_DATES: Final = frozenset({9, 10})
"""X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED (openssl/x509_vfy.h)."""
_NAMES: Final = frozenset({62, 63, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH, _EMAIL_MISMATCH and _IP_ADDRESS_MISMATCH (likewise)."""
_CLOSED: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_WRAPPING: Final = ("reason", "os_error", "certificate_error", "original_error", "__cause__", "__context__")
"""Where the libraries keep the error inside."""
_DEPTH: Final = 12
"""Nested errors that are searched (chosen: urllib3 has five)."""


class TrustSettings(NamedTuple):
    """Names of the TLS settings where the user wrote them."""

    authority: str = "the certificate-authority of the kubeconfig"
    server_name: str = "tls-server-name"
    own: str = "a certificate or key of the kubeconfig"


OF_THE_KUBECONFIG: Final = TrustSettings()


def why_unreachable(
    error: BaseException, server: str, seconds: float | None = None, trust: TrustSettings = OF_THE_KUBECONFIG
) -> str:
    """Return the cause, and what to check.

    Parameters
    ----------
    server : the requested address; only its scheme matters here.
    seconds : how long the client waited for an answer, if known.
    trust : the settings to check when certificates are at fault.
    """
    # Errors of aiohttp that contain another have its class as well, and none of its fields.
    inside = [
        cause for cause in _inside(error) if not hasattr(cause, "os_error") and not hasattr(cause, "certificate_error")
    ]
    for cause in inside:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _untrusted(cause, trust)
        if isinstance(cause, ssl.SSLError):
            return _no_tls(cause, trust)
        if isinstance(cause, socket.gaierror):
            return (
                f"its name is not known here ({(cause.strerror or str(cause)).lower()}); check the name and the network"
            )
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens there (connection refused); check that it runs, and its address and port"
    for cause in inside:
        if isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__:
            within = "in time" if seconds is None else f"within {seconds:g} s"
            return f"no answer {within}; check that it runs, and what is between it and us"
        if isinstance(cause, http.client.IncompleteRead) or str(cause).startswith("Response payload"):
            return "its answer broke off"
        no_http = isinstance(cause, http.client.BadStatusLine) and not isinstance(cause, ConnectionError)
        if no_http or type(cause).__name__ == "ClientResponseError":
            return "what answers there speaks no HTTP; check the address and port"
    for cause in inside:
        closed = isinstance(cause, ConnectionError) or getattr(cause, "errno", None) in _CLOSED
        if closed or "Disconnected" in type(cause).__name__:
            hint = "; does it want https://?" if server.startswith("http:") else ""
            return f"it closed the connection without an answer{hint}"
        if isinstance(cause, OSError) and cause.errno:
            return os.strerror(cause.errno).lower()
    return " ".join(str(error).split()) or type(error).__name__


def _inside(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those inside it, outermost first."""
    found, seen = [error], {id(error)}
    while found and len(seen) <= _DEPTH:
        outer = found.pop(0)
        yield outer
        for inner in (*(getattr(outer, name, None) for name in _WRAPPING), *outer.args):
            if isinstance(inner, BaseException) and id(inner) not in seen:
                seen.add(id(inner))
                found.append(inner)


def _untrusted(error: ssl.SSLCertVerificationError, trust: TrustSettings) -> str:
    words = error.verify_message.rstrip(".")
    if error.verify_code in _DATES:
        hint = "; check the server's certificate and the clocks"
    elif error.verify_code in _NAMES:
        hint = f"; check the address, or set {trust.server_name}"
    else:
        hint = f"; check {trust.authority}"
    return f"its certificate is not trusted: {words}{hint}"


def _no_tls(error: ssl.SSLError, trust: TrustSettings) -> str:
    reason = error.reason or ""
    if reason in _NO_TLS:
        return "it speaks no TLS there; is it an http:// server?"
    if "CERTIFICATE_OR_CRL" in reason or "PEM" in reason:
        return f"{trust.own} is no valid PEM"
    return f"TLS failed: {reason.replace('_', ' ').lower() or error}"
