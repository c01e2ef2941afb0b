"""The cache's indexes agree with its objects, and its listeners hear of every pod that changes hands."""

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
    cache = ObjectCache()
    for name in ("a", "b"):
        cache.apply("pods", "ADDED", pod(name, job="j"))
    cache.apply("pods", "ADDED", pod("c"))
    assert names(cache.pods_of_job("ns/j")) == ["a", "b"]
    cache.apply("pods", "DELETED", pod("a", job="j"))
    assert names(cache.pods_of_job("ns/j")) == ["b"]
    cache.apply("pods", "DELETED", pod("b", job="j"))
    assert cache.pods_of_job("ns/j") == []


def test_pods_are_counted_by_job_and_by_workload() -> None:
    cache = ObjectCache()
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    for name in ("a", "b"):
        cache.apply("pods", "ADDED", pod(name, job="j"))
    cache.apply("pods", "ADDED", pod("c", {"app": "web"}))
    assert [cache.pod_count("jobs", "ns/j"), cache.pod_count("workloads", "ns/web")] == [2, 1]
    assert [cache.pod_count("jobs", "ns/web"), cache.pod_count("workloads", "ns/j")] == [0, 0]


def test_a_workload_selects_in_its_own_namespace_only() -> None:
    cache = ObjectCache()
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    cache.apply("pods", "ADDED", pod("in", {"app": "web"}))
    cache.apply("pods", "ADDED", pod("out", {"app": "web"}, namespace="other"))
    assert names(cache.pods_of_workload("ns/web")) == ["in"]
    assert cache.workload_of("other/out") is None


def test_a_changed_selector_tells_which_pods_changed_hands() -> None:
    cache = ObjectCache()
    for name in ("a", "b", "c"):
        cache.apply("pods", "ADDED", pod(name, {"app": name}))
    cache.apply("workloads", "ADDED", workload("web", {"app": "a"}))
    heard: list[tuple[str, str]] = []
    cache.subscribe(lambda kind, key: heard.append((kind, key)))
    cache.apply("workloads", "MODIFIED", workload("web", {"app": "b"}))
    assert heard == [("workloads", "ns/web"), ("pods", "ns/a"), ("pods", "ns/b")]
    assert names(cache.pods_of_workload("ns/web")) == ["b"]


def test_a_workload_without_a_selector_adopts_nobody() -> None:
    cache = ObjectCache()
    cache.apply("pods", "ADDED", pod("a", {"app": "web"}))
    for labels in (None, {}):
        cache.apply("workloads", "ADDED", workload("web", labels))
        assert cache.pods_of_workload("ns/web") == []


def test_of_two_workloads_that_select_a_pod_the_first_by_name_has_it() -> None:
    cache = ObjectCache()
    for name in ("zoo", "ant"):
        cache.apply("workloads", "ADDED", workload(name, {"app": "web"}))
    cache.apply("pods", "ADDED", pod("a", {"app": "web"}))
    assert cache.workload_of("ns/a") == "ns/ant"


def test_nothing_counts_as_synced_before_every_kind_was_listed() -> None:
    cache = ObjectCache()
    for kind in KINDS[:-1]:
        cache.mark_synced(kind)
    assert not cache.synced
    assert cache.missing() == [KINDS[-1]]
    cache.mark_synced(KINDS[-1])
    assert cache.synced


def test_no_namespace_is_gone_before_the_namespaces_were_listed() -> None:
    cache = ObjectCache()
    assert not cache.is_gone("ns")
    cache.apply("namespaces", "ADDED", NamespaceObject(metadata=Metadata(name="ns")))
    cache.mark_synced("namespaces")
    assert [cache.is_gone(name) for name in ("ns", "other")] == [False, True]


def test_a_first_list_gives_all_pods_to_their_workloads_and_a_later_one_leaves_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_cache, "SETTLE_SECONDS", 0.0)
    cache = ObjectCache()
    for number in range(10):
        cache.apply("pods", "ADDED", pod(f"p{number}", {"app": f"{number % 2}"}))
    cache.apply("workloads", "ADDED", workload("web", {"app": "0"}))
    for kind in KINDS:
        cache.mark_synced(kind)
    assert len(cache.pods_of_workload("ns/web")) == 5
    cache.apply("workloads", "MODIFIED", workload("web", {"app": "1"}))
    cache.mark_synced("workloads")
    assert cache.settle(), "pods wait for their turn"


