"""Sees every version of the cluster, without passing through anything that faults touch, and says what is wrong.

Fed by the site with each change of pods, nodes and Jobs in the order of versions: by the emulator's own store, or by
etcd itself. The environment (fake kubelets) listens to it, too. What must hold at every version::

    no node beyond what it offers      the sum of its pods' requests, of those that have not ended; and their number
    no pod bound twice                 a node, once written, stays
    no online pod evicted              only what the run itself takes away gets a deletion time
    no index of a Job twice            at most one pod of an index alive, at most one that ever succeeded
    no end let go uncounted            a pod that succeeded loses our finalizer when its Job's status counts it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from cotide_core.units import resource_amount
from cotide_operator.controllers.job_reconciler import read_indexes

Object = dict[str, Any]
ENDED: Final = frozenset({"Succeeded", "Failed"})
JOB_LABEL: Final = "cotide.dev/job"
INDEX_LABEL: Final = "cotide.dev/index"
WORKLOAD_LABEL: Final = "cotide.dev/workload"
CLASS_LABEL: Final = "cotide.dev/class"
FINALIZER: Final = "cotide.dev/job-tracking"


@dataclass(frozen=True)
class PhasedPod:
    """What a pod of a Job with phases asks for, has, and was told; millicores."""

    needs: tuple[tuple[str, int], ...]
    """Of its phases, by name, in their order."""
    mute: bool
    """Whether its work leaves it to the operator's clock where it is."""
    asks: int
    held: int | None
    """What its kubelet has set; None before it told."""
    pending: str
    said: str
    granted: str
    note: str
    generation: int = 0
    """Of its spec."""

    @property
    def words(self) -> str:
        said = f"in {self.said}, " if self.said else ""
        note = f" ({self.note[:40]})" if self.note else ""
        return f"{said}asks {self.asks}, has {self.held} {self.pending}, granted {self.granted or '-'}{note}"

    @property
    def counted(self) -> int:
        """What it holds of its node: what is set, or what it asks for before it runs."""
        return self.asks if self.held is None else self.held


@dataclass(frozen=True)
class CheckedPod:
    """One version of a pod, as far as the invariants need it."""

    key: str
    uid: str
    version: int
    node: str
    phase: str
    leaving: bool
    kept: bool
    """Whether it carries our finalizer."""
    cls: str
    """Its class: by label; online where it carries none."""
    job: str
    owner: str
    """The uid of its Job."""
    index: str
    created: str
    requests: tuple[tuple[str, int], ...]
    ours: bool
    seconds: float | None
    """How long it works once it runs; None for ever."""
    service: str
    phased: PhasedPod | None = None

    @property
    def holds(self) -> bool:
        return bool(self.node) and self.phase not in ENDED


def read_pod(obj: Object, version: int) -> CheckedPod:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    total: Counter[str] = Counter({"pods": 1})
    for container in spec["containers"]:
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            total[name] += resource_amount(name, amount)
    labels = metadata.get("labels") or {}
    notes = metadata.get("annotations") or {}
    seconds = notes.get("chaos/seconds")
    generation = int(metadata.get("generation") or 0)
    phased = read_phased(notes, total["cpu"], status, generation) if "chaos/phases" in notes else None
    if phased is not None:
        total["cpu"] = phased.counted
    return CheckedPod(
        key=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata["uid"],
        version=version,
        node=spec.get("nodeName") or "",
        phase=status.get("phase", "Pending"),
        leaving="deletionTimestamp" in metadata,
        kept=FINALIZER in metadata.get("finalizers", ()),
        cls=labels.get(CLASS_LABEL, "online"),
        job=labels.get(JOB_LABEL, ""),
        owner=next((one["uid"] for one in metadata.get("ownerReferences", ()) if one["kind"] == "Job"), ""),
        index=labels.get(INDEX_LABEL, ""),
        created=metadata["creationTimestamp"],
        requests=tuple(sorted(total.items())),
        ours=spec.get("schedulerName") == "cotide",
        seconds=float(seconds) if seconds is not None else None,
        service=labels.get(WORKLOAD_LABEL, ""),
        phased=phased,
    )


