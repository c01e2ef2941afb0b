"""The address of an API server and our identity there: made once at start, from a kubeconfig or inside a cluster.

Called by every command that talks to a cluster; read by `client`. Nothing here talks to the API server; exec and
auth-provider plugins run through the official client's loader (see `kubeconfig`).

Order: the path given, ``$KUBECONFIG``, the service account of the pod that we run in, ``~/.kube/config``.
"""

from __future__ import annotations

import base64
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotide_core.errors import ClusterError, InputError
from cotide_kube import kubeconfig as kubeconfig_files

_LOG = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account, in every conformant cluster."""
NO_CLUSTER = (
    "no cluster is known: give --kubeconfig FILE, set KUBECONFIG, or run inside a cluster ({looked_at} does not exist "
    "either)"
)
TOKEN_REREAD_SECONDS = 60.0
"""Projected tokens are replaced in place, at 80 % of their life; kubelet's own file sync takes about a minute."""


class StaticToken:
    """An ``Authorization`` header that never changes; None sends no header (client certificates, open servers)."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    def __call__(self) -> str | None:
        """Return the header to send now."""
        return self._header

    def forget(self) -> None:
        """Do nothing: no other token is available."""


class FileToken:
    """A bearer token in a file that is replaced from time to time; read again at most once a minute."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._header: str | None = None
        self._read_at = 0.0

    def __call__(self) -> str | None:
        """Return the header to send now."""
        now = self._clock()
        if self._header is None or now - self._read_at > TOKEN_REREAD_SECONDS:
            try:
                self._header = f"Bearer {self._path.read_text(encoding='utf-8').strip()}"
            except OSError as error:
                raise ClusterError(f"the token file {self._path} can't be read: {error.strerror}") from error
            self._read_at = now
        return self._header

    def forget(self) -> None:
        """Read the file again at the next request: the server just refused the present token."""
        self._header = None


class PluginToken:
    """A token of an exec or auth-provider plugin; the plugin runs again when the server refuses the token."""

    def __init__(self, fetch: Callable[[], str | None], first: str | None) -> None:
        self._fetch, self._header = fetch, first

    def __call__(self) -> str | None:
        """Return the header to send now."""
        if self._header is None:
            self._header = self._fetch()
        return self._header

    def forget(self) -> None:
        """Run the plugin again at the next request."""
        self._header = None


TokenSource = StaticToken | FileToken | PluginToken


class FollowingContext(ssl.SSLContext):
    """TLS settings that adopt the certificate authorities of a file after each change.

    A cluster's authority rotates while the process runs: first the file names both, then servers show certificates of
    the new one. The file is checked for each connection, before its handshake. A trusted authority stays trusted until
    the process ends; an unreadable or broken file changes nothing.
    """

    _file: Path | None = None
    _seen: tuple[int, int] | None = None

    def follow(self, file: Path) -> None:
        """Trust the authorities that a file names, now and from now on."""
        self._file = file
        self._take_over()

    def wrap_bio(self, *how: Any, **more: Any) -> ssl.SSLObject:
        """Begin a handshake."""
        self._take_over()
        return super().wrap_bio(*how, **more)

    def _take_over(self) -> None:
        if self._file is None:
            return
        try:
            about = self._file.stat()
            if (about.st_mtime_ns, about.st_size) == self._seen:
                return
            self.load_verify_locations(cadata=self._file.read_text(encoding="ascii"))
            self._seen = about.st_mtime_ns, about.st_size
        except (OSError, ValueError) as error:  # a broken file is an SSLError, which is an OSError
            _LOG.warning("the certificate authorities in %s can't be read: %s", self._file, error)


