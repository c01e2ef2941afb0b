"""The mirror's indexes agree with its objects, and its listeners hear of every pod that changes hands."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import owner, pod_object, workload_manifest

from cotide_core.classes import MAX_CLASS_LABEL
from cotide_kube.objects import Metadata, NamespaceObject, PodObject
from cotide_operator.apis.names import JOB_LABEL, TRACKING_FINALIZER
from cotide_operator.cache import object_cache
from cotide_operator.cache.label_selectors import read_selector, selects
from cotide_operator.cache.object_cache import KINDS, CustomObject, Kind, ObjectCache, key_of


def pod(name: str, labels: dict[str, str] | None = None, job: str | None = None, namespace: str = "ns") -> PodObject:
    """A pod, a Job's if one is named."""
    return pod_object(name, labels=labels, namespace=namespace, uid=name, ownerReferences=[owner(job)] if job else [])


def workload(name: str, labels: dict[str, str] | None, namespace: str = "ns") -> CustomObject:
    """A Workload that adopts by labels, as our client reads it."""
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}} if labels is not None else {}
    return msgspec.convert(workload_manifest(name, namespace=namespace, **spec), CustomObject)


def names(pods: list[PodObject]) -> list[str]:
    return [one.metadata.name for one in pods]


def test_pods_are_found_by_job_until_they_are_gone() -> None:
    mirror = ObjectCache()
    for name in ("a", "b"):
        mirror.apply("pods", "ADDED", pod(name, job="j"))
    mirror.apply("pods", "ADDED", pod("c"))
    assert names(mirror.pods_of_job("ns/j")) == ["a", "b"]
    mirror.apply("pods", "DELETED", pod("a", job="j"))
    assert names(mirror.pods_of_job("ns/j")) == ["b"]
    mirror.apply("pods", "DELETED", pod("b", job="j"))
    assert mirror.pods_of_job("ns/j") == []


def test_pods_are_counted_by_job_and_by_workload() -> None:
    mirror = ObjectCache()
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    for name in ("a", "b"):
        mirror.apply("pods", "ADDED", pod(name, job="j"))
    mirror.apply("pods", "ADDED", pod("c", {"app": "web"}))
    assert [mirror.pod_count("jobs", "ns/j"), mirror.pod_count("workloads", "ns/web")] == [2, 1]
    assert [mirror.pod_count("jobs", "ns/web"), mirror.pod_count("workloads", "ns/j")] == [0, 0]


def test_a_workload_selects_in_its_own_namespace_only() -> None:
    mirror = ObjectCache()
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    mirror.apply("pods", "ADDED", pod("in", {"app": "web"}))
    mirror.apply("pods", "ADDED", pod("out", {"app": "web"}, namespace="other"))
    assert names(mirror.pods_of_workload("ns/web")) == ["in"]
    assert mirror.workload_of("other/out") is None


def test_a_changed_selector_tells_which_pods_changed_hands() -> None:
    mirror = ObjectCache()
    for name in ("a", "b", "c"):
        mirror.apply("pods", "ADDED", pod(name, {"app": name}))
    mirror.apply("workloads", "ADDED", workload("web", {"app": "a"}))
    heard: list[tuple[str, str]] = []
    mirror.subscribe(lambda kind, key: heard.append((kind, key)))
    mirror.apply("workloads", "MODIFIED", workload("web", {"app": "b"}))
    assert heard == [("workloads", "ns/web"), ("pods", "ns/a"), ("pods", "ns/b")]
    assert names(mirror.pods_of_workload("ns/web")) == ["b"]


def test_a_workload_without_a_selector_adopts_nobody() -> None:
    mirror = ObjectCache()
    mirror.apply("pods", "ADDED", pod("a", {"app": "web"}))
    for labels in (None, {}):
        mirror.apply("workloads", "ADDED", workload("web", labels))
        assert mirror.pods_of_workload("ns/web") == []