def test_a_pod_that_is_gone_is_not_looked_at_for_a_new_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "SETTLE_SECONDS", 0.0)
    cache = ObjectCache()
    for name in ("a", "b", "c"):
        cache.apply("pods", "ADDED", pod(name))
    for name in ("a", "b"):
        cache.apply("pods", "DELETED", pod(name))
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    assert not cache.settle(), "one pod, and one turn went with the Workload"
    assert not cache.quarantine


def test_a_new_selector_finds_the_pods_that_stay_when_another_goes() -> None:
    cache = ObjectCache()
    for name in ("a", "b"):
        cache.apply("pods", "ADDED", pod(name, {"app": "web"}))
    cache.apply("pods", "DELETED", pod("a", {"app": "web"}))
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    assert names(cache.pods_of_workload("ns/web")) == ["b"]


def test_an_owner_goes_before_a_selector_and_a_pod_that_is_gone_belongs_to_no_workload() -> None:
    cache = ObjectCache()
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    by = {**owner("api"), "kind": "Workload"}
    owned = pod_object("owned", labels={"app": "web"}, namespace="ns", ownerReferences=[by])
    for one in (owned, pod("selected", {"app": "web"})):
        cache.apply("pods", "ADDED", one)
    assert [cache.workload_of("ns/owned"), cache.workload_for(owned)] == ["ns/api", "ns/api"]
    assert names(cache.pods_of_workload("ns/web")) == ["selected"]
    cache.apply("pods", "DELETED", pod("selected", {"app": "web"}))
    assert (cache.pods_of_workload("ns/web"), cache.workload_of("ns/selected")) == ([], None)
    assert not cache.quarantine


def test_a_pod_with_our_finalizer_is_kept_for_its_job_or_the_job_that_its_label_names() -> None:
    cache = ObjectCache()
    for name, labels, owners in (("a", {}, [owner("j")]), ("b", {JOB_LABEL: "k"}, []), ("c", {}, [])):
        kept = pod_object(name, labels=labels, namespace="ns", finalizers=[TRACKING_FINALIZER], ownerReferences=owners)
        cache.apply("pods", "ADDED", kept)
    cache.apply("pods", "ADDED", pod("d", job="j"))
    assert {key: names(cache.pods_kept_for(key)) for key in cache.keepers()} == {
        "ns/j": ["a"],
        "ns/k": ["b"],
        "ns/": ["c"],
    }
    assert cache.keeper_of("ns/d") is None


def test_what_is_quarantined_is_so_at_its_version_until_it_changes() -> None:
    cache = ObjectCache()
    cache.apply("pods", "ADDED", pod_object("a", namespace="ns", uid="u", resourceVersion="7"))
    for key in ("ns/a", "ns/unknown"):
        cache.quarantine_object("pods", key, "a test", ValueError("odd"))
    assert [(one.uid, one.version) for one in cache.quarantine] == [("u", "7"), ("", "")]
    cache.apply("pods", "MODIFIED", pod_object("a", namespace="ns", uid="u", resourceVersion="8"))
    assert cache.quarantine.get("pods", "ns/a") is None


def test_a_copy_has_the_objects_and_their_owners_of_the_moment() -> None:
    cache = ObjectCache()
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    cache.apply("pods", "ADDED", pod("a", {"app": "web"}, job="j"))
    copy = cache.copied()
    cache.apply("pods", "DELETED", pod("a"))
    assert (list(copy.pods), copy.job_of("ns/a"), copy.workload_of("ns/a")) == (["ns/a"], "ns/j", "ns/web")


def test_pods_may_claim_the_class_that_their_namespace_allows() -> None:
    cache = ObjectCache()
    for name, labels in (("a", {MAX_CLASS_LABEL: "batch"}), ("b", {MAX_CLASS_LABEL: "odd"}), ("c", {})):
        cache.apply("namespaces", "ADDED", NamespaceObject(metadata=Metadata(name=name, labels=labels)))
    cache.max_class_without_label = "gratis"
    assert [cache.max_class_of(name) for name in "abcd"] == ["batch", "gratis", "gratis", "gratis"]


