"""One object that makes a part raise is quarantined, told on it, and tried again when it changes."""

from __future__ import annotations

import logging

import msgspec
import pytest
from manifests import pod_object

from cotide_core.events import NodeUpserted, PodUpserted
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.cache.quarantine import LINES_AT_ONCE, MOST, Quarantine
from cotide_operator.clock import ScaledClock
from cotide_operator.translation import event_source
from cotide_operator.translation.event_source import EventSource


def pod(name: str, version: str = "1", **annotations: str) -> PodObject:
    """A pod of a version."""
    return pod_object(name, namespace="shop", resourceVersion=version, annotations=annotations)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translation trips over pods that say so, whatever the gate lets through."""
    honest = event_source.translate_pod

    def trips(found: PodObject, *rest: object) -> object:
        if "poison" in found.metadata.annotations:
            raise OverflowError("too large for the engine")
        return honest(found, *rest)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(event_source, "translate_pod", trips)


def pods_of(source: EventSource) -> set[str]:
    return {event.pod.key for event in source.collect() if isinstance(event, PodUpserted)}


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("listed_first", [True, False])
def test_all_but_the_object_at_fault_are_told_and_it_is_once_it_changes(listed_first: bool) -> None:
    cache = ObjectCache()
    source = EventSource(cache, ScaledClock(), ("cotide",))
    if not listed_first:
        source.collect()
    for one in (pod("a"), pod("bad", poison="1"), pod("c")):
        cache.apply("pods", "ADDED", one)
    assert pods_of(source) == {"shop/a", "shop/c"}
    entry = cache.quarantine.get("pods", "shop/bad")
    assert entry is not None
    assert (entry.part, entry.fault, entry.version) == ("translation", "too large for the engine", "1")
    cache.apply("pods", "MODIFIED", pod("bad", "2"))
    assert cache.quarantine.get("pods", "shop/bad") is None
    assert pods_of(source) == {"shop/bad"}


@pytest.mark.usefixtures("poisoned")
def test_an_object_that_goes_is_forgotten() -> None:
    cache = ObjectCache()
    source = EventSource(cache, ScaledClock(), ("cotide",))
    cache.apply("pods", "ADDED", pod("bad", poison="1"))
    source.collect()
    cache.apply("pods", "DELETED", pod("bad"))
    assert len(cache.quarantine) == 0


def test_a_node_whose_amount_can_not_be_read_stops_no_other_node() -> None:
    cache = ObjectCache()
    source = EventSource(cache, ScaledClock(), ("cotide",))
    for name, amount in (("good", "8"), ("bad", "much")):
        body = {"metadata": {"name": name, "uid": name}, "status": {"allocatable": {"cpu": amount}}}
        cache.apply("nodes", "ADDED", msgspec.convert(body, NodeObject))
    assert [event.node.name for event in source.collect() if isinstance(event, NodeUpserted)] == ["good"]
    assert cache.quarantine.get("nodes", "bad") is not None


def test_the_log_names_the_place_and_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    aside = Quarantine(lambda: now[0])
    with caplog.at_level(logging.ERROR):
        for number in range(100):
            try:
                raise OverflowError("too large")
            except OverflowError as error:
                aside.put("pods", f"shop/{number}", "translation", error)
        now[0] = 61.0
        aside.put("pods", "shop/late", "translation", "late")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LINES_AT_ONCE + 2
    assert "translation (OverflowError in test_quarantine.py:" in lines[0]
    assert lines[-2] == "80 further objects were quarantined"


def test_the_same_fault_of_the_same_version_is_told_once() -> None:
    aside, heard = Quarantine(), []
    aside.subscribe(heard.append)
    for version in ("1", "1", "2"):
        aside.put("jobs", "shop/j", "decoding", "too deep", uid="u", version=version)
    assert [entry.version for entry in heard] == ["1", "2"]


def test_what_is_remembered_is_bounded() -> None:
    aside = Quarantine()
    for number in range(MOST + 5):
        aside.put("pods", str(number), "translation", "x")
    assert len(aside) == MOST
    assert aside.get("pods", "4") is None
