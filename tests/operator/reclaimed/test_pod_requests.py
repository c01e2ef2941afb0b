# ruff: noqa: E501 - tables of cases read best with one case a line
"""Plain requests become reclaimed ones: a table of cases, each named for the rule it shows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU, RECLAIMED_MEMORY
from cotide_operator.reclaimed.pod_requests import names_reclaimed, reclaim_patch, reclaimed

GI = 1024**3
Json = dict[str, Any]


def spec(*resources: Any, **more: Any) -> Json:
    return {"containers": [{"name": f"c{n}", "resources": resource} for n, resource in enumerate(resources)], **more}


def asking(cpu: str | None = None, memory: str | None = None, **others: str) -> Json:
    """Resources whose requests equal their limits, as extended resources need them."""
    amounts = {RECLAIMED_CPU: cpu, RECLAIMED_MEMORY: memory}
    given = {**others, **{name: amount for name, amount in amounts.items() if amount is not None}}
    return {"limits": given, "requests": given}


TRANSLATED = [
    (
        "cpu is counted in millicores and memory in bytes",
        {"requests": {"cpu": "1500m", "memory": "1Gi"}},
        asking("1500", str(GI)),
    ),
    ("whole cores are a thousand millicores each", {"requests": {"cpu": 2}}, asking("2000")),
    ("a fraction is rounded up: nothing is promised twice", {"requests": {"cpu": "0.0005", "memory": "1.5"}}, asking("1", "2")),
    (
        "the request counts where both are given; a limit above it is given up",
        {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
        asking("1000"),
    ),
    ("a limit stands for a request that is not given", {"limits": {"memory": "1Ki"}}, asking(None, "1024")),
    ("zero asks for nothing", {"requests": {"cpu": "0", "memory": "1Ki"}}, asking(None, "1024")),
    ("nothing but zero leaves nothing", {"requests": {"cpu": "0"}}, {}),
    (
        "other resources stay as they are",
        {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}, "claims": [{"name": "x"}]},
        {
            "requests": {RECLAIMED_CPU: "1000", "ephemeral-storage": "1Gi"},
            "limits": {RECLAIMED_CPU: "1000", "nvidia.com/gpu": "1"},
            "claims": [{"name": "x"}],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "expected"), [case[1:] for case in TRANSLATED], ids=[case[0] for case in TRANSLATED]
)
def test_a_container_asks_for_reclaimed_capacity_instead(resources: Json, expected: Json) -> None:
    assert reclaimed(spec(resources))["containers"][0]["resources"] == expected


def test_init_containers_and_sidecars_are_translated_too_so_that_no_plain_request_is_left() -> None:
    plain = {"requests": {"cpu": "1", "memory": "1Ki"}}
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": plain}
    changed = reclaimed(spec(plain, initContainers=[{"name": "i", "resources": plain}, sidecar]))
    every = [one["resources"] for one in (*changed["containers"], *changed["initContainers"])]
    assert every == [asking("1000", "1024")] * 3
    assert changed["initContainers"][1]["restartPolicy"] == "Always"


UNTOUCHED = [
    ("a pod that names reclaimed capacity itself knows what it does", spec(asking("1000"), {"requests": {"cpu": "1"}})),
    (
        "pod-level resources take no extended resource",
        spec({"requests": {"cpu": "1"}}, resources={"requests": {"cpu": "2"}}),
    ),
    ("a pod that asks for nothing", spec({}, None)),
    ("a pod that asks for other things only", spec({"requests": {"ephemeral-storage": "1Gi"}})),
    ("resources that are no mapping are for the API server to refuse", spec("two cores", {"requests": ["cpu"]})),
    ("containers that are no list", {"containers": {"name": "c"}, "initContainers": ["c"]}),
]


@pytest.mark.parametrize("given", [case[1] for case in UNTOUCHED], ids=[case[0] for case in UNTOUCHED])
def test_what_can_not_or_need_not_be_translated_stays(given: Json) -> None:
    assert reclaimed(given) == given
    assert reclaim_patch({"spec": given}) == []


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        ("many", "'many' is not a quantity"),
        ("-1", "'-1' is not an amount that a node could have"),
        ("1e40", "is not an amount that a node could have"),
        ("1e99999999", "is beyond 2^53"),
        (None, "None is not a quantity"),
        ([1], "[1] is not a quantity"),
    ],
)  # fmt: skip
def test_an_amount_that_can_not_be_read_is_told_with_its_field(quantity: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        reclaimed(spec({}, {"limits": {"memory": quantity}}))
    assert str(caught.value).startswith("spec.containers[1].resources.limits.memory: ")
    assert message in str(caught.value)


def test_what_comes_in_is_never_changed() -> None:
    given = spec({"requests": {"cpu": "1"}}, initContainers=[{"name": "i", "resources": {"limits": {"memory": "1Ki"}}}])
    before = copy.deepcopy(given)
    assert reclaimed(given) != before
    assert given == before


QUANTITIES = st.sampled_from(["0", "1", "250m", "0.1", "3Gi", "1e3", 2, 1.5])
RESOURCES = st.dictionaries(
    st.sampled_from(["requests", "limits"]),
    st.dictionaries(st.sampled_from([CPU, MEMORY, RECLAIMED_CPU, "ephemeral-storage"]), QUANTITIES),
)
SPECS = st.builds(
    lambda containers, inits: spec(*containers, initContainers=[{"name": "i", "resources": init} for init in inits]),
    st.lists(RESOURCES, min_size=1, max_size=3),
    st.lists(RESOURCES, max_size=2),
)


@given(given=SPECS)
def test_no_pod_asks_for_some_of_each_and_doing_it_twice_changes_nothing_more(given: Json) -> None:
    changed = reclaimed(given)
    if names_reclaimed(given):
        assert changed == given
    else:
        for one in (*changed["containers"], *changed["initContainers"]):
            limits, requests = (one["resources"].get(kind, {}) for kind in ("limits", "requests"))
            assert not {CPU, MEMORY} & {*limits, *requests}
            assert all(limits.get(name) == requests.get(name) for name in (RECLAIMED_CPU, RECLAIMED_MEMORY))
    assert reclaimed(changed) == changed


@given(given=SPECS)
def test_the_patch_makes_what_the_function_makes(given: Json) -> None:
    patched = copy.deepcopy(given)
    for step in reclaim_patch({"spec": given}):
        assert step["op"] == "replace"
        _, _, name, index, last = step["path"].split("/")
        patched[name][int(index)][last] = step["value"]
    assert patched == reclaimed(given)
