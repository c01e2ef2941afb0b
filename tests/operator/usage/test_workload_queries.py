"""Which query is sent for a Workload: the administrator's, or its own where that is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_stand_in import put_workload

from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.config.metric_settings import WorkloadQueriesSettings
from cotide_operator.usage.workload_queries import NAMED_PODS, Asked, WorkloadQueries, WorkloadQuery, pod_pattern

RPS = WorkloadQuery("shop/web", "shop", "rpsQuery")
FILLED = '{__name__="rate",namespace="shop",pod=~"web-0|web-1"}'


def asked(settings: dict[str, Any], own: str = "", pods: int = 2) -> Asked:
    cache = ObjectCache()
    put_workload(cache, "shop/web", pods=pods, **({"rpsQuery": own} if own else {}))
    queries = WorkloadQueries(WorkloadQueriesSettings(**settings), cache)
    return queries.make(RPS)


def test_a_template_gets_the_workloads_namespace_and_pods() -> None:
    found = asked({"rps": "rate"})
    assert (found.text, found.is_selector, found.refused) == (FILLED, True, "")


def test_the_labels_have_the_names_that_they_have_in_this_prometheus() -> None:
    found = asked({"rps": "rate", "namespace_label": "exported_namespace", "pod_label": "exported_pod"}, pods=1)
    assert found.text == '{__name__="rate",exported_namespace="shop",exported_pod=~"web-0"}'


def test_without_pods_nothing_is_asked() -> None:
    assert asked({"rps": "rate"}, pods=0).text == ""


def test_a_query_of_ones_own_is_refused_by_default_and_the_template_asked_instead() -> None:
    found = asked({"rps": "rate"}, own="secret")
    assert found.text == FILLED
    assert "spec.qos.rpsQuery: Workloads of namespace shop may not bring queries of their own" in found.refused
    assert asked({}, own="secret").text == ""


@pytest.mark.parametrize("space", ["shop", "*"])
def test_where_they_are_allowed_own_queries_get_the_namespace(space: str) -> None:
    found = asked({"rps": "rate", "free": {space: "enforced"}}, own="sum by (pod) (mine)")
    assert (found.text, found.refused) == ('sum by (pod) ({__name__="mine",namespace="shop"})', "")


def test_a_freed_query_that_asks_for_somebody_elses_series_is_refused() -> None:
    found = asked({"free": {"shop": "enforced"}}, own='mine{namespace="bank"}')
    assert found.text == ""
    assert 'it asks for namespace="bank"; only namespace="shop" is allowed' in found.refused


def test_an_unrestricted_namespace_asks_as_it_writes() -> None:
    assert asked({"free": {"shop": "unrestricted"}}, own="any offset 5m").text == "any offset 5m"
    assert "4096 are allowed" in asked({"free": {"shop": "unrestricted"}}, own="x" * 5000).refused


def test_a_query_is_made_again_when_the_pods_or_the_spec_change_and_forgotten_with_the_workload() -> None:
    cache = ObjectCache()
    put_workload(cache, "shop/web", pods=1)
    queries = WorkloadQueries(WorkloadQueriesSettings(rps="rate"), cache)
    assert queries.by_namespace() == {"shop": [RPS]}
    first = queries.make(RPS)
    assert queries.make(RPS) is first
    put_workload(cache, "shop/web", pods=2)
    assert queries.make(RPS).text == FILLED
    cache.apply("workloads", "DELETED", cache.workloads["shop/web"])
    assert queries.make(RPS).text == ""
    assert queries.by_namespace() == {}
    assert queries._made == {}


def test_a_pattern_names_pods_literally_and_of_very_many_only_what_they_begin_with() -> None:
    assert pod_pattern(["a.b-0", "a", 'no"name', "Upper"]) == "a[.]b-0|a"
    assert pod_pattern(f"a.web-{index}" for index in range(NAMED_PODS + 1)) == "a[.]web-.*"