def read_phased(notes: dict[str, str], asks: int, status: Object, generation: int) -> PhasedPod:
    needs = tuple((name, int(need)) for name, need in (part.split("=") for part in notes["chaos/phases"].split(",")))
    first = next(iter(status.get("containerStatuses", ())), {})
    held = first.get("resources", {}).get("requests", {}).get("cpu")
    pending = (one["reason"] for one in status.get("conditions", ()) if one["type"] == "PodResizePending")
    return PhasedPod(
        needs=needs,
        mute="chaos/mute" in notes,
        asks=asks,
        held=None if held is None else resource_amount("cpu", held),
        pending=next(pending, ""),
        said=notes.get("cotide.dev/phase", ""),
        granted=notes.get("cotide.dev/granted-phase", ""),
        note=notes.get("cotide.dev/phase-note", ""),
        generation=generation,
    )


Listener = Callable[[str, "CheckedPod | Object | None", "CheckedPod | Object | None"], None]


@dataclass
class InvariantChecker:
    """The cluster as it is, and every breach of what must hold."""

    pods: dict[str, CheckedPod] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)
    jobs: dict[str, Object] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    """Names of ConfigMaps: what the run writes to know how far the checker is."""
    violations: list[str] = field(default_factory=list)
    moves_online: bool = False
    """Whether online pods may be evicted: by consolidation, and by nothing else."""
    kubelets_refuse: bool = False
    """Whether kubelets look for room themselves: then what they hold is weighed, by `phased_nodes`."""
    excuses: bool = False
    """Whether what breaks now is no breach: a backup was restored and operators live that don't know; see `backups`."""
    excused: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    """Uids of the pods that the run itself takes away."""
    bound: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Uid to node and version of its binding, of every pod that ever had one."""
    succeeded: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """(Job, index) to uids of pods that succeeded."""
    lost_successes: set[tuple[str, str]] = field(default_factory=set)
    """(uid of the Job, index) of what had succeeded when a backup was restored: an operator that does not know of that
    yet may still count it, and rightly, since it was done."""
    history: list[str] = field(default_factory=list)
    """One line a change, to be shown with a breach."""
    version: int = 0
    listeners: list[Listener] = field(default_factory=list)
    _over: set[str] = field(default_factory=set)
    """Nodes with more than they offer since then."""
    _on: dict[str, dict[str, CheckedPod]] = field(default_factory=lambda: defaultdict(dict))

    def see(self, plural: str, version: int, old: Object | None, new: Object | None) -> None:
        """Take in one change; old and new as in the store, None where there is nothing."""
        self.version = max(self.version, version)
        obj = new if new is not None else old
        assert obj is not None
        if plural == "pods":
            key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            before = self.pods.get(key)
            after = read_pod(new, version) if new is not None else None
            self._pod(key, before, after, version)
            self._emit("pods", before, after)
        elif plural == "nodes":
            name = obj["metadata"]["name"]
            known = self.nodes.get(name)
            if new is None:
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = new
            self.history.append(f"{version} node {name} {'gone' if new is None else _node_words(new)}")
            self._weigh(name, version)
            self._emit("nodes", known, new)
        elif plural == "jobs":
            key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            if new is None:
                self.jobs.pop(key, None)
            else:
                self.jobs[key] = new
        elif plural == "configmaps" and new is not None:
            self.marks.add(obj["metadata"]["name"])

    def orphaned(self, pod: CheckedPod) -> bool:
        """Whether the Job that it belongs to is no more, or is another one of the same name now."""
        job = self.jobs.get(f"{pod.key.partition('/')[0]}/{pod.job}")
        return bool(pod.owner) and (job is None or job["metadata"]["uid"] != pod.owner)

    def _emit(self, plural: str, old: CheckedPod | Object | None, new: CheckedPod | Object | None) -> None:
        for listener in self.listeners:
            listener(plural, old, new)

    def _breach(self, version: int, what: str) -> None:
        (self.excused if self.excuses else self.violations).append(f"version {version}: {what}")
        self.history.append(f"{version} {'excused' if self.excuses else 'BREACH'} {what}")

    def _pod(self, key: str, before: CheckedPod | None, after: CheckedPod | None, version: int) -> None:
        if before is not None and before.node:
            self._on[before.node].pop(key, None)
        if before is not None and before.kept and (after is None or not after.kept):
            self._let_go(before, version)
        if after is None:
            self.pods.pop(key, None)
            if before is not None:
                self.history.append(f"{version} pod {key} gone (was on {before.node or 'no node'}, {before.phase})")
            return
        self.pods[key] = after
        if after.holds:
            self._on[after.node][key] = after
        if before is None or before.uid != after.uid:
            self.history.append(f"{version} pod {key} made, {after.cls}, {dict(after.requests)}")
            self._one_alive(after, version)
            before = None
        if before is None or before.node != after.node:
            self._node_written(before, after, version)
        if after.leaving and (before is None or not before.leaving):
            self.history.append(f"{version} pod {key} leaving")
            if after.cls == "online" and after.uid not in self.taken and not self.moves_online:
                self._breach(version, f"online pod {key} was evicted or deleted, and not by the run")
        if after.phase != (before.phase if before is not None else "Pending"):
            self.history.append(f"{version} pod {key} {after.phase} on {after.node}")
            if after.phase == "Succeeded" and after.job and not self.orphaned(after):
                self._success(after, version)

    def _node_written(self, before: CheckedPod | None, after: CheckedPod, version: int) -> None:
        known = self.bound.get(after.uid)
        if known is not None:
            self._breach(version, f"pod {after.key} was bound to {known[0]} at {known[1]}, now to {after.node!r}")
        if not after.node:
            return
        self.bound[after.uid] = (after.node, version)
        self.history.append(f"{version} pod {after.key} bound to {after.node}")
        self._weigh(after.node, version)

    def _one_alive(self, made: CheckedPod, version: int) -> None:
        if not made.job:
            return
        alive = [
            pod.key
            for pod in self.pods.values()
            if (pod.job, pod.owner, pod.index) == (made.job, made.owner, made.index)
            and pod.key.partition("/")[0] == made.key.partition("/")[0]
            and pod.phase not in ENDED
            and not pod.leaving
        ]
        if len(alive) > 1:
            self._breach(version, f"index {made.index} of Job {made.job} has {len(alive)} pods alive: {alive}")
        done = self.succeeded.get((f"{made.key.partition('/')[0]}/{made.job}", made.index))
        if done and not self.orphaned(made):
            self._breach(version, f"index {made.index} of Job {made.job} had succeeded, and got {made.key}")

    def _let_go(self, pod: CheckedPod, version: int) -> None:
        self.history.append(f"{version} pod {pod.key} let go, {pod.phase}")
        job = self.jobs.get(f"{pod.key.partition('/')[0]}/{pod.job}")
        if pod.phase != "Succeeded" or job is None or "deletionTimestamp" in job["metadata"] or self.orphaned(pod):
            return
        counted = job.get("status", {}).get("completedIndexes", "")
        if int(pod.index) not in read_indexes(counted):
            self._breach(version, f"pod {pod.key} had succeeded and was let go; its Job counts {counted!r}")

    def _success(self, pod: CheckedPod, version: int) -> None:
        uids = self.succeeded[f"{pod.key.partition('/')[0]}/{pod.job}", pod.index]
        uids.append(pod.uid)
        if len(uids) > 1:
            self._breach(version, f"index {pod.index} of Job {pod.job} succeeded {len(uids)} times")

    def _weigh(self, name: str, version: int) -> None:
        """Compare what a node offers with what its pods ask for."""
        node = self.nodes.get(name)
        if node is None or self.kubelets_refuse:
            return
        total: Counter[str] = Counter()
        for pod in self._on[name].values():
            total.update(dict(pod.requests))
        offered = node["status"].get("allocatable", {})
        over = False
        for resource, amount in total.items():
            room = resource_amount(resource, offered.get(resource, 0))
            if amount > room:
                over = True
                if name in self._over and not self.excuses:
                    continue  # from when nobody knew; it must not get worse, but that is its pods' doing, too
                keys = sorted(self._on[name])
                self._breach(version, f"node {name} offers {room} {resource}, its pods ask for {amount}: {keys}")
        if not over:
            self._over.discard(name)
        elif self.excuses:
            self._over.add(name)


def _node_words(node: Object) -> str:
    ready = next((one["status"] for one in node["status"].get("conditions", ()) if one["type"] == "Ready"), "?")
    return f"ready={ready} closed={node.get('spec', {}).get('unschedulable', False)}"