@dataclass(frozen=True, slots=True)
class Credentials:
    """An API server and an identity there.

    Attributes
    ----------
    server : base URL without a trailing slash.
    origin : where this came from, for messages (``kubeconfig FILE, context NAME``).
    token : gives the ``Authorization`` header for each request; ``forget()`` after a 401.
    certificate_authority, client_certificate, client_key : PEM; None for none.
    authority_file : where ``certificate_authority`` is from, if it is followed there when it changes.
    insecure : accept any server certificate.
    server_name : name to expect in the server's certificate, when it is not the host.
    namespace : the context's namespace.
    """

    server: str
    origin: str = ""
    token: TokenSource = field(default_factory=lambda: StaticToken(None))
    certificate_authority: bytes | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    authority_file: Path | None = None
    insecure: bool = False
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"

    @property
    def described(self) -> str:
        """The server as sentences name it."""
        return f"the API server {self.server}{f' ({self.origin})' if self.origin else ''}"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings for https servers, None for http.

        Raises
        ------
        InputError
            When a certificate or key is no valid PEM.
        """
        if not self.server.startswith("https:"):
            return None
        try:
            authority = self.certificate_authority.decode("ascii") if self.certificate_authority else None
            context = FollowingContext(ssl.PROTOCOL_TLS_CLIENT)
            if authority is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise InputError(f"the certificate authority is no valid PEM ({error})", file=self.origin) from error
        # Python's default context (not this one) checks certificates more strictly from 3.13 on than Go does.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.authority_file is not None:
            context.follow(self.authority_file)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate and self.client_key:
            self._load_client_certificate(context)
        return context

    def _load_client_certificate(self, context: ssl.SSLContext) -> None:
        # The standard library reads a certificate chain from files only; these exist as briefly as possible.
        with tempfile.TemporaryDirectory(prefix="cotide-") as folder:
            certificate, key = Path(folder, "client.crt"), Path(folder, "client.key")
            certificate.write_bytes(self.client_certificate or b"")
            key.touch(mode=0o600)
            key.write_bytes(self.client_key or b"")
            try:
                # A password, so that OpenSSL refuses an encrypted key instead of prompting at the terminal.
                context.load_cert_chain(certificate, key, password="")
            except (ssl.SSLError, ValueError) as error:
                raise InputError(
                    f"client certificate and key are no matching PEM pair ({error})", file=self.origin
                ) from error


def load_credentials(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Find and read the credentials for a cluster.

    Parameters
    ----------
    kubeconfig : str, optional
        Path of a kubeconfig; when None: ``$KUBECONFIG``, the pod's service account, ``~/.kube/config``.
    context : str, optional
        Name of a context in it; when None its current context.

    Raises
    ------
    InputError
        When the kubeconfig is missing or broken; names the file and the field. When there is neither a kubeconfig nor
        a service account.
    ClusterError
        When a credential plugin fails.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG")
    if named:
        # $KUBECONFIG may list several files; kubectl merges them. We take the first one that exists.
        paths = [kubeconfig_files.expanded(part) for part in named.split(os.pathsep) if part]
        path = next((file for file in paths if file.exists()), paths[0] if paths else Path(named))
        return _from_kubeconfig(path, context)
    if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return _from_service_account(SERVICE_ACCOUNT)
    default = kubeconfig_files.expanded("~/.kube/config")
    if default.exists():
        return _from_kubeconfig(default, context)
    raise InputError(NO_CLUSTER.format(looked_at=default))


def _from_service_account(folder: Path) -> Credentials:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    authority, namespace = folder / "ca.crt", folder / "namespace"
    return Credentials(
        server=f"https://{host}:{port}",
        origin="in-cluster service account",
        token=FileToken(folder / "token"),
        certificate_authority=authority.read_bytes() if authority.exists() else None,
        authority_file=authority if authority.exists() else None,
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "default",
    )


def _from_kubeconfig(path: Path, context: str | None) -> Credentials:
    entry = kubeconfig_files.read(path, context)
    return Credentials(
        server=entry.server,
        origin=f"kubeconfig {path}, context {entry.context}",
        token=_token_source(entry),
        certificate_authority=entry.certificate_authority,
        client_certificate=entry.client_certificate,
        client_key=entry.client_key,
        insecure=entry.insecure,
        server_name=entry.server_name,
        proxy=entry.proxy,
        namespace=entry.namespace,
    )


def _token_source(entry: kubeconfig_files.KubeconfigEntry) -> TokenSource:
    if entry.token_file is not None:
        return FileToken(entry.token_file)
    if entry.token is not None:
        return StaticToken(f"Bearer {entry.token}")
    if entry.basic is not None:
        return StaticToken("Basic " + base64.b64encode(":".join(entry.basic).encode()).decode("ascii"))
    if entry.plugin is not None:
        return PluginToken(entry.plugin, entry.plugin_token)
    return StaticToken(None)
