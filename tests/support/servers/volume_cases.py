"""Random claims, volumes and storage classes, and pods that use them, drawn from a seed; JSON as a user would send it.

All names carry the number of the cluster, so that nothing of one cluster can serve the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from constraint_cases import HOST, RACK, REFERENCE, ZONE, Json
from manifests import pod_manifest

NAMESPACE: Final = "plain"
DRIVERS: Final = ("fast.example.com", "slow.example.com")
BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED: Final = "volume.kubernetes.io/selected-node"
SENTINEL: Final = "sentinel.example.com"
"""A driver of which no node takes a volume."""
POOL: Final = "pool.example.com"
"""A driver that tells how much room it has, and where."""
HANGS: Final = "hangs.example.com"
"""A driver of which each node takes one volume."""
KINDS: Final = ("bound", "open", "sole", "limits", "room")


@dataclass
class Storage:
    """What there is in one cluster; ``status`` of an object is told to the server by itself."""

    number: int
    hosts: list[str]
    classes: dict[str, Json] = field(default_factory=dict)
    volumes: dict[str, Json] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    capacities: dict[str, Json] = field(default_factory=dict)
    attachments: dict[str, Json] = field(default_factory=dict)

    def name(self, text: str) -> str:
        return f"{text}-{self.number}"

    def storage_class(self, draw: Random, name: str, mode: str, provisioner: str) -> str:
        body: Json = {"provisioner": provisioner, "volumeBindingMode": mode, "reclaimPolicy": "Retain"}
        if draw.random() < 0.4 and provisioner in DRIVERS:
            key, values = (ZONE, "abc") if draw.random() < 0.7 else (RACK, "xy")
            some = draw.sample(values, draw.randint(1, 2))
            body["allowedTopologies"] = [{"matchLabelExpressions": [{"key": key, "values": some}]}]
        self.classes[self.name(name)] = body
        return self.name(name)

    def volume(self, draw: Random, name: str, storage_class: str = "", *, claim: str = "", **spec: Any) -> str:
        name = self.name(name)
        modes = ["ReadWriteOncePod"] if draw.random() < 0.1 and not claim else ["ReadWriteOnce"]
        source = {"driver": draw.choice(DRIVERS), "volumeHandle": name}
        # Of volumes of equal size kube-scheduler takes any: it goes through a map.
        size = f"{draw.randint(1, 4) * 1024 + len(self.volumes)}Mi"
        body: Json = {"capacity": {"storage": size}, "accessModes": modes, "csi": source, **spec}
        body["storageClassName"] = storage_class
        if claim:
            body["claimRef"] = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": NAMESPACE,
                "name": claim,
            }
        affinity = self._reach(draw)
        if affinity and "nodeAffinity" not in spec:
            body["nodeAffinity"] = {"required": {"nodeSelectorTerms": affinity}}
        labels = {ZONE: draw.choice(("a", "b", "a__c"))} if draw.random() < 0.2 else {}
        if draw.random() < 0.3:
            labels["tier"] = draw.choice(("gold", "tin"))
        phase = "Bound" if claim else draw.choice(("Available",) * 5 + ("Released",))
        self.volumes[name] = {"metadata": {"labels": labels}, "spec": body, "status": {"phase": phase}}
        return name

    def claim(self, draw: Random, name: str, *, volume: str = "", done: bool = True, **spec: Any) -> str:
        name = self.name(name)
        body: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        metadata: Json = {}
        if volume:
            body["volumeName"] = volume
            metadata["annotations"] = dict(BOUND) if done else {}
        body.setdefault("storageClassName", "")
        self.claims[name] = {"metadata": metadata, "spec": body, "status": {"phase": "Bound" if volume else "Pending"}}
        return name

    def bound_claim(self, draw: Random, name: str, **spec: Any) -> str:
        """A claim with its volume."""
        volume = self.volume(draw, f"v-{name}", claim=self.name(name))
        self.volumes[volume]["spec"]["accessModes"] = spec.get("accessModes", ["ReadWriteOnce"])
        return self.claim(draw, name, volume=volume, **spec)

    def capacity(self, draw: Random, name: str, storage_class: str) -> None:
        """Room for volumes of a class on some nodes."""
        drawn = draw.random()
        body: Json = {"storageClassName": storage_class}
        if drawn < 0.3:
            body["nodeTopology"] = {"matchLabels": {ZONE: draw.choice("abc")}}
        elif drawn < 0.7:
            body["nodeTopology"] = {"matchLabels": {HOST: draw.choice(self.hosts)}}
        elif drawn < 0.9:
            operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist"))
            values = {"values": draw.sample("xy", draw.randint(1, 2))} if operator in ("In", "NotIn") else {}
            body["nodeTopology"] = {"matchExpressions": [{"key": RACK, "operator": operator, **values}]}
        elif drawn < 0.93:
            body["nodeTopology"] = {}
        if draw.random() < 0.9:
            body["capacity"] = f"{draw.randint(0, 4)}Gi"
        if draw.random() < 0.3:
            body["maximumVolumeSize"] = f"{draw.randint(1, 3)}Gi"
        self.capacities[self.name(name)] = body

    def attachment(self, name: str, driver: str, volume: str, node: str) -> None:
        """A volume that hangs on a node."""
        source = {"persistentVolumeName": volume}
        self.attachments[self.name(name)] = {"spec": {"attacher": driver, "nodeName": node, "source": source}}

    def _reach(self, draw: Random) -> list[Json]:
        drawn = draw.random()
        if drawn < 0.3:
            return []
        terms = []
        for _ in range(draw.randint(1, 2)):
            key, values = draw.choice(((ZONE, list("abc")), (RACK, list("xy")), (HOST, self.hosts)))
            operator = "In" if draw.random() < 0.8 else "NotIn"
            some = draw.sample(values, draw.randint(1, min(3, len(values))))
            terms.append({"matchExpressions": [{"key": key, "operator": operator, "values": some}]})
        return terms


def storage(draw: Random, number: int, hosts: list[str]) -> Storage:
    """Classes, free volumes, claims that several pods share, and what nodes take."""
    made = Storage(number, hosts)
    made.storage_class(draw, "once", "Immediate", DRIVERS[0])
    made.storage_class(draw, "waits", "WaitForFirstConsumer", DRIVERS[0])
    made.storage_class(draw, "waits-too", "WaitForFirstConsumer", DRIVERS[1])
    made.storage_class(draw, "local", "WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    pooled = made.storage_class(draw, "pooled", "WaitForFirstConsumer", POOL)
    for index in range(draw.randint(0, 5)):
        made.capacity(draw, f"room-{index}", pooled)
    for index in range(draw.randint(2, 8)):
        storage_class = made.name(draw.choice(("local", "local", "waits")))
        more: Json = {"volumeMode": "Block"} if draw.random() < 0.1 else {}
        made.volume(draw, f"free-{index}", storage_class, **more)
    for index in range(6):
        made.bound_claim(draw, f"sole-{index}", accessModes=["ReadWriteOncePod"])
        made.bound_claim(draw, f"shared-{index}")
    for host in hosts:
        drivers = [
            {"name": SENTINEL, "nodeID": host, "allocatable": {"count": 0}},
            {"name": HANGS, "nodeID": host, "allocatable": {"count": 1}},
        ]
        for driver in DRIVERS:
            drawn = draw.random()
            if drawn < 0.8:
                limit: Json = {"allocatable": {"count": draw.randint(0, 4)}} if drawn < 0.65 else {}
                drivers.append({"name": driver, "nodeID": host, **limit})
        if draw.random() < 0.95:
            made.nodes[host] = {"spec": {"drivers": drivers}}
        else:
            made.nodes[host] = {"spec": {"drivers": drivers[:2]}}
        for index in range(draw.randint(0, 2)):
            volume = made.name(f"v-{draw.choice(('sole', 'shared'))}-{draw.randint(0, 5)}")
            driver = made.volumes[volume]["spec"]["csi"]["driver"] if draw.random() < 0.9 else draw.choice(DRIVERS)
            made.attachment(f"{host}-{index}", driver, volume if draw.random() < 0.9 else made.name("nowhere"), host)
    return made


def users(draw: Random, made: Storage) -> list[Json]:
    """Pods on nodes that use some of the claims."""
    pods = []
    for index in range(draw.randint(0, 8)):
        claims = [made.name(f"{draw.choice(('shared', 'shared', 'sole'))}-{draw.randint(0, 5)}")]
        if draw.random() < 0.3:
            claims.append(made.name(f"shared-{draw.randint(0, 5)}"))
        pods.append(_mounting(f"user-{index}", claims, nodeName=draw.choice(made.hosts)))
    return pods


def volume_probes(draw: Random, made: Storage, kind: str, count: int) -> list[Json]:
    """So many pods to be placed, each with claims of one kind."""
    return [_probe(draw, made, kind, f"{kind}-{number}") for number in range(count)]


def _probe(draw: Random, made: Storage, kind: str, name: str) -> Json:
    claims = [_CLAIMS[kind](draw, made, f"{name}-c{index}") for index in range(draw.randint(1, 3))]
    spec: Json = {"schedulerName": REFERENCE}
    if draw.random() < 0.2:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return _mounting(name, claims, **spec)


def _mounting(name: str, claims: list[str], **spec: Any) -> Json:
    mounts = [{"claimName": fromkey} for fromkey in dict.fromkeys(claims)]
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": mount} for number, mount in enumerate(mounts)]
    return pod_manifest(name, namespace=NAMESPACE, spec={"volumes": volumes, **spec})


def _of_bound(draw: Random, made: Storage, name: str) -> str:
    drawn = draw.random()
    if drawn < 0.04:
        return made.name("missing")
    if drawn < 0.08:
        return made.claim(draw, name, storageClassName=made.name("once"))
    if drawn < 0.1:
        return made.claim(draw, name)
    if drawn < 0.13:
        return made.claim(draw, name, volume=made.name("nowhere"))
    if drawn < 0.16:
        volume = made.volume(draw, f"v-{name}", claim=made.name(name))
        return made.claim(draw, name, volume=volume, done=False)
    if drawn < 0.18:
        lost = made.claim(draw, name, volume=made.name("nowhere"))
        made.claims[lost]["status"] = {"phase": "Lost"}
        return lost
    return made.bound_claim(draw, name)


def _of_open(draw: Random, made: Storage, name: str) -> str:
    drawn = draw.random()
    if drawn < 0.1:
        return made.bound_claim(draw, name)
    storage_class = draw.choice(("waits", "waits-too", "local", "local"))
    spec: Json = {"storageClassName": made.name(storage_class)}
    spec["resources"] = {"requests": {"storage": f"{draw.randint(1, 3)}Gi"}}
    if draw.random() < 0.2:
        spec["selector"] = {"matchLabels": {"tier": draw.choice(("gold", "tin"))}}
    if draw.random() < 0.1:
        spec["volumeMode"] = "Block"
    claim = made.claim(draw, name, **spec)
    if drawn < 0.25 and storage_class != "local":
        made.claims[claim]["metadata"]["annotations"] = {SELECTED: draw.choice(made.hosts)}
    elif drawn < 0.35:
        made.volume(draw, f"meant-{name}", made.name(storage_class), claim=claim)
        made.volumes[made.name(f"meant-{name}")]["status"] = {"phase": "Available"}
    return claim


def _of_sole(draw: Random, made: Storage, name: str) -> str:
    del name
    return made.name(f"{draw.choice(('shared', 'sole'))}-{draw.randint(0, 5)}")


def _of_limits(draw: Random, made: Storage, name: str) -> str:
    drawn = draw.random()
    if drawn < 0.4:
        return made.name(f"shared-{draw.randint(0, 5)}")
    if drawn < 0.6:
        return made.claim(draw, name, storageClassName=made.name(draw.choice(("waits", "waits-too"))))
    return made.bound_claim(draw, name)


def _of_room(draw: Random, made: Storage, name: str) -> str:
    drawn = draw.random()
    if drawn < 0.1:
        return made.bound_claim(draw, name)
    storage_class = "pooled" if drawn < 0.9 else "waits"
    asked = {"requests": {"storage": f"{draw.randint(1, 4)}Gi"}}
    claim = made.claim(draw, name, storageClassName=made.name(storage_class), resources=asked)
    if drawn < 0.2:
        made.claims[claim]["metadata"]["annotations"] = {SELECTED: draw.choice(made.hosts)}
    return claim


_CLAIMS: Final = {"bound": _of_bound, "open": _of_open, "sole": _of_sole, "limits": _of_limits, "room": _of_room}
