"""Machines of a small Cluster API on the embedded server, and an operator that takes them away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from manifests import machine_deployments, machines

from cotide_core.errors import ClusterError
from cotide_core.provisioning.node_orders import OrderBook
from cotide_kube.official import connect
from cotide_operator.provisioning.actuators import ScaleSubresource
from cotide_operator.provisioning.cluster_api import DELETE, MachineRemoval, Removal
from cotide_sim.apiserver.testing import ThreadedServer

GROUP: Final = "cluster.x-k8s.io"
HERE: Final = f"/apis/{GROUP}/v1beta1/namespaces/fleet"
TARGET: Final = f"{HERE}/machinedeployments/small"


class Shelf:
    """Where the book lies; `refuses` so many of the next writes."""

    def __init__(self) -> None:
        self.book, self.refuses = OrderBook(), 0

    async def load(self) -> OrderBook:
        return OrderBook.from_data(self.book.as_data())

    async def save(self, book: OrderBook) -> None:
        if self.refuses:
            self.refuses -= 1
            raise ClusterError("the book can't be written")
        self.book = book


class Fleet:
    """A MachineDeployment of so many Machines m0, m1 ..., and Cluster API's controller in a few lines."""

    def __init__(self, server: ThreadedServer, folder: Path, count: int) -> None:
        self.api = connect(str(server.write_kubeconfig(folder / "kubeconfig")), retries=False)
        self._scales = ScaleSubresource(self.api, {"a": TARGET}, 20.0)
        self.shelf = Shelf()
        self.change_leader()
        fleet = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}}
        self.make("/api/v1/namespaces", fleet)
        for made in (machine_deployments(), machines()):
            self.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
        self.make(f"{HERE}/machinedeployments", self._object("MachineDeployment", "small", {"replicas": count}))
        self.deleted: list[str] = []
        for number in range(count):
            self.add(f"m{number}")
        self.settle()

    @staticmethod
    def _object(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        return {"apiVersion": f"{GROUP}/v1beta1", "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}

    def add(self, name: str, deployment: str = "small", **metadata: Any) -> None:
        labels = {f"{GROUP}/deployment-name": deployment, **metadata.pop("labels", {})}
        self.make(f"{HERE}/machines", self._object("Machine", name, {}, labels=labels, **metadata))

    def make(self, path: str, body: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        request = self.api.param_serialize("POST", path, header_params=headers, body=body, auth_settings=[])
        answer = self.api.call_api(*request)
        assert answer.status == 201, answer.read()

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        return self._scales.call(method, path, body)

    def change_leader(self) -> None:
        """Let another operator go on, which knows what is in the cluster and nothing else."""
        self.removal = MachineRemoval(self._scales, self.shelf)

    def remove(self, *, tells: bool = True, **machines: str) -> Removal:
        """Go one step on, by node its Machine, and tell what was lowered."""

        async def step() -> Removal:
            found = await self.removal.remove(TARGET, machines)
            if found.lowered is not None and tells:
                await self.removal.announced(TARGET)
            return found

        return asyncio.run(step())

    @property
    def replicas(self) -> int:
        return int(self.call("GET", TARGET)["spec"]["replicas"])

    def machines(self) -> dict[str, Any]:
        listed = self.call("GET", f"{HERE}/machines")["items"]
        return {one["metadata"]["name"]: one["metadata"].get("annotations", {}).get(DELETE) for one in listed}

    def settle(self) -> None:
        """Delete as many Machines as there are too many, the marked ones first and else the newest name."""
        deployment, there = self.call("GET", TARGET), self.machines()
        too_many = len(there) - deployment["spec"]["replicas"]
        for name in sorted(there, key=lambda one: (there[one] is not None, one), reverse=True)[: max(too_many, 0)]:
            self.call("DELETE", f"{HERE}/machines/{name}")
            self.deleted.append(name)
        seen = {"replicas": len(self.machines()), "observedGeneration": deployment["metadata"]["generation"]}
        self.call("PATCH", f"{TARGET}/status", {"status": seen})
