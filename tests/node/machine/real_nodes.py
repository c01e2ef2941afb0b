"""Two real nodes for tests: kubelets with containerd and runc beside a control plane, in one machine of `machine`.

::

    with real_nodes(binaries, programs, folder, count=2) as cluster:
        cluster.plane.admin
        cluster.nodes[0].restart_kubelet()

Each node has a mount namespace of its own, an address 10.77.0.N on loopback, a bridge with the pods' addresses
10.88.N.0/24, and a folder of control groups. There is no proxy: the API server listens at the address of the
``kubernetes`` Service itself, and webhooks are reached by their endpoints. Pods run images that `images` makes, with
``imagePullPolicy: Never``. Invariant: everything ends with the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import images
from binaries import Binaries
from control_plane import ControlPlane
from machine import CGROUP_VARIABLE, GROUPS
from node_programs import NodePrograms
from processes import Pen, Process

SERVICE_ADDRESS: Final = "10.0.0.1"
"""The first address of the Services' range: that of ``kubernetes`` in each pod's environment."""
NO_DNS: Final = "10.0.0.10"
"""Nobody answers there; without an address each pod gets a warning."""
API_PORT: Final = 443
READY_SECONDS: Final = 120.0
"""Chosen: nodes are Ready 8 s after their start on an idle machine."""
SHELL: Final = "cotide.test/busybox:1"
PAUSE: Final = "cotide.test/pause:1"
MEMCACHED: Final = "cotide.test/memcached:1"
PAUSING: Final = ("/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done")
RESERVED: Final = {"cpu": "200m", "memory": "500Mi"}
"""Of each node for itself; chosen."""


class NodePlane(ControlPlane):
    """A control plane that kubelets join."""

    def __init__(self, binaries: Binaries, folder: Path, pen: Pen) -> None:
        super().__init__(binaries, folder, pen, port=API_PORT, addresses=(SERVICE_ADDRESS,))
        self._kubelet_files = self.authority.client("api-server", "system:masters")

    def api_server_flags(self) -> dict[str, str]:
        certificate, key = self._kubelet_files
        plugins = super().api_server_flags()["enable-admission-plugins"]
        return {
            **super().api_server_flags(),
            "bind-address": "0.0.0.0",  # noqa: S104 - all addresses of a machine that nobody else is in
            "advertise-address": SERVICE_ADDRESS,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": f"{plugins},NodeRestriction",
            "kubelet-client-certificate": str(certificate),
            "kubelet-client-key": str(key),
            "kubelet-preferred-address-types": "InternalIP",
            "enable-aggregator-routing": "true",
        }


class RealNode:
    """One node: a mount namespace with a container runtime and a kubelet."""

    def __init__(
        self, number: int, plane: NodePlane, binaries: Binaries, programs: NodePrograms, settings: dict[str, Any]
    ) -> None:
        self.name, self.address = f"node-{number}", f"10.77.0.{number}"
        self._number, self._plane, self._binaries, self._programs = number, plane, binaries, programs
        self._settings = settings
        self._folder = plane.folder / self.name
        self._folder.mkdir()
        self._run = Path("/run") / self.name
        self._run.mkdir()
        self._group = f"/{os.environ[CGROUP_VARIABLE]}/{self.name}"
        self._prepare()
        self._identify()
        self.runtime = self._start_runtime()
        self.kubelet: Process

    def stop_kubelet(self) -> None:
        """Kill the kubelet; its pods run on."""
        self.kubelet.end()

    def start_kubelet(self, settings: dict[str, Any] | None = None) -> None:
        """Start the kubelet, on request with other settings for this time."""
        self.kubelet = self._start_kubelet(settings)

    def restart_kubelet(self, settings: dict[str, Any] | None = None) -> None:
        self.stop_kubelet()
        self.start_kubelet(settings)

    def freeze_kubelet(self) -> None:
        """Stop the kubelet's process, as on a machine that hangs."""
        self.kubelet.send(signal.SIGSTOP)

    def thaw_kubelet(self) -> None:
        self.kubelet.send(signal.SIGCONT)

    def import_image(self, archive: Path) -> None:
        """Give the node's runtime an image."""
        self.ctr("images", "import", str(archive))

    def ctr(self, *arguments: str) -> str:
        """Run containerd's own client and return what it says."""
        command = [str(self._programs.ctr), "--address", str(self._socket), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def group(self, controller: str) -> Path:
        """Return the node's folder of control groups in the hierarchy of a controller."""
        unified = (GROUPS / "cgroup.controllers").exists()
        return (GROUPS if unified else GROUPS / controller) / self._group.lstrip("/")

    @property
    def _socket(self) -> Path:
        return self._run / "containerd.sock"

    def _prepare(self) -> None:
        subprocess.run(["ip", "address", "add", f"{self.address}/32", "dev", "lo"], check=True)
        self._make_groups()
        network = self._folder / "cni"
        network.mkdir()
        pods = {"subnet": f"10.88.{self._number}.0/24"}
        bridge = {
            "type": "bridge",
            "bridge": f"cni{self._number}",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self._run / "addresses"),
                "ranges": [[pods]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        listed = {"cniVersion": "0.4.0", "name": self.name, "plugins": [bridge]}
        (network / "10-bridge.conflist").write_text(json.dumps(listed), encoding="utf-8")
        (self._folder / "containerd.toml").write_text(self._containerd_toml(network), encoding="utf-8")
        (self._folder / "resolv.conf").write_text("nameserver 127.0.0.1\n", encoding="utf-8")

    def _identify(self) -> None:
        """Make what the kubelet shows to the API server, and what it is recognised by."""
        self._kubeconfig = self._plane.kubeconfig(
            self.name,
            files=self._plane.authority.client(f"system:node:{self.name}", "system:nodes"),
            url=self._plane.url,
        )
        self._server_files = self._plane.authority.server(f"{self.name}-server", (self.address,))

    def _make_groups(self) -> None:
        parent = os.environ[CGROUP_VARIABLE]
        roots = [GROUPS] if (GROUPS / "cgroup.controllers").exists() else list(GROUPS.iterdir())
        for folder in {(root / parent).resolve() for root in roots if (root / parent).is_dir()}:
            (folder / self.name).mkdir()
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (folder / file).exists():
                    (folder / self.name / file).write_text((folder / file).read_text(encoding="ascii"), "ascii")

    def _containerd_toml(self, network: Path) -> str:
        return f"""version = 2
root = "/var/lib/containerd/{self._folder.name}"
state = "{self._run}/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
disable_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{self._programs.network_plugins}"
conf_dir = "{network}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
{self._mirror()}"""

    def _mirror(self) -> str:
        """Return more lines for containerd, as of a registry."""
        return ""

    def _mounts(self) -> list[str]:
        """Return commands that make the mount namespace of runtime and kubelet."""
        # A kubelet takes away the logs of pods that are not its own.
        return [f"mount -t tmpfs -o mode=755 own {folder}" for folder in ("/var/lib/kubelet", "/var/log")]

    def _kubelet_configuration(self) -> dict[str, Any]:
        certificate, key = self._server_files
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzBindAddress": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._plane.authority.path)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._group,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "clusterDNS": [NO_DNS],
            "resolvConf": str(self._folder / "resolv.conf"),
            "systemReserved": RESERVED,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "evictionPressureTransitionPeriod": "5s",
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "10s",
            "nodeLeaseDurationSeconds": 10,
            **self._settings,
        }

    def _start_runtime(self) -> Process:
        within = f'mount --make-rshared / && {" && ".join(self._mounts())} && exec "$@"'
        command = [str(self._programs.containerd), "--config", str(self._folder / "containerd.toml")]
        started = self._plane.pen.start(
            f"{self.name}-containerd",
            ["unshare", "--mount", "sh", "-ec", within, "sh", *command],
            {"PATH": f"{self._programs.path}:{os.environ['PATH']}"},
        )
        _wait(self._socket.exists, started)
        return started

    def _start_kubelet(self, settings: dict[str, Any] | None = None) -> Process:
        config = self._folder / "kubelet.json"
        config.write_text(json.dumps({**self._kubelet_configuration(), **(settings or {})}), encoding="utf-8")
        within = ["nsenter", f"--mount=/proc/{self.runtime.pid}/ns/mnt"]
        flags = {
            "config": config,
            "kubeconfig": self._kubeconfig,
            "hostname-override": self.name,
            "node-ip": self.address,
            "containerd": self._socket,
            "cert-dir": self._folder / "pki",
            "v": 2,
        }
        command = [str(self._binaries.kubelet), *(f"--{name}={value}" for name, value in flags.items())]
        return self._plane.pen.start(f"{self.name}-kubelet", [*within, *command])


class NodeCluster:
    """A control plane with nodes; see `real_nodes`."""

    def __init__(self, plane: NodePlane, nodes: Sequence[RealNode]) -> None:
        self.plane, self.nodes = plane, nodes


@contextmanager
def node_plane(binaries: Binaries, folder: Path) -> Iterator[NodePlane]:
    """Run a control plane that kubelets may join."""
    subprocess.run(["ip", "address", "add", f"{SERVICE_ADDRESS}/32", "dev", "lo"], check=True)
    with Pen(folder) as pen:
        plane = NodePlane(binaries, folder, pen)
        plane.start()
        plane.start_controller_manager({"node-monitor-grace-period": "20s"})
        plane.wait_for_accounts()
        yield plane


@contextmanager
def real_nodes(
    binaries: Binaries, programs: NodePrograms, folder: Path, *, count: int = 2, settings: dict[str, Any] | None = None
) -> Iterator[NodeCluster]:
    """Run a control plane and nodes; ``settings`` go into each kubelet's configuration."""
    archives = _archives(programs, folder)
    with node_plane(binaries, folder) as plane:
        nodes = [RealNode(number, plane, binaries, programs, settings or {}) for number in range(1, count + 1)]
        for node in nodes:
            node.start_kubelet()
            for archive in archives:
                node.import_image(archive)
        yield NodeCluster(plane, nodes)


def _archives(programs: NodePrograms, folder: Path) -> list[Path]:
    shell = images.busybox(programs.busybox)
    cached = {
        SHELL: images.oci_archive(SHELL, shell, ["/bin/sh"]),
        PAUSE: images.oci_archive(PAUSE, shell, PAUSING),
        MEMCACHED: images.oci_archive(
            MEMCACHED,
            {**shell, **images.dynamic(programs.memcached, programs.libraries)},
            ["/usr/bin/memcached", "-u", "root"],
        ),
    }
    written = []
    for number, content in enumerate(cached.values()):
        written.append(folder / f"image-{number}.tar")
        written[-1].write_bytes(content)
    return written


def _wait(check: Callable[[], bool], process: Process) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not check():
        if process.exit_code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"it did not start:\n{process.text()[-2000:]}")
        time.sleep(0.02)