def test_of_two_workloads_that_select_a_pod_the_first_by_name_has_it() -> None:
    mirror = ObjectCache()
    for name in ("zoo", "ant"):
        mirror.apply("workloads", "ADDED", workload(name, {"app": "web"}))
    mirror.apply("pods", "ADDED", pod("a", {"app": "web"}))
    assert mirror.workload_of("ns/a") == "ns/ant"


def test_nothing_counts_as_synced_before_every_kind_was_listed() -> None:
    mirror = ObjectCache()
    for kind in KINDS[:-1]:
        mirror.mark_synced(kind)
    assert not mirror.synced
    assert mirror.missing() == [KINDS[-1]]
    mirror.mark_synced(KINDS[-1])
    assert mirror.synced


def test_no_namespace_is_gone_before_the_namespaces_were_listed() -> None:
    mirror = ObjectCache()
    assert not mirror.is_gone("ns")
    mirror.apply("namespaces", "ADDED", NamespaceObject(metadata=Metadata(name="ns")))
    mirror.mark_synced("namespaces")
    assert [mirror.is_gone(name) for name in ("ns", "other")] == [False, True]


def test_a_first_list_gives_all_pods_to_their_workloads_and_a_later_one_leaves_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_cache, "SETTLE_SECONDS", 0.0)
    mirror = ObjectCache()
    for number in range(10):
        mirror.apply("pods", "ADDED", pod(f"p{number}", {"app": f"{number % 2}"}))
    mirror.apply("workloads", "ADDED", workload("web", {"app": "0"}))
    for kind in KINDS:
        mirror.mark_synced(kind)
    assert len(mirror.pods_of_workload("ns/web")) == 5
    mirror.apply("workloads", "MODIFIED", workload("web", {"app": "1"}))
    mirror.mark_synced("workloads")
    assert mirror.settle(), "pods wait for their turn"


def test_a_pod_that_is_gone_is_not_looked_at_for_a_new_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "SETTLE_SECONDS", 0.0)
    mirror = ObjectCache()
    for name in ("a", "b", "c"):
        mirror.apply("pods", "ADDED", pod(name))
    for name in ("a", "b"):
        mirror.apply("pods", "DELETED", pod(name))
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    assert not mirror.settle(), "one pod, and one turn went with the Workload"
    assert not mirror.quarantine


def test_a_new_selector_finds_the_pods_that_stay_when_another_goes() -> None:
    mirror = ObjectCache()
    for name in ("a", "b"):
        mirror.apply("pods", "ADDED", pod(name, {"app": "web"}))
    mirror.apply("pods", "DELETED", pod("a", {"app": "web"}))
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    assert names(mirror.pods_of_workload("ns/web")) == ["b"]


def test_an_owner_goes_before_a_selector_and_a_pod_that_is_gone_belongs_to_no_workload() -> None:
    mirror = ObjectCache()
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    by = {**owner("api"), "kind": "Workload"}
    owned = pod_object("owned", labels={"app": "web"}, namespace="ns", ownerReferences=[by])
    for one in (owned, pod("selected", {"app": "web"})):
        mirror.apply("pods", "ADDED", one)
    assert [mirror.workload_of("ns/owned"), mirror.workload_for(owned)] == ["ns/api", "ns/api"]
    assert names(mirror.pods_of_workload("ns/web")) == ["selected"]
    mirror.apply("pods", "DELETED", pod("selected", {"app": "web"}))
    assert (mirror.pods_of_workload("ns/web"), mirror.workload_of("ns/selected")) == ([], None)
    assert not mirror.quarantine


def test_a_pod_with_our_finalizer_is_kept_for_its_job_or_the_job_that_its_label_names() -> None:
    mirror = ObjectCache()
    for name, labels, owners in (("a", {}, [owner("j")]), ("b", {JOB_LABEL: "k"}, []), ("c", {}, [])):
        kept = pod_object(name, labels=labels, namespace="ns", finalizers=[TRACKING_FINALIZER], ownerReferences=owners)
        mirror.apply("pods", "ADDED", kept)
    mirror.apply("pods", "ADDED", pod("d", job="j"))
    assert {key: names(mirror.pods_kept_for(key)) for key in mirror.keepers()} == {
        "ns/j": ["a"],
        "ns/k": ["b"],
        "ns/": ["c"],
    }
    assert mirror.keeper_of("ns/d") is None


