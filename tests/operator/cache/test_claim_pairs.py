"""Claims times pods are counted: what costs more than a share of one collection continues in the next ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from cotide_core.events import Event, PodUpserted
from cotide_operator.cache.object_cache import TYPES, ObjectCache
from cotide_operator.clock import real_clock
from cotide_operator.translation import event_source
from cotide_operator.translation.event_source import EventSource

CROWD = 60
CLAIMS = 64


@pytest.fixture(autouse=True)
def no_time_ends_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_source, "COLLECT_SECONDS", 3600.0)


class Cluster:
    """A cache, and the event source that follows it."""

    def __init__(self, claims: int, pods: int) -> None:
        self.cache = ObjectCache()
        self.source = EventSource(self.cache, real_clock(), ("cotide",))
        self._claims = claims
        for number in range(claims):
            self.claim(number, "1Gi")
        for number in range(pods):
            volumes = [{"name": f"v{one}", "persistentVolumeClaim": {"claimName": f"c{one}"}} for one in range(claims)]
            self.pod(f"crowd/p{number:05}", volumes=volumes)
        self.source.collect()

    def put(self, kind: str, key: str, **spec: object) -> None:
        namespace, name = key.split("/")
        change = "MODIFIED" if key in self.cache.objects(kind) else "ADDED"
        metadata = {"name": name, "namespace": namespace, "uid": f"u-{name}"}
        self.cache.apply(kind, change, msgspec.convert({"metadata": metadata, "spec": spec}, TYPES[kind]))

    def pod(self, key: str, **spec: object) -> None:
        self.put("pods", key, schedulerName="cotide", **spec)

    def claim(self, number: int, size: str, volume: str = "") -> None:
        asked = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
        self.put("persistentvolumeclaims", f"crowd/c{number}", **asked, volumeName=volume)

    def collections(self) -> Iterator[list[Event]]:
        while self.source.waiting:
            yield self.source.collect_part()


def tells(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note which pods are translated."""
    translated: list[str] = []
    original = EventSource._emit_pod

    def noted(self: EventSource, key: str, events: list[Event]) -> None:
        translated.append(key)
        original(self, key, events)

    monkeypatch.setattr(EventSource, "_emit_pod", noted)
    return translated


def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a claim with 100 pods; one collection puts up some dozens of them."""
    monkeypatch.setattr(event_source, "FAN_OUT_AT_ONCE", 10)
    cluster = Cluster(1, 100)
    cluster.source._pairs = event_source.PairBudget(40)
    return cluster


def test_pods_with_many_claims_leave_half_of_a_collection_to_other_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(CLAIMS, CROWD)
    translated = tells(monkeypatch)
    cluster.claim(0, "2Gi")
    for number in range(300):
        cluster.pod(f"other/p{number}")
    events = cluster.source.collect_part()
    others = [event for event in events if isinstance(event, PodUpserted) and event.pod.key.startswith("other/")]
    assert len(others) == 300
    first = sum(key.startswith("crowd/") for key in translated)
    assert 0 < first < CROWD / 2
    for _ in cluster.collections():
        pass
    assert Counter(key for key in translated if key.startswith("crowd/")) == {f"crowd/p{n:05}": 1 for n in range(CROWD)}


def test_the_pods_of_one_claim_are_put_up_over_several_collections_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_small_parts(monkeypatch)
    monkeypatch.setattr(event_source, "PAIRS_A_CLAIM", 0)
    translated = tells(monkeypatch)
    cluster.claim(0, "2Gi")
    parts = [len(translated) for _ in cluster.collections()]
    assert parts[0] < 50
    assert len(parts) > 2
    assert Counter(translated) == {f"crowd/p{number:05}": 1 for number in range(100)}


def test_a_claim_that_changes_while_its_pods_are_put_up_is_what_all_of_them_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = in_small_parts(monkeypatch)
    cluster.claim(0, "2Gi")
    cluster.source.collect_part()
    cluster.claim(0, "2Gi", volume="v")
    cluster.claim(0, "2Gi", volume="w")
    translated = tells(monkeypatch)
    for _ in cluster.collections():
        pass
    assert {f"crowd/p{number:05}" for number in range(100)} <= set(translated)
    assert len(translated) < 300


def test_the_same_changes_are_collected_in_the_same_parts() -> None:
    def parts() -> list[list[str]]:
        cluster = Cluster(CLAIMS, CROWD)
        cluster.claim(0, "2Gi", volume="v")
        for number in range(20):
            cluster.pod(f"other/p{number}")
        return [[one.pod.key for one in part if isinstance(one, PodUpserted)] for part in cluster.collections()]

    assert parts() == parts()
