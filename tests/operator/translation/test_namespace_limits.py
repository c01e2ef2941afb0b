"""What an administrator writes on a namespace, from the object to the engine; and what may be claimed without it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import pod_object

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, Namespace, NamespaceDeleted, NamespaceUpserted, Pod, PodUpserted
from cotide_core.limits import MAX_EXACT_INT
from cotide_kube.objects import NamespaceObject, PodObject
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.translation.event_source import EventSource
from cotide_operator.translation.namespace_limits import limit_faults, translate_namespace
from cotide_operator.translation.pod_times import PodTimes
from cotide_operator.translation.pods_and_nodes import ownership_of, translate_pod

ONLINE, BATCH, GRATIS = WorkloadClass.ONLINE, WorkloadClass.BATCH, WorkloadClass.GRATIS
BATCH_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "x", "controller": True}
OUR_JOB = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "g", "uid": "y", "controller": True}
RECLAIMS = {"containers": [{"name": "c", "resources": {"requests": {"cotide.dev/reclaimed-cpu": "100"}}}]}


def namespace(labels: dict[str, str] | None = None, **annotations: str) -> NamespaceObject:
    written = {f"cotide.dev/max-{name.replace('_', '-')}": text for name, text in annotations.items()}
    metadata = {"name": "ns", "annotations": written, "labels": labels or {}}
    return msgspec.convert({"metadata": metadata}, NamespaceObject)


def pod(spec: dict[str, Any] | None = None, **metadata: Any) -> PodObject:
    """A pod whose parts are the test's."""
    return pod_object("p", spec=spec, **{"uid": "u", **metadata})


def translated(one: PodObject, *, of: NamespaceObject | None = None, default: str = "unraised") -> Pod:
    cache = ObjectCache()
    cache.max_class_without_label = default
    if of is not None:
        cache.apply("namespaces", "ADDED", of)
    job = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"class": "gratis"}}
    cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
    cache.apply("pods", "ADDED", one)
    return translate_pod(one, ownership_of(one, cache), PodTimes("u", 0.0))


def claims(value: str, spec: dict[str, Any] | None = None, **metadata: Any) -> PodObject:
    return pod(spec, labels={"cotide.dev/class": value}, **metadata)


CLAIMS = [
    ("an ordinary pod is online", pod(), ONLINE),
    ("an ordinary pod may say so", claims("online"), ONLINE),
    ("a pod may lower itself", claims("gratis"), GRATIS),
    ("a pod of a batch/v1 Job is no online pod by its label", claims("online", ownerReferences=[BATCH_JOB]), BATCH),
    ("nor by a PriorityClass", pod({"priorityClassName": "cotide-online"}, ownerReferences=[BATCH_JOB]), BATCH),
    ("a pod of a gratis Job stays gratis", claims("online", ownerReferences=[OUR_JOB]), GRATIS),
    ("what takes reclaimed capacity may be evicted", claims("online", RECLAIMS), BATCH),
    ("also where it says nothing", pod(RECLAIMS), BATCH),
    ("also with the PriorityClass of services", pod({**RECLAIMS, "priorityClassName": "cotide-online"}), BATCH),
    ("a service by its PriorityClass is online", pod({"priorityClassName": "cotide-online"}), ONLINE),
]


@pytest.mark.parametrize(("one", "expected"), [case[1:] for case in CLAIMS], ids=[case[0] for case in CLAIMS])
def test_in_a_namespace_without_a_label_no_claim_makes_batch_work_online(one: PodObject, expected: object) -> None:
    assert translated(one).workload_class is expected


def test_an_administrator_lets_a_namespace_claim_what_it_likes_or_less_by_label_or_for_all() -> None:
    work = claims("online", ownerReferences=[BATCH_JOB])
    assert translated(work, of=namespace({"cotide.dev/max-class": "online"})).workload_class is ONLINE
    assert translated(work, default="online").workload_class is ONLINE
    assert translated(pod(), default="batch").workload_class is BATCH
    labelled = namespace({"cotide.dev/max-class": "online"})
    assert translated(pod(), of=labelled, default="gratis").workload_class is ONLINE, "the label counts first"
    assert translated(work, of=namespace({"cotide.dev/max-class": "nonsense"})).workload_class is BATCH