def test_what_is_set_aside_is_so_at_its_version_until_it_changes() -> None:
    mirror = ObjectCache()
    mirror.apply("pods", "ADDED", pod_object("a", namespace="ns", uid="u", resourceVersion="7"))
    for key in ("ns/a", "ns/unknown"):
        mirror.set_aside("pods", key, "a test", ValueError("odd"))
    assert [(one.uid, one.version) for one in mirror.quarantine] == [("u", "7"), ("", "")]
    mirror.apply("pods", "MODIFIED", pod_object("a", namespace="ns", uid="u", resourceVersion="8"))
    assert mirror.quarantine.get("pods", "ns/a") is None


def test_a_copy_has_the_objects_and_their_owners_of_the_moment() -> None:
    mirror = ObjectCache()
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    mirror.apply("pods", "ADDED", pod("a", {"app": "web"}, job="j"))
    copy = mirror.copied()
    mirror.apply("pods", "DELETED", pod("a"))
    assert (list(copy.pods), copy.job_of("ns/a"), copy.workload_of("ns/a")) == (["ns/a"], "ns/j", "ns/web")


def test_pods_may_claim_the_class_that_their_namespace_allows() -> None:
    mirror = ObjectCache()
    for name, labels in (("a", {MAX_CLASS_LABEL: "batch"}), ("b", {MAX_CLASS_LABEL: "odd"}), ("c", {})):
        mirror.apply("namespaces", "ADDED", NamespaceObject(metadata=Metadata(name=name, labels=labels)))
    mirror.max_class_without_label = "gratis"
    assert [mirror.max_class_of(name) for name in "abcd"] == ["batch", "gratis", "gratis", "gratis"]


def test_each_list_of_a_kind_is_heard_of() -> None:
    mirror = ObjectCache()
    heard: list[tuple[str, str]] = []
    mirror.subscribe(lambda kind, key: heard.append((kind, key)))
    mirror.mark_synced("pods")
    mirror.mark_synced("podgroups")
    assert heard == [("pods", ""), ("podgroups", "")]


def test_match_expressions_follow_the_api() -> None:
    selector = read_selector(
        {
            "selector": {
                "matchExpressions": [
                    {"key": "app", "operator": "In", "values": ["web"]},
                    {"key": "canary", "operator": "DoesNotExist"},
                    {"key": "env", "operator": "NotIn", "values": ["dev"]},
                    {"key": "tier", "operator": "Exists"},
                ]
            }
        }
    )
    assert selects(selector, {"app": "web", "tier": "front"})
    assert not selects(selector, {"app": "web", "tier": "front", "canary": "1"})
    assert not selects(selector, {"app": "web", "tier": "front", "env": "dev"})
    assert not selects(selector, {"app": "web"})
    assert read_selector({"selector": {"matchLabels": "nonsense"}}) is None


changes = st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("abc"))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pods"), changes, st.sampled_from(["x", "y"]), st.sampled_from([None, "j", "k"])),
            st.tuples(st.just("workloads"), changes, st.sampled_from([None, "x", "y"]), st.none()),
        ),
        max_size=40,
    )
)
def test_the_indexes_are_what_a_search_through_all_objects_gives(steps: list[Any]) -> None:
    mirror = ObjectCache()
    for kind, (change, name), label, job in steps:
        labels = {"app": label} if label else None
        item: Any = pod(name, labels, job) if kind == "pods" else workload(f"w{name}", labels)
        mirror.apply(kind, change, item)
    while mirror.settle():  # a busy machine may leave pods for a later turn
        pass
    for key, one in mirror.pods.items():
        owner = next((o.name for o in one.metadata.owner_references), None)
        assert mirror.job_of(key) == (f"ns/{owner}" if owner else None)
        wanted = min(
            (k for k, w in mirror.workloads.items() if selects(read_selector(w.spec), one.metadata.labels)),
            default=None,
        )
        assert mirror.workload_of(key) == wanted
    for key in ("ns/j", "ns/k"):
        assert {key_of(p.metadata) for p in mirror.pods_of_job(key)} == {
            k for k in mirror.pods if mirror.job_of(k) == key
        }
    for key in [f"ns/w{name}" for name in "abc"]:
        found = {key_of(p.metadata) for p in mirror.pods_of_workload(key)}
        assert found == {k for k in mirror.pods if mirror.workload_of(k) == key}


