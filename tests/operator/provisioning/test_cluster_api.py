"""Machines of Cluster API that are taken away: the one whose node is free, once, whatever gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from machine_fleet import GROUP, HERE, TARGET, Fleet, Shelf
from official_calls import around_scaling
from pydantic import ValidationError
from repository import ROOT
from rights import rules

from cotide_core.errors import ClusterError, InputError
from cotide_kube.answers import ApiError
from cotide_operator.config.provisioning_settings import ActuatorSettings
from cotide_operator.provisioning.actuators import ScaleSubresource
from cotide_operator.provisioning.cluster_api import DELETE, MachineRemoval, Removal, machine_of
from cotide_sim.apiserver.testing import server_in_thread


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with server_in_thread() as server:
        yield Fleet(server, tmp_path, 4)


def test_the_machine_of_a_free_node_is_marked_and_goes_at_a_later_look(fleet: Fleet) -> None:
    assert fleet.remove(n1="m1") == Removal(frozenset(), marked=("n1",))
    assert (fleet.replicas, fleet.machines()["m1"]) == (4, "cotide"), "Cluster API must have seen the mark first"
    assert fleet.remove(n1="m1") == Removal(frozenset({"n1"}), lowered=3)
    fleet.settle()
    assert fleet.deleted == ["m1"]
    assert fleet.remove(n1="m1") == Removal(frozenset({"n1"})), "it is gone, the node's object may be there still"
    assert fleet.replicas == 3


def test_several_go_at_once(fleet: Fleet) -> None:
    fleet.remove(n0="m0", n2="m2")
    assert fleet.remove(n0="m0", n2="m2").lowered == 2
    fleet.settle()
    assert sorted(fleet.deleted) == ["m0", "m2"]


def test_replicas_are_lowered_once_while_the_machine_is_still_there(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    fleet.remove(n1="m1")
    for _ in range(3):  # Cluster API is slow; another operator would see the same
        assert fleet.remove(n1="m1") == Removal(frozenset({"n1"}))
    assert fleet.replicas == 3


def test_of_two_who_write_at_once_one_is_refused(fleet: Fleet) -> None:
    def another_comes_first(send: Callable[[], Any]) -> Any:
        fleet.call("PATCH", TARGET, {"spec": {"replicas": 6}})
        return send()

    fleet.remove(n1="m1")
    around_scaling(fleet.api, another_comes_first)
    with pytest.raises(ApiError, match="409"):
        fleet.remove(n1="m1")
    assert fleet.replicas == 6


@pytest.mark.parametrize("replicas", [3, 5])
def test_while_machines_come_or_go_nothing_is_lowered(fleet: Fleet, replicas: int) -> None:
    """Four Machines where five are wanted: one more may come, and with it one too many would go."""
    fleet.remove(n1="m1", n2="m2")
    fleet.call("PATCH", TARGET, {"spec": {"replicas": replicas}})
    assert fleet.remove(n1="m1", n2="m2").lowered is None
    assert fleet.replicas == replicas


def test_what_cluster_api_has_not_seen_yet_is_waited_for(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    fleet.call("PATCH", TARGET, {"spec": {"paused": True}})  # of another generation, for as many replicas
    assert fleet.remove(n1="m1").lowered is None
    fleet.settle()
    assert fleet.remove(n1="m1").lowered == 3


def test_a_mark_goes_when_the_node_is_wanted_again_and_no_other_falls_with_it(fleet: Fleet) -> None:
    fleet.remove(n1="m1", n2="m2")
    assert fleet.remove(n2="m2").lowered is None, "Cluster API may see both marks still"
    assert fleet.machines() == {"m0": None, "m1": None, "m2": "cotide", "m3": None}
    assert fleet.remove(n2="m2").lowered == 3
    fleet.settle()
    assert fleet.deleted == ["m2"]


def test_a_mark_stays_while_there_are_too_many_machines_else_a_busy_one_would_go(fleet: Fleet) -> None:
    """Somebody opened the node after replicas were lowered for it: its Machine is the one that goes all the same."""
    fleet.remove(n1="m1")
    assert fleet.remove(n1="m1").lowered == 3
    assert fleet.remove().is_clean is False
    assert fleet.machines()["m1"] == "cotide"
    fleet.settle()
    assert fleet.deleted == ["m1"]


def test_marks_are_taken_off_when_no_node_is_to_go(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    assert fleet.remove() == Removal(frozenset())
    assert set(fleet.machines().values()) == {None}


def test_beside_somebody_elses_mark_nothing_is_lowered(fleet: Fleet) -> None:
    fleet.remove(n1="m1")
    fleet.call("PATCH", f"{HERE}/machines/m3", {"metadata": {"annotations": {DELETE: "yes"}}})
    assert "Machine m3 has the annotation" in fleet.remove(n1="m1").refused
    assert (fleet.replicas, fleet.machines()["m3"]) == (4, "yes")


def test_a_machine_of_another_deployment_is_left_alone(fleet: Fleet) -> None:
    fleet.add("other", "large")
    assert fleet.remove(n1="m1", n9="other") == Removal(frozenset(), marked=("n1",), strange=("other",))
    assert fleet.machines()["other"] is None


def test_of_machines_of_two_sets_none_goes_since_the_older_set_is_lowered_whichever_is_marked(fleet: Fleet) -> None:
    fleet.call("PATCH", TARGET, {"spec": {"replicas": 5}})
    fleet.add("m4", labels={f"{GROUP}/set-name": "newer"})
    fleet.settle()
    for _ in range(2):
        assert "its Machines are of 2 MachineSets, as in a roll-out" in fleet.remove(n4="m4").refused
    assert (fleet.replicas, fleet.machines()["m4"]) == (5, None)
    for name in ("m0", "m1", "m2", "m3"):
        fleet.call("DELETE", f"{HERE}/machines/{name}")
    fleet.call("PATCH", TARGET, {"spec": {"replicas": 1}})
    fleet.settle()
    assert fleet.remove(n4="m4").marked == ("n4",)


def test_where_none_is_taken_away_it_is_told_all_the_same_which_are_going(fleet: Fleet) -> None:
    """A new leader would else count the machine that goes among the replicas, and have it made again."""
    fleet.call("DELETE", f"{HERE}/machines/m2")
    fleet.call("PATCH", f"{HERE}/machines/m3", {"metadata": {"annotations": {DELETE: "yes"}}})
    found = fleet.remove(n1="m1", n2="m2")
    assert (found.leaving, bool(found.refused)) == (frozenset({"n2"}), True)


@pytest.mark.parametrize(
    ("path", "odd"),
    [
        (f"{HERE}/machines", {"items": [{"metadata": {"name": "m1", "annotations": ["x"]}}]}),
        (f"{HERE}/machines", {"items": [{"metadata": {"name": "m1", "labels": {"a": 1}}}]}),
        (f"{HERE}/machines", {"items": [5]}),
        (f"{HERE}/machines", {"items": [{"metadata": {}}]}),
        (f"{HERE}/machines", {}),
        (TARGET, {"metadata": {"name": "small"}, "spec": {"replicas": 4}}),
        (TARGET, {"metadata": {"name": "small", "resourceVersion": "1"}, "spec": {"replicas": "4"}}),
        (TARGET, {"metadata": {"name": "small", "resourceVersion": "1"}, "spec": ["x"]}),
    ],
)
def test_an_answer_that_is_odd_inside_takes_nothing_away(fleet: Fleet, path: str, odd: dict[str, Any]) -> None:
    asked = fleet._scales.call
    fleet._scales.call = (  # type: ignore[method-assign]
        lambda method, where, *rest, **more: odd if where == path else asked(method, where, *rest, **more)
    )
    for _ in range(2):
        with pytest.raises(ClusterError, match="is not what an API server sends"):
            fleet.remove(n1="m1")
    fleet._scales.call = asked  # type: ignore[method-assign]
    assert (fleet.replicas, fleet.machines()["m1"]) == (4, None)


class Noting(ScaleSubresource):
    """Keeps which rights are used: resource and verb."""

    def __init__(self, api: Any) -> None:
        super().__init__(api, {"a": TARGET}, 20.0)
        self.used: set[tuple[str, str]] = set()

    def call(self, method: str, path: str, *rest: Any, **more: Any) -> dict[str, Any]:
        kind, *named = path.removeprefix(f"{HERE}/").split("/")
        resource = "/".join([kind, *named[1:]])
        self.used.add((resource, "list" if not named else method.lower()))
        return super().call(method, path, *rest, **more)


def test_what_is_asked_is_what_deploy_provisioning_grants(fleet: Fleet) -> None:
    fleet.add("other", "large")
    noting = Noting(fleet.api)
    removal = MachineRemoval(noting, Shelf())
    for machines_of in ({"n1": "m1", "n9": "other"}, {"n1": "m1"}, {}):
        asyncio.run(removal.remove(TARGET, machines_of))
    asyncio.run(noting.raise_to("a", 9))
    files = [ROOT / "deploy" / name / "rbac.yaml" for name in ("provisioning", "provisioning-scales-down")]
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    granted = {right[1:3] for document in documents for right in rules(document) if right[0] == GROUP}
    assert noting.used == granted


def annotated(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "annotations": {f"{GROUP}/{name}": value for name, value in annotations.items()}}}


def test_a_node_names_its_machine(fleet: Fleet) -> None:
    assert machine_of(annotated(**{"machine": "m1", "cluster-namespace": "fleet"}), TARGET) == "m1"


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, "node n has no annotation"),
        ({"machine": "m1"}, "the Machine of node n is in None"),
        ({"machine": "m1", "cluster-namespace": "other"}, "the Machine of node n is in other"),
    ],
)
def test_a_node_that_names_none_or_one_elsewhere_stays(named: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        machine_of(annotated(**named), TARGET)


@pytest.mark.parametrize(
    ("actuator", "words"),
    [
        ({"command": ["x"], "scalesDown": True}, "scalesDown needs scales"),
        ({"scales": {"a": TARGET, "b": TARGET}, "scalesDown": True}, "two machine types name one MachineDeployment"),
        ({"scales": {"a": "/apis/apps/v1/namespaces/d/deployments/x"}, "scalesDown": True}, "no MachineDeployment"),
    ],
)
def test_only_replicas_of_machine_deployments_can_fall(actuator: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ActuatorSettings.model_validate(actuator)
