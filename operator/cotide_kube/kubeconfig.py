"""Read one context of a kubeconfig, and name the wrong field when it can't be read.

Called by `credentials` only. Fields are checked here, because the official loader's messages name no file and miss most
faults. Entries that run programs (``exec``, ``auth-provider``) go to the official loader. Inline data wins over a file
of the same kind, as in kubectl; relative paths are relative to the kubeconfig.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from cotide_core.errors import ClusterError, InputError
from cotide_core.limits import DEPTH

FILE_BYTES: Final = 4 << 20
"""Of a kubeconfig. Chosen: one of a hundred clusters, with all certificates in it, has half a megabyte."""
_BRACKET: Final = re.compile(r"[\[{\]}]")


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """One context, resolved: files read, base64 decoded."""

    server: str
    context: str
    namespace: str
    certificate_authority: bytes | None
    insecure: bool
    server_name: str | None
    proxy: str | None
    client_certificate: bytes | None
    client_key: bytes | None
    token: str | None
    token_file: Path | None
    basic: tuple[str, str] | None
    plugin: Callable[[], str | None] | None
    """Runs the credential plugin again and returns an Authorization header."""
    plugin_token: str | None = None


class _Section:
    """A mapping of the kubeconfig that knows its path, so that each fault can name its field."""

    def __init__(self, file: Path, path: str, value: Any) -> None:
        if not isinstance(value, dict):
            raise InputError("must be a mapping", file=str(file), field=path)
        self.file, self.path, self.value = file, path, value

    def fault(self, message: str, key: str) -> InputError:
        return InputError(message, file=str(self.file), field=f"{self.path}.{key}" if self.path else key)

    def text(self, key: str) -> str | None:
        value = self.value.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.fault(f"must be text, not {type(value).__name__}", key)
        return value

    def required(self, key: str, why: str) -> str:
        value = self.text(key)
        if value is None:
            raise self.fault(f"is missing ({why})", key)
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key, False)
        if not isinstance(value, bool):
            raise self.fault("must be true or false", key)
        return value

    def data(self, key: str) -> bytes | None:
        """Return ``<key>-data`` decoded, otherwise the content of the file that ``<key>`` names."""
        inline = self.text(f"{key}-data")
        if inline is not None:
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error as error:
                raise self.fault(f"is no base64 ({error})", f"{key}-data") from error
        name = self.text(key)
        if name is None:
            return None
        try:
            return self.beside(name).read_bytes()
        except OSError as error:
            raise self.fault(f"the file {name} can't be read: {error.strerror}", key) from error

    def beside(self, name: str) -> Path:
        return self.file.parent / expanded(name)


def expanded(name: str) -> Path:
    """Return a path with the user's home for ``~``; without a home, as in most containers, ``~`` stays."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 - Path.expanduser raises where uid and HOME are unknown


def read(path: Path, context: str | None = None) -> KubeconfigEntry:
    """Read one context of a kubeconfig.

    Raises
    ------
    InputError
        With the file, and the field or line at fault.
    ClusterError
        When a credential plugin fails.
    """
    document = _Section(path, "", _parse(path))
    name = context or document.text("current-context")
    if name is None:
        raise document.fault("is missing: name a context, or choose one with --context", "current-context")
    chosen = _named(document, "contexts", "context", name, "current-context" if context is None else None)
    cluster_name = chosen.required("cluster", "which of the clusters this context means")
    cluster = _named(document, "clusters", "cluster", cluster_name, f"{chosen.path}.cluster")
    user_name = chosen.text("user")
    user = (
        _named(document, "users", "user", user_name, f"{chosen.path}.user")
        if user_name
        else _Section(path, "users", {})
    )
    return _resolve(name, chosen, cluster, user)


