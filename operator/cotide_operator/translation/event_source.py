"""Translates the changes of the cache into the events of one decision cycle.

Subscribes to the cache, collects the keys of changed objects, and translates each of them once when the loop asks.
Several changes of one object between two cycles become one event: the engine receives the latest state, not every
change. The exception is a pod that another of the same name replaced: its deletion comes first. Namespaces take turns:
an object that thousands of pods depend on delays another namespace's pod by one round.

Invariant: this source keeps exactly what the engine knows. It finds a change without effect by comparison and emits no
event. It quarantines an object that it can't translate, and goes on with all others. Pods may be translated ahead of
the first collection (see `pretranslation`); the events are the same, only sooner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from cotide_core.events import (
    Budget,
    BudgetDeleted,
    BudgetUpserted,
    Event,
    Namespace,
    NamespaceDeleted,
    NamespaceUpserted,
    Node,
    NodeDeleted,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodPhase,
    PodRefused,
    PodSelector,
    PodUpserted,
    SelectorDeleted,
    SelectorUpserted,
    Workload,
    WorkloadDeleted,
    WorkloadUpserted,
)
from cotide_core.phases.growth import Amounts
from cotide_core.state.selection.pair_budget import PairBudget
from cotide_kube.objects import NamespaceObject, PodObject
from cotide_kube.turns import Turn
from cotide_operator.cache.changed_objects import ChangedObjects, FanOuts
from cotide_operator.cache.object_cache import (
    KINDS,
    OPTIONAL_KINDS,
    SELECTOR_KINDS,
    Kind,
    ObjectCache,
    key_of,
)
from cotide_operator.clock import Clock
from cotide_operator.translation.eviction_annotations import faults, node_annotation_faults, translate_budget
from cotide_operator.translation.kubelet_refusals import refusal_of
from cotide_operator.translation.namespace_limits import limit_faults, max_priorities, translate_namespace
from cotide_operator.translation.pod_groups import PodGroupIndex, said_by
from cotide_operator.translation.pod_phases import Phases, asked_by, growth_of, phases_for, with_size
from cotide_operator.translation.pod_rules import pod_selector, selects_namespaces
from cotide_operator.translation.pod_times import PodObservations, PodTimes
from cotide_operator.translation.pods_and_nodes import (
    node_faults,
    ownership_of,
    succeeded_of,
    translate_node,
    translate_pod,
    translate_workload,
)
from cotide_operator.translation.pretranslation import Pretranslator, Seen
from cotide_operator.translation.volumes.reader import KINDS as VOLUME_KINDS
from cotide_operator.translation.volumes.reader import VolumeReader

_LOG = logging.getLogger(__name__)

CHANGES_AT_ONCE: Final = 1000
"""Most changes of one kind in one cycle; chosen: twice as many pods as a cycle decides on."""
COLLECT_SECONDS: Final = 0.01
"""Processor time of this thread for the translation of pods, and as much for all other kinds, before one cycle.
Chosen: each is a fifth of the limit for one piece of work. Some 500 pods, or one of the largest nodes."""
PAIRS_OF_VOLUMES: Final = 20_000
"""Limit of a `PairBudget` for the fan-outs and the claims of pods before one cycle. Chosen: some 10 ms, as above."""
PAIRS_A_CLAIM: Final = 12
"""Cost in pairs of each claim that a translated pod names. Measured: 6 us."""
FAN_OUT_AT_ONCE: Final = 1000
"""Pods that one object marks as changed in one turn of its namespace. Chosen: .5 ms."""
_ENDED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
ENGINE: Final = "engine"
"""Part of the quarantine for objects that make the engine fail."""
_EVENT_KINDS: Final[tuple[Kind, ...]] = (
    "nodes", "workloads", "namespaces", "poddisruptionbudgets", *SELECTOR_KINDS, "pods",
)  # fmt: skip
"""Kinds that become events, in the order of the events."""
_AROUND_PODS: Final[frozenset[Kind]] = frozenset({"priorityclasses", "namespaces", "workloads", "jobs"})
"""Kinds that the translation of a pod depends on, apart from the pod."""


class EventSource:
    """Collects the changed objects and returns them as events.

    Parameters
    ----------
    cache : ObjectCache
        The source subscribes to it at once.
    clock : Clock
    scheduler_names : tuple of str
        The schedulers of our pods.
    subscribe : bool
        Whether to listen to the cache; if not, the caller passes each change to `mark`, in the thread that collects.
    quarantine : callable, optional
        Receives each object that can't be translated; the cache does by default.

    Attributes
    ----------
    pods : the pods as the engine knows them, by key.
    volumes : the demands of their claims.
    """

    def __init__(
        self,
        cache: ObjectCache,
        clock: Clock,
        scheduler_names: tuple[str, ...],
        *,
        subscribe: bool = True,
        quarantine: Callable[[Kind, str, str, Exception], None] | None = None,
    ) -> None:
        self._quarantine = quarantine or cache.quarantine_object
        self._cache = cache
        self._clock = clock
        self._observations = PodObservations(clock)
        self._scheduler_names = scheduler_names
        self._changed = ChangedObjects(_EVENT_KINDS)
        self._fan_outs = FanOuts()
        self._pairs = PairBudget(PAIRS_OF_VOLUMES)
        self._dependencies: dict[tuple[Kind, str], Any] = {}
        self.volumes = VolumeReader(cache)
        self._groups = PodGroupIndex()
        self._ahead: Pretranslator | None = Pretranslator(self._pretranslate)
        """Until the events of all objects of the start are out."""
        self._pods: dict[str, Pod] = {}
        self.pods: Mapping[str, Pod] = MappingProxyType(self._pods)
        self._nodes: dict[str, Node] = {}
        self._workloads: dict[str, Workload] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._selectors: dict[tuple[Kind, str], PodSelector] = {}
        self._budgets: dict[str, Budget] = {}
        self._arrivals: list[Pod] = []
        self._rules_seen = False
        """Whether a pod selects others by label: from then on changed labels become events."""
        self._relabelled: dict[str, None] = {}
        """Pods that changed in their labels only, before that."""
        self._selects_namespaces = False
        """Whether a pod selects namespaces by label: from then on labels of namespaces become events."""
        self._asked_sizes: dict[str, tuple[str, Amounts]] = {}
        """Requested sizes that the watch does not show yet, with the pod's uid."""
        for kind in (*KINDS, *OPTIONAL_KINDS):  # the lists may have started before this subscription
            for key in list(cache.objects(kind)):
                self.mark(kind, key)
        if subscribe:
            cache.subscribe(self.mark)

    @property
    def _live(self) -> bool:
        return self._ahead is None

    @property
    def waiting(self) -> bool:
        """Whether there is anything to collect."""
        return bool(self._fan_outs or self._changed)

    @property
    def is_partial(self) -> bool:
        """Whether a new engine has received a part of the objects only: no decision may rest on that."""
        return self._changed.began and self._changed.first_left()

    def is_current(self, key: str) -> bool:
        """Whether `pods` has a pod as the cache has it, or as far as events can express it."""
        return not self._changed.has("pods", key)

    def members_of(self, group: str) -> Iterable[str]:
        """Return the pods that name a PodGroup of ``scheduling.k8s.io``, by their keys."""
        return self._groups.concerned("gangpodgroups", group)

    def translate_ahead(self, most: int) -> bool:
        """Translate up to ``most`` pods for the first collection; False when there is nothing to do, now or any
        more."""
        if self._ahead is None or not _AROUND_PODS.isdisjoint(self._cache.missing()):
            return False
        self._observations.refresh()
        return self._ahead.work(most)

    def collect(self) -> list[Event]:
        """Return the events of changes since the last call; those of pods come last.

        The first call takes all changes, since no decision may rest on a part of the objects; later calls take a part.
        """
        events = self.collect_part()
        while self.is_partial:
            events += self.collect_part()
        return events

    def collect_part(self) -> list[Event]:
        """Return the events of some changes: at most `CHANGES_AT_ONCE` of each kind, within `COLLECT_SECONDS`.

        Namespaces take turns within each kind, and each kind takes at least one change. `waiting` reports whether
        changes remain, and `is_partial` whether objects of the start remain.
        """
        events: list[Event] = []
        if not self._live:
            self._observations.refresh()
        if not self._changed.began:
            # A list is sorted by name; here the oldest pod comes first, as in a watch.
            self._changed.begin(self._created)
        turn = Turn(COLLECT_SECONDS, time.thread_time)
        self._collect("nodes", self._emit_node, events, turn)
        self._collect("workloads", self._emit_workload, events, turn)
        self._collect("namespaces", self._emit_namespace, events, turn)
        self._collect("poddisruptionbudgets", self._emit_budget, events, turn)
        for kind in SELECTOR_KINDS:
            self._collect(kind, partial(self._emit_selector, kind), events, turn)
        if any(self._changed.first_left(kind) for kind in _EVENT_KINDS if kind != "pods"):
            return events
        knew = self._selects_namespaces
        self._collect_pods(events)
        if not self._changed.first_left("pods"):
            self._ahead = None
        return events if knew or not self._selects_namespaces else self._labels_of_namespaces() + events

    def _collect_pods(self, events: list[Event]) -> None:
        self._mark_fan_outs(Turn(COLLECT_SECONDS, time.thread_time))
        self._pairs.begin()
        self._collect("pods", self._emit_pod, events, Turn(COLLECT_SECONDS, time.thread_time))
        if self._rules_seen and self._relabelled:  # labels that don't fit into a turn follow in the next cycles
            self._changed.update("pods", self._relabelled)
            self._relabelled.clear()
            self._collect("pods", self._emit_pod, events, Turn(COLLECT_SECONDS, time.thread_time))

    def _mark_fan_outs(self, turn: Turn) -> None:
        """Mark the pods of objects that changed, within the turn and the share of their namespace."""
        self._pairs.begin()
        while (part := self._fan_outs.take(self._dependents, FAN_OUT_AT_ONCE, self._pairs.is_spent)) is not None:
            namespace, pods = part
            self._changed.update("pods", pods)
            self._pairs.charge(namespace, len(pods))
            if turn.is_over:
                return

    def _labels_of_namespaces(self) -> list[Event]:
        """Return events for all namespaces: the engine needs their labels before the first selector."""
        events: list[Event] = []
        for name in list(self._cache.namespaces):
            self._guarded("namespaces", name, self._emit_namespace, events)
        return events

    def _collect(self, kind: Kind, emit: Callable[[str, list[Event]], None], events: list[Event], turn: Turn) -> None:
        """Take changes of one kind while their turn lasts."""
        for key in self._changed.take(kind, CHANGES_AT_ONCE, self._pairs.is_spent if kind == "pods" else None):
            self._guarded(kind, key, emit, events)
            if turn.is_over:
                return

    def expect_size(self, key: str, uid: str, size: Amounts | None) -> None:
        """Count a pod with a requested size until the watch shows it; with None, count it as the watch shows it.

        The resizer has taken that room; the engine must not bind another pod into it meanwhile.
        """
        if size is not None:
            self._asked_sizes[key] = (uid, size)
        elif self._asked_sizes.pop(key, None) is not None:
            self._changed.add("pods", key)

    def take_asked_sizes(self) -> list[Event]:
        """Return the events of the sizes that were requested since the last collection."""
        events: list[Event] = []
        for key in list(self._asked_sizes):
            translated, pod = self._pods.get(key), self._cache.pods.get(key)
            if translated is None or pod is None or translated.phase in _ENDED:
                del self._asked_sizes[key]
                continue
            wished = self._with_asked_size(key, translated, pod)
            if wished.requests != translated.requests:
                self._pods[key] = wished
                events.append(PodUpserted(wished))
        return events

    def _with_asked_size(self, key: str, translated: Pod, pod: PodObject) -> Pod:
        """Return a pod with its requested size as long as the watch does not show it."""
        wish = self._asked_sizes.get(key)
        if wish is None:
            return translated
        uid, size = wish
        shown = asked_by(pod) if pod.spec.containers else size
        if uid != translated.uid or all(has >= want for has, want in zip(shown, size, strict=True)):
            del self._asked_sizes[key]
            return translated
        return with_size(translated, pod, size, is_phased=bool(self._phases_for(pod, translated.job)))

    def take_arrivals(self) -> list[Pod]:
        """Return our unbound pods that had their first event since the last call."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def restart(self) -> None:
        """Emit all objects again, to a new engine."""
        self._pods.clear()
        self._nodes.clear()
        self._workloads.clear()
        self._arrivals.clear()
        self._namespaces.clear()
        self._selectors.clear()
        self._budgets.clear()
        self._fan_outs.clear()
        self._changed.restart()
        for kind in _EVENT_KINDS:
            self._changed.update(kind, self._cache.objects(kind))

    def _left_out(self, kind: Kind, key: str) -> bool:
        """Whether an object makes the engine fail, so that the engine must not receive it."""
        entry = self._cache.quarantine.get(kind, key)
        return entry is not None and entry.part == ENGINE

    def _guarded(self, kind: Kind, key: str, emit: Callable[[str, list[Event]], None], events: list[Event]) -> None:
        """Translate one object; if it raises, the engine keeps the state that it received last."""
        try:
            emit(key, events)
        except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
            self._quarantine(kind, key, "translation", error)

    def _created(self, key: str) -> str:
        pod = self._cache.pods.get(key)
        return pod.metadata.creation_timestamp or "" if pod is not None else ""

    def mark(self, kind: Kind, key: str) -> None:
        """Record that an object was added, changed or deleted."""
        if not key:
            return
        if kind == "pods":
            pod = self._cache.pods.get(key)
            self._groups.note(key, pod)
            if self._live and pod is not None:
                self._observe(pod, key)
            self._changed.add("pods", key)
            if self._ahead is not None:
                self._ahead.repeat(key)
        elif kind in ("nodes", "workloads", "poddisruptionbudgets"):
            self._changed.add(kind, key)
        elif kind in SELECTOR_KINDS:
            if self._selector(kind, key) != self._selectors.get((kind, key)):  # mostly its status changed
                self._changed.add(kind, key)
        elif kind in VOLUME_KINDS:
            self._mark_volumes(kind, key)
        elif kind in OPTIONAL_KINDS:
            self._mark_group(kind, key)
        else:
            self._mark_class_dependency(kind, key)

    def _mark_volumes(self, kind: Kind, key: str) -> None:
        """Mark the nodes and pods that depend on a changed claim, volume or object behind it."""
        self._changed.update("nodes", self.volumes.nodes_concerned(kind, key))
        if kind == "persistentvolumeclaims":
            self._mark_dependents(kind, key)
        else:  # the volume reader indexes these, and no tenant writes them
            self._mark_pods(self.volumes.concerned(kind, key))

    def _mark_group(self, kind: Kind, key: str) -> None:
        """Mark the pods of a changed object that states the size of gangs, if that statement changed.

        Thousands of pods may name the object.
        """
        sizes = said_by(kind, self._cache.objects(kind).get(key))
        if self._dependencies.get((kind, key), ()) == sizes:
            return
        self._dependencies.pop((kind, key), None)
        if sizes:
            self._dependencies[kind, key] = sizes
        self._mark_dependents(kind, key)

    def _mark_dependents(self, kind: Kind, key: str) -> None:
        """Mark the pods that depend on an object, or note the object for the next collection."""
        if self._ahead is not None:  # pods that are translated ahead need another translation
            self._mark_pods(self._dependents(kind, key))
        else:
            self._fan_outs.add(kind, key)

    def _dependents(self, kind: Kind, key: str) -> Iterable[str]:
        """Return the pods that depend on an object."""
        if kind == "persistentvolumeclaims":
            return self.volumes.concerned(kind, key)
        if kind in OPTIONAL_KINDS:
            return self._groups.concerned(kind, key)
        if kind == "jobs":
            return [key_of(pod.metadata) for pod in self._cache.pods_of_job(key)]
        if kind == "priorityclasses":
            return [name for name, pod in list(self._cache.pods.items()) if pod.spec.priority_class_name == key]
        return self._cache.pods_in(key)

    def _mark_pods(self, keys: Iterable[str]) -> None:
        for pod in keys:
            self._changed.add("pods", pod)
            if self._ahead is not None:
                self._ahead.repeat(pod)

    def _observe(self, pod: PodObject, key: str) -> PodTimes:
        return self._observations.observe(pod, live=self._live, job_status=self._job_status(key))

    def _job_status(self, key: str) -> dict[str, Any]:
        job = self._cache.jobs.get(self._cache.job_of(key) or "")
        return job.status if job is not None else {}

    def _pretranslate(self, key: str) -> Seen | None:
        pod = self._cache.pods.get(key)
        if pod is None:
            return None
        try:
            seen = self._observations.glance(pod, self._job_status(key))
            return seen, self._translate(pod, key, seen)
        except Exception as error:  # noqa: BLE001 - one faulty object must not stop all others
            self._quarantine("pods", key, "translation", error)
            return None

    def _translate(self, pod: PodObject, key: str, seen: PodTimes) -> Pod:
        ownership = ownership_of(pod, self._cache)
        translated = translate_pod(pod, ownership, seen, self._scheduler_names, self.volumes.facts(pod), key)
        phases = self._phases_for(pod, ownership.job)
        return translated._replace(growth_millicores=growth_of(pod, phases)) if phases else translated

    def _phases_for(self, pod: PodObject, job: str | None) -> Phases:
        return phases_for(pod, self._cache.jobs.get(job) if job is not None else None)

    def _mark_class_dependency(self, kind: Kind, key: str) -> None:
        """Mark the pods of a changed Job, priority class or namespace: they may have another class now."""
        if self._ahead is not None and kind == "jobs":  # the translation depends on its status, too
            for pod in self._cache.pods_of_job(key):
                self._ahead.repeat(key_of(pod.metadata))
        if kind == "namespaces":
            self._mark_limits(key)
        digest = self._dependency_digest(kind, key)
        if self._dependencies.get((kind, key)) == digest:
            return
        if digest is None:
            del self._dependencies[kind, key]
        else:
            self._dependencies[kind, key] = digest
        if self._ahead is not None and kind != "jobs":
            self._ahead.repeat_all()
        if not self._changed.began:  # no pod has been emitted yet
            return
        self._mark_dependents(kind, key)

    def _dependency_digest(self, kind: Kind, key: str) -> Any:
        """Return the fields of a Job, priority class or namespace that decide the class of its pods; None if
        deleted."""
        if kind == "jobs":
            job = self._cache.jobs.get(key)
            return (job.spec.get("class"), job.spec.get("priority"), succeeded_of(job)) if job else None
        if kind == "priorityclasses":
            priority = self._cache.priorityclasses.get(key)
            return priority.value if priority else None
        namespace = self._cache.namespaces.get(key)
        return (self._cache.max_class_of(key), *max_priorities(namespace)) if namespace else None

    def _mark_limits(self, name: str) -> None:
        """Mark a changed namespace if it has limits, or had some."""
        namespace = self._cache.namespaces.get(name)
        limits = self._namespace(namespace) if namespace is not None else None
        if limits != self._namespaces.get(name):
            self._changed.add("namespaces", name)

    def _namespace(self, namespace: NamespaceObject) -> Namespace | None:
        return translate_namespace(namespace, labels=self._selects_namespaces)

    def _emit_namespace(self, name: str, events: list[Event]) -> None:
        namespace = self._cache.namespaces.get(name)
        translated = self._namespace(namespace) if namespace is not None else None
        if namespace is not None:
            for fault in limit_faults(namespace):
                _LOG.warning("namespace %s: %s", name, fault)
        if translated is None:
            if self._namespaces.pop(name, None) is not None:
                events.append(NamespaceDeleted(name))
        elif self._namespaces.get(name) != translated:
            self._namespaces[name] = translated
            events.append(NamespaceUpserted(translated))

    def _emit_node(self, name: str, events: list[Event]) -> None:
        node = self._cache.nodes.get(name)
        if node is None or self._left_out("nodes", name):
            if self._nodes.pop(name, None) is not None:
                events.append(NodeDeleted(name))
            return
        translated = translate_node(
            node, self._clock.from_wall, self.volumes.limits_of(name), self.volumes.attached_to(name)
        )
        if self._nodes.get(name) != translated:
            for fault in (*node_faults(node), *node_annotation_faults(node)):
                _LOG.warning("node %s: %s", name, fault)
            self._nodes[name] = translated
            events.append(NodeUpserted(translated))

    def _emit_workload(self, key: str, events: list[Event]) -> None:
        workload = self._cache.workloads.get(key)
        if workload is None or self._left_out("workloads", key):
            if self._workloads.pop(key, None) is not None:
                events.append(WorkloadDeleted(key))
            return
        translated = translate_workload(workload)
        if self._workloads.get(key) != translated:
            self._workloads[key] = translated
            events.append(WorkloadUpserted(translated))

    def _selector(self, kind: Kind, key: str) -> PodSelector | None:
        item = self._cache.objects(kind).get(key)
        return None if item is None else pod_selector(SELECTOR_KINDS[kind], key, item)

    def _emit_selector(self, kind: Kind, key: str, events: list[Event]) -> None:
        translated = None if self._left_out(kind, key) else self._selector(kind, key)
        if translated is None:
            if self._selectors.pop((kind, key), None) is not None:
                events.append(SelectorDeleted(SELECTOR_KINDS[kind], key))
        elif self._selectors.get((kind, key)) != translated:
            self._rules_seen = True
            self._selectors[kind, key] = translated
            events.append(SelectorUpserted(translated))

    def _emit_budget(self, key: str, events: list[Event]) -> None:
        budget = self._cache.poddisruptionbudgets.get(key)
        if budget is None:
            if self._budgets.pop(key, None) is not None:
                events.append(BudgetDeleted(key))
            return
        translated = translate_budget(key, budget)
        if self._budgets.get(key) != translated:
            self._budgets[key] = translated
            self._rules_seen = True  # it selects pods by label
            events.append(BudgetUpserted(translated))

    def _emit_pod(self, key: str, events: list[Event]) -> None:
        pod, before = self._cache.pods.get(key), self._pods.get(key)
        if pod is not None and self._left_out("pods", key):
            pod = None
        if before is not None and (pod is None or pod.metadata.uid != before.uid):
            del self._pods[key]
            events.append(PodDeleted(key, before.uid))
            before = None
        if pod is None:
            self._observations.forget(key)
            self.volumes.forget(key)
            self._relabelled.pop(key, None)
            return
        ahead = self._ahead.take(key) if self._ahead is not None else None
        if ahead is None:
            # A live pod was observed at its change; a pod of the first list, or one that was left out, was not.
            known = self._observations.of(pod) if self._live else None
            translated = self._with_asked_size(key, self._translate(pod, key, known or self._observe(pod, key)), pod)
            self._pairs.charge(pod.metadata.namespace, PAIRS_A_CLAIM * self.volumes.claims_of(key))
        else:
            seen, translated = ahead
            self._observations.keep(key, seen)
        protects = translated.do_not_disrupt and (before is None or not before.do_not_disrupt)
        for fault in faults(pod.metadata.annotations) if before is None or protects else ():
            _LOG.warning("pod %s: %s", key, fault)
        if before is not None and self._only_relabelled(key, before, translated):
            return
        if translated == before or (before is None and translated.phase in _ENDED):
            return  # no change that matters, or a pod that ended before the first watch
        self._pods[key] = translated
        self._note_rules(translated)
        if before is not None and before.phase not in _ENDED and translated.node is not None:
            reason = refusal_of(pod.status)
            if reason is not None:
                events.append(PodRefused(key, translated.uid, translated.node, reason, self._clock.now()))
        events.append(PodUpserted(translated))
        if before is None and translated.ours and translated.node is None:
            self._arrivals.append(translated)

    def _only_relabelled(self, key: str, before: Pod, translated: Pod) -> bool:
        """Whether only labels changed, and no pod selects by label yet."""
        if (
            self._rules_seen
            or translated.labels == before.labels
            or translated._replace(labels=before.labels) != before
        ):
            return False
        self._relabelled[key] = None
        return True

    def _note_rules(self, translated: Pod) -> None:
        if translated.rules is not None:
            self._rules_seen = True
            self._selects_namespaces = self._selects_namespaces or selects_namespaces(translated.rules)