def test_each_list_of_a_kind_is_heard_of() -> None:
    cache = ObjectCache()
    heard: list[tuple[str, str]] = []
    cache.subscribe(lambda kind, key: heard.append((kind, key)))
    cache.mark_synced("pods")
    cache.mark_synced("podgroups")
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
    cache = ObjectCache()
    for kind, (change, name), label, job in steps:
        labels = {"app": label} if label else None
        item: Any = pod(name, labels, job) if kind == "pods" else workload(f"w{name}", labels)
        cache.apply(kind, change, item)
    while cache.settle():  # a busy machine may leave pods for a later turn
        pass
    for key, one in cache.pods.items():
        owner = next((o.name for o in one.metadata.owner_references), None)
        assert cache.job_of(key) == (f"ns/{owner}" if owner else None)
        wanted = min(
            (k for k, w in cache.workloads.items() if selects(read_selector(w.spec), one.metadata.labels)),
            default=None,
        )
        assert cache.workload_of(key) == wanted
    for key in ("ns/j", "ns/k"):
        assert {key_of(p.metadata) for p in cache.pods_of_job(key)} == {k for k in cache.pods if cache.job_of(k) == key}
    for key in [f"ns/w{name}" for name in "abc"]:
        found = {key_of(p.metadata) for p in cache.pods_of_workload(key)}
        assert found == {k for k in cache.pods if cache.workload_of(k) == key}


def test_a_selector_that_concerns_many_pods_is_followed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "SETTLE_SECONDS", 0.0)
    cache = ObjectCache()
    for number in range(100):
        cache.apply("pods", "ADDED", pod(f"p{number}", {"app": "web"}))
    heard: list[str] = []
    cache.subscribe(lambda kind, key: heard.append(key) if kind == "pods" else None)
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    assert len(heard) == 1, "one turn of no time is one pod"
    cache.apply("pods", "DELETED", pod("p50", {"app": "web"}))
    turns = 1
    while cache.settle():
        turns += 1
    assert turns == 99
    assert len(cache.pods_of_workload("ns/web")) == 99


def test_a_pod_that_trips_the_indexes_is_quarantined_and_the_others_change_hands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = ObjectCache()
    for name in ("a", "b", "c"):
        cache.apply("pods", "ADDED", pod(name, {"app": "web"}))
    by_selector = cache._workload_by_selector

    def trips(namespace: str, key: str, found: PodObject | None) -> str | None:
        if key == "ns/b":
            raise OverflowError("too large")
        return by_selector(namespace, key, found)

    monkeypatch.setattr(cache, "_workload_by_selector", trips)
    cache.apply("workloads", "ADDED", workload("web", {"app": "web"}))
    while cache.settle():
        pass
    assert names(cache.pods_of_workload("ns/web")) == ["a", "c"]
    assert cache.quarantine.get("pods", "ns/b") is not None


@pytest.mark.parametrize("kind", ["pods", "workloads"])
def test_a_change_that_trips_the_indexes_is_quarantined_and_heard_of(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, heard = ObjectCache(), list[tuple[Kind, str]]()
    cache.subscribe(lambda *change: heard.append(change))

    def trips(*_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(cache, "_index" if kind == "pods" else "_reselect", trips)
    cache.apply(kind, "ADDED", pod("b") if kind == "pods" else workload("b", {"app": "web"}))
    entry = cache.quarantine.get(kind, "ns/b")
    assert entry is not None
    assert (entry.part, entry.fault) == ("indexes of the cache", "too large")
    assert heard == [(kind, "ns/b")]


def test_a_pod_event_costs_the_same_however_many_long_selectors_its_namespace_has() -> None:
    cache = ObjectCache()
    absent = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(63)]
    for number in range(300):
        never = {"key": f"never{number}", "operator": "Exists"}
        spec = {"selector": {"matchExpressions": [*absent, never]}}
        body = workload_manifest(f"w{number}", namespace="ns", **spec)
        cache.apply("workloads", "ADDED", msgspec.convert(body, CustomObject))
    index = cache._selectors["ns"]._index
    for number in range(20):
        cache.apply("pods", "ADDED", pod(f"p{number}", {"app": f"a{number % 2}"}))
    assert index.pairs == 0, "no pod has a label that one of them requires"
    assert cache.workload_of("ns/p0") is None


def test_a_changed_selector_gives_its_pods_to_the_next_by_name() -> None:
    cache = ObjectCache()
    for name in range(3):
        cache.apply("pods", "ADDED", pod(f"p{name}", {"app": "web", "number": str(name)}))
    for name in ("bee", "ant"):
        cache.apply("workloads", "ADDED", workload(name, {"app": "web"}))
    assert len(cache.pods_of_workload("ns/ant")) == 3
    cache.apply("workloads", "MODIFIED", workload("ant", {"number": "1"}))
    assert names(cache.pods_of_workload("ns/ant")) == ["p1"]
    assert sorted(names(cache.pods_of_workload("ns/bee"))) == ["p0", "p2"]
    cache.apply("workloads", "DELETED", workload("bee", {"app": "web"}))
    assert cache.workload_of("ns/p0") is None
