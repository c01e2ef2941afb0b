"""Pods translated ahead of the first collection, and told in parts: the same is told as without, whatever happens
in between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manifests import owner, pod_object

from cotide_core.events import PodUpserted
from cotide_kube.objects import NamespaceObject, PodObject, PriorityClassObject
from cotide_operator.cache.object_cache import KINDS, CustomObject, ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.translation import event_source as event_source_module
from cotide_operator.translation.event_source import EventSource

NAMES = ("a", "b", "c")
AROUND = ("priorityclasses", "namespaces", "workloads", "jobs")


class StoppedClock(ScaledClock):
    def now(self) -> float:
        return 2_000_000_000.0


def pod(name: str, uid: str, phase: str, job: str | None, labels: dict[str, str]) -> PodObject:
    """A pod, a Job's if one is named."""
    owners = [owner(job)] if job else []
    spec = {"priorityClassName": "p"}
    made = {"creationTimestamp": "2026-11-20T13:00:00Z", "ownerReferences": owners}
    return pod_object(name, uid=uid, labels=labels, spec=spec, status={"phase": phase}, **made)


def around(kind: str, name: str, value: int) -> Any:
    """A Job, Workload, namespace or priority class, of which something that matters to pods is ``value``."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ns"}
    if kind == "jobs":
        spec = {"class": ("batch", "gratis")[value % 2], "priority": 10 * value}
        body = {"metadata": metadata, "spec": spec, "status": {"attempts": value, "demotions": value}}
        return msgspec.convert(body, CustomObject)
    if kind == "workloads":
        body = {"metadata": metadata, "spec": {"selector": {"matchLabels": {"app": str(value)}}}}
        return msgspec.convert(body, CustomObject)
    if kind == "namespaces":
        labels = {"cotide.dev/max-class": ("batch", "gratis", "online")[value % 3]}
        return msgspec.convert({"metadata": {"name": "ns", "labels": labels}}, NamespaceObject)
    return msgspec.convert({"metadata": {"name": "p"}, "value": -1000 * value}, PriorityClassObject)


CHANGES = st.sampled_from(("ADDED", "MODIFIED", "DELETED"))
PODS = st.builds(
    lambda change, name, uid, phase, job, app: ("pods", change, pod(name, f"{name}{uid}", phase, job, {"app": app})),
    CHANGES, st.sampled_from(NAMES), st.integers(0, 1), st.sampled_from(("Pending", "Running", "Succeeded")),
    st.sampled_from((None, "j", "k")), st.sampled_from(("0", "1")),
)  # fmt: skip
OTHERS = st.builds(
    lambda change, kind, name, value: (kind, change, around(kind, name, value)),
    CHANGES, st.sampled_from(AROUND), st.sampled_from(("j", "k")), st.integers(0, 3),
)  # fmt: skip
STEPS = st.lists(st.one_of(PODS, PODS, OTHERS, st.integers(1, 3)), max_size=25)


def events_of(steps: list[Any], *, ahead: bool) -> list[Any]:
    cache = ObjectCache()
    event_source = EventSource(cache, StoppedClock(), ("cotide",))
    for kind in KINDS:
        cache.mark_synced(kind)
    for step in steps:
        if not isinstance(step, int):
            cache.apply(*step)
        elif ahead:
            event_source.translate_ahead(step)
    return [event_source.collect(), event_source.take_arrivals(), dict(event_source.pods)]


@settings(max_examples=300)
@given(STEPS)
def test_the_first_collection_tells_the_same_whatever_was_translated_ahead(steps: list[Any]) -> None:
    assert events_of(steps, ahead=True) == events_of(steps, ahead=False)


def known(steps: list[Any], *, parts: bool) -> dict[str, Any]:
    """What is known of pods that have not ended once all was told, but for labels and times; an integer is a part."""
    cache = ObjectCache()
    event_source = EventSource(cache, StoppedClock(), ("cotide",))
    for kind in KINDS:
        cache.mark_synced(kind)
    for step in steps:
        if not isinstance(step, int):
            cache.apply(*step)
        elif parts:
            event_source.translate_ahead(step)
            event_source.collect_part()
    while event_source.waiting:
        event_source.collect_part()
    return {
        key: (pod.uid, pod.phase, pod.workload_class, pod.priority, pod.job)
        for key, pod in event_source.pods.items()
        if pod.phase in ("Pending", "Running")
    }


@settings(max_examples=300)
@given(STEPS)
def test_what_changes_while_parts_are_told_is_told_in_the_end(steps: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_source_module, "CHANGES_AT_ONCE", 1)
        assert known(steps, parts=True) == known(steps, parts=False)


def test_a_pod_waits_to_be_translated_until_all_that_surrounds_pods_was_listed() -> None:
    cache = ObjectCache()
    event_source = EventSource(cache, StoppedClock(), ("cotide",))
    cache.apply("pods", "ADDED", pod("a", "a", "Pending", None, {}))
    for kind in AROUND:
        assert not event_source.translate_ahead(10)
        cache.mark_synced(kind)  # type: ignore[arg-type]  # one of the kinds
    assert event_source.translate_ahead(10)
    assert not event_source.translate_ahead(10)  # done
    cache.apply("pods", "MODIFIED", pod("a", "a", "Running", None, {}))
    assert event_source.translate_ahead(10)  # and done anew
    (event,) = event_source.collect()
    assert isinstance(event, PodUpserted)
    assert event.pod.phase == "Running"
    cache.apply("pods", "MODIFIED", pod("a", "a", "Succeeded", None, {}))
    assert not event_source.translate_ahead(10)  # from now on each change is somebody's to wait for