def test_priorities_above_the_cap_of_a_namespace_count_as_the_cap() -> None:
    one = pod({"priority": 5000}, annotations={"cotide.dev/job-priority": "900"})
    capped = translated(one, of=namespace(priority="10", job_priority="200"))
    assert (capped.priority, capped.job_priority) == (10, 200)
    free = translated(one, of=namespace())
    assert (free.priority, free.job_priority) == (5000, 900)


def test_nobody_is_evicted_for_a_pod_whose_preemption_policy_is_never() -> None:
    assert not translated(pod({"preemptionPolicy": "Never"})).preempts
    assert translated(pod({"preemptionPolicy": "PreemptLowerPriority"})).preempts


def test_limits_are_read_as_quantities_and_numbers() -> None:
    assert translate_namespace(namespace(batch_cpu="1500m", batch_memory="2Gi", queued_pods="7")) == Namespace(
        "ns", 1500, 2 << 30, 7
    )
    assert translate_namespace(namespace(priority="5")) is None, "a cap on priorities is the translation's own"


@given(st.sampled_from(("batch_cpu", "batch_memory", "queued_pods")), st.text(max_size=80))
def test_a_limit_that_cant_be_read_lets_nothing_through_and_is_named(which: str, text: str) -> None:
    one = namespace(**{which: text})
    found = translate_namespace(one)
    assert found is not None
    values = [
        value for value in (found.batch_millicores, found.batch_memory_bytes, found.queued_pods) if value is not None
    ]
    (value,) = values
    assert 0 <= value <= MAX_EXACT_INT
    if limit_faults(one):
        assert value == 0


@pytest.mark.parametrize("text", ["4 cores", "", "-", "NaN", "9" * 5000, "1e999999999"])
def test_such_slips_of_the_pen_are_told(text: str) -> None:
    (fault,) = limit_faults(namespace(batch_cpu=text))
    assert fault.startswith("annotation cotide.dev/max-batch-cpu: ")
    assert len(fault) < 200


def test_a_weight_is_a_number_from_a_thousandth_to_a_thousand_and_what_is_none_counts_as_one() -> None:
    def weighing(text: str) -> NamespaceObject:
        return msgspec.convert(
            {"metadata": {"name": "ns", "annotations": {"cotide.dev/fair-weight": text}}}, NamespaceObject
        )

    assert translate_namespace(weighing("2.5")) == Namespace("ns", weight=2.5)
    assert limit_faults(weighing("2.5")) == []
    for text in ("0", "-1", "nan", "inf", "1001", "much", "9" * 100):
        assert translate_namespace(weighing(text)) is None
        assert "it counts as 1" in limit_faults(weighing(text))[0]


def test_the_engine_is_told_of_limits_when_they_come_change_and_go_and_of_no_other_namespace() -> None:
    cache = ObjectCache()
    source = EventSource(cache, ScaledClock(), ("cotide",))

    def events_of(change: str, one: NamespaceObject) -> list[Event]:
        cache.apply("namespaces", change, one)
        return source.collect()

    assert events_of("ADDED", namespace()) == []
    assert events_of("MODIFIED", namespace(batch_cpu="2")) == [NamespaceUpserted(Namespace("ns", 2000))]
    assert events_of("MODIFIED", namespace({"some": "label"}, batch_cpu="2")) == []
    assert events_of("MODIFIED", namespace(batch_cpu="3")) == [NamespaceUpserted(Namespace("ns", 3000))]
    assert events_of("MODIFIED", namespace()) == [NamespaceDeleted("ns")]
    assert events_of("MODIFIED", namespace(queued_pods="1")) == [NamespaceUpserted(Namespace("ns", queued_pods=1))]
    assert events_of("DELETED", namespace(queued_pods="1")) == [NamespaceDeleted("ns")]


def test_a_cap_on_priorities_reaches_the_pods_that_wait_already() -> None:
    cache = ObjectCache()
    source = EventSource(cache, ScaledClock(), ("cotide",))
    cache.apply("namespaces", "ADDED", namespace())
    cache.apply("pods", "ADDED", pod({"priority": 5000}))
    source.collect()
    cache.apply("namespaces", "MODIFIED", namespace(priority="3"))
    (event,) = source.collect()
    assert isinstance(event, PodUpserted)
    assert event.pod.priority == 3
