"""A real Kubernetes control plane for tests: etcd and kube-apiserver, kube-controller-manager on demand.

::

    with control_plane(find_or_build(tell), folder) as plane:
        plane.admin                      # Credentials of system:masters
        plane.start_controller_manager()
        plane.kubeconfig("operator", token=plane.token("cotide-system", "cotide-operator"))

RBAC is on, so are the admission plugins of a default cluster and OwnerReferencesPermissionEnforcement. TLS with
certificates of its own, loopback only, free ports, data in a folder that the caller throws away. Invariant: when the
block is left, every process that it started has ended (see `processes`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from binaries import Binaries
from identities import Authority
from processes import Pen, Process

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials, load_credentials

START_SECONDS: Final = 180.0
"""Chosen: a start takes 5 s on an idle machine, and tens of them on one that is busy."""
LOOPBACK: Final = "127.0.0.1"
AUDIT: Final = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:cotide-system"]}
  - {level: None}
"""
"""What the operator asks for is written down, and nothing else."""
TRIES: Final = 3
"""A free port may be taken between looking and listening; chosen."""


class ControlPlane:
    """One control plane; see `control_plane`."""

    def __init__(
        self,
        binaries: Binaries,
        folder: Path,
        pen: Pen,
        *,
        storage_media: str = "",
        port: int = 0,
        addresses: Sequence[str] = (),
        fsync: bool = False,
    ) -> None:
        self._binaries, self.folder, self._pen, self._port = binaries, folder, pen, port
        self._fsync = fsync
        self._storage = {"storage-media-type": storage_media} if storage_media else {}
        self.authority = Authority(folder)
        self._server_files = self.authority.server("kube-apiserver", addresses)
        self._tokens_key = self.authority.signing_key()
        self._admin_files = self.authority.client("admin", "system:masters")
        self.etcd: Process
        self.api_server: Process
        self.url = ""
        self._etcd_url = ""
        self.started_in_seconds = 0.0

    @property
    def pen(self) -> Pen:
        """Where tests start processes of their own."""
        return self._pen

    @property
    def kubectl(self) -> str:
        """The kubectl that was built with the server."""
        return str(self._binaries.kubectl)

    @property
    def etcd_url(self) -> str:
        """Where etcd serves clients, its JSON gateway included."""
        return self._etcd_url

    @property
    def admin(self) -> Credentials:
        """Who may do everything."""
        return load_credentials(str(self.folder / "admin.kubeconfig"))

    @property
    def anonymous(self) -> Credentials:
        """Who says nothing of himself; a token may be added to a request."""
        return replace(self.admin, client_certificate=None, client_key=None)

    @property
    def audit_log(self) -> Path:
        """JSON lines: each request that a service account of cotide-system made, and what became of it."""
        return self.folder / "audit.jsonl"

    def start(self) -> None:
        """Start etcd and the API server and wait until both are ready."""
        begun = time.monotonic()
        for attempt in range(TRIES):
            self.start_etcd()
            self.start_api_server()
            if asyncio.run(self._ready()):
                break
            self.api_server.end()
            self.etcd.end()
            if attempt == TRIES - 1:
                said = (self.etcd.text() + self.api_server.text())[-2000:]
                raise RuntimeError(f"the control plane did not start:\n{said}")
        self.started_in_seconds = time.monotonic() - begun

    def start_etcd(self) -> None:
        """Start etcd, on new ports the first time."""
        peers = f"http://{LOOPBACK}:{free_port()}"
        self._etcd_url = self._etcd_url or f"http://{LOOPBACK}:{free_port()}"
        flags = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "log-level": "warn",
        }
        # Nothing here survives the machine, so that nothing is worth waiting for a disk, unless the wait is measured.
        disk = [] if self._fsync else ["--unsafe-no-fsync"]
        self.etcd = self._pen.start("etcd", [str(self._binaries.etcd), *disk, *_flags(flags)])

    def start_api_server(self) -> None:
        """Start kube-apiserver, at the same address as before if there was one."""
        port = int(self.url.rpartition(":")[2]) if self.url else self._port or free_port()
        self.url = f"https://{LOOPBACK}:{port}"
        self.kubeconfig("admin", files=self._admin_files)
        self.api_server = self._pen.start(
            "kube-apiserver", [str(self._binaries.kube_apiserver), *_flags(self.api_server_flags())]
        )

    def api_server_flags(self) -> dict[str, str]:
        """Return the API server's flags for its address; a cluster with real nodes needs more."""
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(AUDIT, encoding="utf-8")
        certificate, key = self._server_files
        return {
            **self._storage,
            "etcd-servers": self._etcd_url,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "secure-port": self.url.rpartition(":")[2],
            "tls-cert-file": str(certificate),
            "tls-private-key-file": str(key),
            "client-ca-file": str(self.authority.path),
            "service-account-key-file": str(self._tokens_key),
            "service-account-signing-key-file": str(self._tokens_key),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "allow-privileged": "true",
            "audit-policy-file": str(policy),
            "audit-log-path": str(self.audit_log),
            "enable-admission-plugins": "OwnerReferencesPermissionEnforcement",
            # Loopback is no address of an Endpoints object, and taking it away again would delay the end by a minute.
            "endpoint-reconciler-type": "none",
        }

    def start_controller_manager(self, more: dict[str, str] | None = None) -> Process:
        """Start kube-controller-manager: Deployments, batch/v1 Jobs, service accounts, disruption budgets, garbage."""
        flags = {
            **(more or {}),
            "kubeconfig": str(self.folder / "admin.kubeconfig"),
            "service-account-private-key-file": str(self._tokens_key),
            "root-ca-file": str(self.authority.path),
            "bind-address": LOOPBACK,
            "secure-port": "0",
            "leader-elect": "false",
            "use-service-account-credentials": "false",
            "kube-api-qps": "200",
            "kube-api-burst": "400",
        }
        return self._pen.start("kube-controller-manager", [str(self._binaries.kube_controller_manager), *_flags(flags)])

    def start_scheduler(self, config: Path | None = None, **more: str) -> Process:
        """Start kube-scheduler, with a KubeSchedulerConfiguration if one is given, which then says all but for more
        flags, whose names have ``_`` for ``-``."""
        flags = {"kubeconfig": str(self.folder / "admin.kubeconfig"), "leader-elect": "false"}
        if config is not None:
            flags = {"config": str(config)}
        flags |= {"bind-address": LOOPBACK, "secure-port": "0"}
        flags |= {name.replace("_", "-"): value for name, value in more.items()}
        return self._pen.start("kube-scheduler", [str(self._binaries.kube_scheduler), *_flags(flags)])

    def wait_for_accounts(self) -> None:
        """Wait for the controller manager's first work: without its service account, ``default`` takes no pods."""
        asyncio.run(self._accounts())

    def wait_until_ready(self) -> None:
        """Wait for /readyz after a restart."""
        if not asyncio.run(self._ready()):
            raise RuntimeError(f"the API server is not ready:\n{self.api_server.text()[-2000:]}")

    async def token(self, namespace: str, account: str) -> str:
        """Return a token of a service account, as a kubelet would mount it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        async with KubeClient(self.admin) as client:
            return str((await client.create(path, body))["status"]["token"])

    def kubeconfig(self, user: str, *, files: tuple[Path, Path] | None = None, token: str = "", url: str = "") -> Path:
        """Write a kubeconfig with a client certificate or a token, on request another address; return its path."""
        identity: dict[str, Any] = {"token": token} if token else {}
        if files is not None:
            identity = {"client-certificate": str(files[0]), "client-key": str(files[1])}
        cluster = {"server": url or self.url, "certificate-authority": str(self.authority.path)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": identity}],
        }
        path = self.folder / f"{user}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    async def _accounts(self) -> None:
        path = "/api/v1/namespaces/default/serviceaccounts"
        async with KubeClient(self.admin) as client, asyncio.timeout(START_SECONDS):
            while not await client.list(path):
                await asyncio.sleep(0.05)

    async def _ready(self) -> bool:
        """Whether the server became ready; False as soon as one of the two has ended."""
        deadline = time.monotonic() + START_SECONDS
        async with KubeClient(self.admin, timeout_seconds=5.0) as client:
            while time.monotonic() < deadline:
                if self.etcd.exit_code is not None or self.api_server.exit_code is not None:
                    return False
                try:
                    await client.request("GET", "/readyz")
                    # Bootstrap writes these last of what tests need.
                    await client.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
                    await client.get("/api/v1/namespaces/default")
                except ClusterError:
                    await asyncio.sleep(0.1)
                else:
                    return True
        return False


@contextmanager
def control_plane(binaries: Binaries, folder: Path, *, fsync: bool = False) -> Iterator[ControlPlane]:
    """Run a control plane in a folder, its etcd with or without waiting for the disk; see the module's docstring."""
    with Pen(folder) as pen:
        plane = ControlPlane(binaries, folder, pen, fsync=fsync)
        plane.start()
        yield plane


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now, and that no other worker of the tests is given.

    Below those that Linux gives to connections as their own end (from 32,768): one of these may be taken again before
    whoever asked for it listens there.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    while True:
        port = 20_000 + workers * secrets.randbelow(12_000 // workers) + worker
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def _flags(flags: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]
