"""Requests of kube-scheduler and their answers, as JSON of the API extender/v1, within bounds.

`verbs` uses it. Only the needed part of a pod is decoded: most of a request is the pod's spec, which the operator
already has. All input is foreign; a value beyond a bound gives one sentence with the field. Source:
k8s.io/kube-scheduler/extender/v1/types.go; its fields have no JSON names of their own.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from cotide_core.errors import InputError
from cotide_core.limits import MAX_CONTAINERS, MAX_NODES_ASKED, NAME_CHARACTERS
from cotide_kube.objects import PodObject

Body = TypeVar("Body")


class PodHead(msgspec.Struct, frozen=True, rename="camel"):
    """Identifies a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class PodSpecHead(msgspec.Struct, frozen=True, rename="camel"):
    """The scheduler of a pod."""

    scheduler_name: str = ""


class AskedPod(msgspec.Struct, frozen=True):
    """The decoded part of a pod."""

    metadata: PodHead
    spec: PodSpecHead = PodSpecHead()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderArgs: of filter and prioritize."""

    pod: msgspec.Raw
    node_names: list[str] | None = None


class MetaPod(msgspec.Struct, frozen=True):
    """A victim."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """The victims on one node."""

    pods: list[MetaPod] | None = msgspec.field(default=None, name="Pods")
    budgets: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionArgs."""

    pod: msgspec.Raw
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class BindingArgs(msgspec.Struct, frozen=True):
    """ExtenderBindingArgs."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class FilterResult(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """ExtenderFilterResult."""

    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """A node's score."""

    host: str
    score: int


class PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionResult."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderBindingResult; empty for a successful binding."""

    error: str = ""


encode: Final = msgspec.json.Encoder().encode
_HEAD: Final = msgspec.json.Decoder(AskedPod)
_POD: Final = msgspec.json.Decoder(PodObject)
_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (NodeArgs, PreemptionArgs, BindingArgs)
}


def read(kind: type[Body], body: bytes) -> Body:
    """Return the arguments of a verb.

    Raises
    ------
    InputError
        When they are unreadable, or beyond a bound.
    """
    found: Body = _decoded(_DECODERS[kind], body, kind.__name__)
    return found


def asked_pod(raw: msgspec.Raw) -> AskedPod:
    """Return the decoded part of a pod; raises InputError."""
    found: AskedPod = _decoded(_HEAD, raw, "Pod")
    for field, text in (("name", found.metadata.name), ("namespace", found.metadata.namespace)):
        _bounded(f"Pod.metadata.{field}", text)
    _bounded("Pod.metadata.uid", found.metadata.uid)
    return found


def whole_pod(raw: msgspec.Raw) -> PodObject:
    """Return a pod that the watch has not delivered yet; raises InputError."""
    found: PodObject = _decoded(_POD, raw, "Pod")
    containers = len(found.spec.containers) + len(found.spec.init_containers)
    if containers > MAX_CONTAINERS:
        raise InputError(f"has {containers} containers, at most {MAX_CONTAINERS} are read", field="Pod.spec")
    return found


def node_names(args: NodeArgs) -> list[str]:
    """Return the nodes of a request; raises InputError."""
    names = args.node_names
    if names is None:
        raise InputError("is missing: set nodeCacheCapable: true for this extender", field="NodeNames")
    return _few("NodeNames", names)


def victims(args: PreemptionArgs) -> dict[str, MetaVictims]:
    """Return the victims that kube-scheduler proposes, by node; raises InputError."""
    found = args.node_name_to_meta_victims
    if found is None:
        field = "NodeNameToMetaVictims"
        raise InputError("is missing: set nodeCacheCapable: true for this extender", field=field)
    _few("NodeNameToMetaVictims", list(found))
    return found


def _few(field: str, names: list[str]) -> list[str]:
    if len(names) > MAX_NODES_ASKED:
        raise InputError(f"names {len(names)} nodes; the limit is {MAX_NODES_ASKED}", field=field)
    if names and len(max(names, key=len)) > NAME_CHARACTERS:
        raise InputError(f"a node's name has at most {NAME_CHARACTERS} characters", field=field)
    return names


def _bounded(field: str, text: str) -> None:
    if not 0 < len(text) <= NAME_CHARACTERS:
        raise InputError(f"must have 1 to {NAME_CHARACTERS} characters", field=field)


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes | msgspec.Raw, what: str) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError) as error:  # not UTF-8, or a number of too many digits
        raise InputError(f"can't be read: {error}", field=what) from None
    except RecursionError:
        raise InputError("is nested too deep", field=what) from None