def test_a_selector_that_concerns_many_pods_is_followed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "SETTLE_SECONDS", 0.0)
    mirror = ObjectCache()
    for number in range(100):
        mirror.apply("pods", "ADDED", pod(f"p{number}", {"app": "web"}))
    heard: list[str] = []
    mirror.subscribe(lambda kind, key: heard.append(key) if kind == "pods" else None)
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    assert len(heard) == 1, "one turn of no time is one pod"
    mirror.apply("pods", "DELETED", pod("p50", {"app": "web"}))
    turns = 1
    while mirror.settle():
        turns += 1
    assert turns == 99
    assert len(mirror.pods_of_workload("ns/web")) == 99


def test_a_pod_that_trips_the_indexes_is_quarantined_and_the_others_change_hands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mirror = ObjectCache()
    for name in ("a", "b", "c"):
        mirror.apply("pods", "ADDED", pod(name, {"app": "web"}))
    by_selector = mirror._workload_by_selector

    def trips(namespace: str, key: str, found: PodObject | None) -> str | None:
        if key == "ns/b":
            raise OverflowError("too large")
        return by_selector(namespace, key, found)

    monkeypatch.setattr(mirror, "_workload_by_selector", trips)
    mirror.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    while mirror.settle():
        pass
    assert names(mirror.pods_of_workload("ns/web")) == ["a", "c"]
    assert mirror.quarantine.get("pods", "ns/b") is not None


@pytest.mark.parametrize("kind", ["pods", "workloads"])
def test_a_change_that_trips_the_indexes_is_quarantined_and_heard_of(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, heard = ObjectCache(), list[tuple[Kind, str]]()
    mirror.subscribe(lambda *change: heard.append(change))

    def trips(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(mirror, "_index" if kind == "pods" else "_reselect", trips)
    mirror.apply(kind, "ADDED", pod("b") if kind == "pods" else workload("b", {"app": "web"}))
    entry = mirror.quarantine.get(kind, "ns/b")
    assert entry is not None
    assert (entry.part, entry.fault) == ("indexes of the mirror", "too large")
    assert heard == [(kind, "ns/b")]


def test_a_pod_event_costs_the_same_however_many_long_selectors_its_namespace_has() -> None:
    mirror = ObjectCache()
    absent = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(63)]
    for number in range(300):
        never = {"key": f"never{number}", "operator": "Exists"}
        spec = {"selector": {"matchExpressions": [*absent, never]}}
        body = workload_manifest(f"w{number}", namespace="ns", **spec)
        mirror.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    index = mirror._selectors["ns"]._index
    for number in range(20):
        mirror.apply("pods", "ADDED", pod(f"p{number}", {"app": f"a{number % 2}"}))
    assert index.pairs == 0, "no pod has a label that one of them requires"
    assert mirror.workload_of("ns/p0") is None


def test_a_changed_selector_gives_its_pods_to_the_next_by_name() -> None:
    mirror = ObjectCache()
    for name in range(3):
        mirror.apply("pods", "ADDED", pod(f"p{name}", {"app": "web", "number": str(name)}))
    for name in ("bee", "ant"):
        mirror.apply("workloads", "ADDED", workload(name, {"app": "web"}))
    assert len(mirror.pods_of_workload("ns/ant")) == 3
    mirror.apply("workloads", "MODIFIED", workload("ant", {"number": "1"}))
    assert names(mirror.pods_of_workload("ns/ant")) == ["p1"]
    assert sorted(names(mirror.pods_of_workload("ns/bee"))) == ["p0", "p2"]
    mirror.apply("workloads", "DELETED", workload("bee", {"app": "web"}))
    assert mirror.workload_of("ns/p0") is None