def _resolve(name: str, chosen: _Section, cluster: _Section, user: _Section) -> KubeconfigEntry:
    server = _server(cluster)
    certificate, key = user.data("client-certificate"), user.data("client-key")
    if (certificate is None) != (key is None):
        missing = "client-key-data" if key is None else "client-certificate-data"
        raise user.fault("is missing (a client certificate needs its key)", missing)
    token, token_file = user.text("token"), user.text("tokenFile")
    if token is not None and not token.isprintable():  # every HTTP library would refuse it as a header
        raise user.fault("holds a line break or another character that no token has", "token")
    plugin: Callable[[], str | None] | None = None
    plugin_token: str | None = None
    if token is None and token_file is None and ("exec" in user.value or "auth-provider" in user.value):
        run = _plugin(user.file, name)
        plugin = lambda: run()[0]  # noqa: E731  # one expression, bound once
        plugin_token, plugin_certificate, plugin_key = run()
        certificate, key = plugin_certificate or certificate, plugin_key or key
    username, password = user.text("username"), user.text("password")
    return KubeconfigEntry(
        server=server,
        context=name,
        namespace=chosen.text("namespace") or "default",
        certificate_authority=cluster.data("certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
        client_certificate=certificate,
        client_key=key,
        token=token,
        token_file=user.beside(token_file) if token_file else None,
        basic=(username, password) if username is not None and password is not None else None,
        plugin=plugin,
        plugin_token=plugin_token,
    )


def _server(cluster: _Section) -> str:
    server = cluster.required("server", "for example https://127.0.0.1:6443").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise cluster.fault(f"must start with http:// or https://, found {server!r}", "server")
    try:
        parts = urlsplit(server)
        _ = parts.port
        if not parts.hostname:
            raise ValueError("it names no host")
        parts.hostname.encode("idna")
    except ValueError as error:
        raise cluster.fault(f"is no address: {error}", "server") from error
    return server


def _levels(text: str) -> int:
    """Return how many brackets are open at once at most; each takes the parser four levels of Python's stack."""
    level = most = 0
    for bracket in _BRACKET.findall(text):
        level += 1 if bracket in "[{" else -1
        most = max(most, level)
    return most


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        found = file.read(FILE_BYTES + 1)
    if len(found) > FILE_BYTES:
        raise InputError(f"has more than {FILE_BYTES >> 20} MiB: is it a kubeconfig?", file=str(path))
    return found


def check_size(path: Path) -> None:
    """Raise `InputError` if a file is too large for a kubeconfig; an unreadable file passes, since the loader reports
    it.

    For the official loader, which reads every file to its end, and a device has none.
    """
    with suppress(OSError):
        _bounded(path)


def _parse(path: Path) -> Any:
    try:
        text = _bounded(path).decode("utf-8")
        if _levels(text) > DEPTH:
            raise InputError(f"has more than {DEPTH} lists and objects within one another", file=str(path))
        return yaml.safe_load(text) or {}
    except FileNotFoundError as error:
        raise InputError("the kubeconfig does not exist", file=str(path)) from error
    except OSError as error:
        raise InputError(f"the kubeconfig can't be read: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise InputError("the kubeconfig is no UTF-8 text", file=str(path)) from error
    except (RecursionError, ValueError, OverflowError) as error:  # nested too deep, or a number or date that is none
        raise InputError(f"is no YAML that can be read: {type(error).__name__}", file=str(path)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "not readable as YAML"
        raise InputError(
            f"is no valid YAML: {problem}", file=str(path), line=mark.line + 1 if mark else None
        ) from error


def _named(document: _Section, collection: str, kind: str, name: str, wanted_by: str | None) -> _Section:
    """Return an entry by its name; `wanted_by` is the field that names it, None if the user did."""
    entries = document.value.get(collection)
    if not isinstance(entries, list):
        raise document.fault("must be a list", collection)
    names: list[str] = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise document.fault("has no name", f"{collection}[{position}]")
        if entry["name"] == name:
            return _Section(document.file, f"{collection}[name={name}].{kind}", entry.get(kind))
        names.append(entry["name"])
    known = ", ".join(names) or "none"
    if wanted_by is None:
        raise document.fault(
            f"{name!r} was asked for, which is not among the {collection} (there are: {known})", collection
        )
    raise document.fault(f"names {name!r}, which is not among the {collection} (there are: {known})", wanted_by)


class _LastError(logging.Handler):
    """Keeps the official loader's last error: it logs why a plugin failed, and continues without a token."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.message = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.message = record.getMessage()


def _plugin(path: Path, context: str) -> Callable[[], tuple[str | None, bytes | None, bytes | None]]:
    def run() -> tuple[str | None, bytes | None, bytes | None]:
        # Imported only here: it takes over a second, and most kubeconfigs run no plugin.
        from kubernetes.client import Configuration
        from kubernetes.config import ConfigException, load_kube_config

        settings, complaint, root = Configuration(), _LastError(), logging.getLogger()
        root.addHandler(complaint)
        try:
            load_kube_config(str(path), context, settings, False)  # type: ignore[no-untyped-call]  # ships no types
        except (ConfigException, OSError, ValueError, KeyError) as error:
            raise ClusterError(f"{path}: the credential plugin of context {context} failed: {error}") from error
        finally:
            root.removeHandler(complaint)
        header = settings.api_key.get("BearerToken") or settings.api_key.get("authorization")
        certificate = Path(settings.cert_file).read_bytes() if settings.cert_file else None
        key = Path(settings.key_file).read_bytes() if settings.key_file else None
        if header is None and certificate is None:
            why = complaint.message or "it gave neither a token nor a certificate"
            raise ClusterError(f"{path}: the credential plugin of context {context} failed: {why}")
        return header, certificate, key

    return run
