"""Nodes of MachineDeployments go as nodes of an actuator do: freed, handed over, and asked about once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from manifests import pod_manifest
from provisioner_scene import ORIGIN, Scene

from cotide_core.consolidation.removal.watching import Mark
from cotide_core.errors import ClusterError
from cotide_operator.provisioning import controller
from cotide_operator.provisioning.cluster_api import Removal

PATH = "/apis/cluster.x-k8s.io/v1beta1/namespaces/fleet/machinedeployments/small"
ACTUATOR = {"actuator": {"scales": {"a": PATH}, "scalesDown": True, "askAgainSeconds": 1}}
OURS = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": "fleet"}


class Machines:
    """Stands for both that write to Cluster API: keeps what was asked, and answers as a test says."""

    def __init__(self) -> None:
        self.paths: Mapping[str, str] = {"a": PATH}
        self.removed: list[dict[str, str]] = []
        self.raised: list[int] = []
        self.struck = 0
        self.answer: Removal | ClusterError = Removal(frozenset())

    async def remove(self, path: str, machines: Mapping[str, str]) -> Removal:
        assert path == PATH
        self.removed.append(dict(machines))
        if isinstance(self.answer, ClusterError):
            raise self.answer
        return self.answer

    async def announced(self, path: str) -> None:
        assert path == PATH
        self.struck += 1

    async def raise_to(self, kind: str, replicas: int) -> bool:
        self.raised.append(replicas)
        return True


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(controller, "REMOVAL_SECONDS", 0.0)
    made = Scene(section=ACTUATOR)
    made.provisioner._ordering = None
    return made


def machines_of(scene: Scene) -> Machines:
    made: Any = Machines()
    scene.provisioner._scales, scene.provisioner._removal = made, made
    scene.annotations = OURS
    return made  # type: ignore[no-any-return]  # stands for two


async def test_a_free_node_that_is_not_wanted_is_handed_over(scene: Scene) -> None:
    machines_of(scene)
    scene.has("n", free=Mark.FREED)
    scene.runs(1)
    scene.frees.since = ORIGIN
    await scene.look(2)
    assert ("hand over", "free") in scene.frees.did


async def test_without_leave_to_lower_replicas_it_stays_cordoned_for_whoever_takes_it() -> None:
    scene = Scene(section={"actuator": {"scales": {"a": PATH}}})
    scene.provisioner._ordering = None
    machines = machines_of(scene)
    scene.provisioner._removal = None
    scene.has("n", free=Mark.FREED, gone=Mark.STOPPING)
    scene.runs(1)
    scene.frees.since = ORIGIN
    await scene.look(2)
    assert (scene.frees.did, machines.removed) == ([], [])


async def test_the_machine_of_a_handed_over_node_is_taken_away_unless_a_pod_is_on_it(scene: Scene) -> None:
    machines = machines_of(scene)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    scene.listed = [pod_manifest("late", namespace="d", uid="l")]
    await scene.look(2)
    assert {} in machines.removed
    assert {"gone": "m"} not in machines.removed
    assert "StopHeldUp" in scene.instructions
    scene.listed = []
    await scene.look()
    assert machines.removed[-1] == {"gone": "m"}


async def test_what_came_of_it_is_told(scene: Scene) -> None:
    machines = machines_of(scene)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    machines.answer = Removal(frozenset(), marked=("gone",))
    await scene.look(2)
    machines.answer = Removal(frozenset({"gone"}), lowered=1)
    await scene.look()
    assert [instruction for instruction in scene.instructions if instruction in ("MachineMarked", "ReplicasLowered")][
        -1
    ] == "ReplicasLowered"
    assert "MachineMarked" in scene.instructions
    assert machines.struck == 1


async def test_a_node_without_a_machine_keeps_no_other_from_going(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    machines = machines_of(scene)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    scene.annotations = {}
    await scene.look(2)
    assert {"gone": "m"} not in machines.removed
    assert "node gone has no annotation cluster.x-k8s.io/machine" in caplog.text


async def test_marks_are_looked_for_once_where_no_node_is_to_go(scene: Scene) -> None:
    machines = machines_of(scene)
    scene.has("n")
    scene.runs(1)
    await scene.look(4)
    assert machines.removed == [{}]


@pytest.mark.parametrize(("leaving", "replicas"), [(frozenset[str](), 3), (frozenset({"gone"}), 2)])
async def test_a_machine_that_is_being_deleted_is_not_made_again(
    scene: Scene, leaving: frozenset[str], replicas: int
) -> None:
    """Two are wanted for six pods: beside one that is there and one that goes the replicas are two."""
    machines = machines_of(scene)
    machines.answer = Removal(leaving)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(6)
    await scene.look(4)
    assert machines.raised[-1] == replicas


async def test_a_new_leader_asks_which_machines_go_before_it_raises_replicas(scene: Scene) -> None:
    """The one before has lowered them for the machine that goes: counted among them, it would be made again."""
    machines = machines_of(scene)
    machines.answer = Removal(frozenset({"gone"}))
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(6)
    await scene.look(4)
    assert machines.raised
    assert set(machines.raised) == {2}


async def test_while_nobody_knows_which_machines_go_none_is_made_again_that_may_be_gone_from_the_replicas(
    scene: Scene,
) -> None:
    """Its lowering got no answer and was carried out: counted among the replicas, the machine would come again."""
    machines = machines_of(scene)
    machines.answer = ClusterError("no answer")
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(6)
    await scene.look(3)
    assert set(machines.raised) == {2}
    machines.answer = Removal(frozenset())
    await scene.look(2)
    assert machines.raised[-1] == 3, "it was not carried out"


async def test_why_no_machine_is_taken_away_is_said(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    machines = machines_of(scene)
    machines.answer = Removal(frozenset(), refused="Machine x has a mark")
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    await scene.look(2)
    assert f"machines of type a are removed later: {PATH}: Machine x has a mark" in caplog.text


@pytest.mark.parametrize("odd", [{"ownerReferences": [1]}, {"labels": ["a"]}, {"annotations": 5}])
async def test_a_pod_that_can_not_be_read_keeps_its_node_and_ends_no_look(scene: Scene, odd: dict[str, Any]) -> None:
    machines = machines_of(scene)
    scene.has("n", gone=Mark.STOPPING)
    scene.runs(1)
    scene.listed = [{"metadata": {"name": "p", "namespace": "d", "uid": "u", **odd}}]
    await scene.look(2)
    assert machines.removed[-1] == {}
    assert "StopHeldUp" in scene.instructions
    scene.listed = []
    await scene.look()
    assert machines.removed[-1] == {"gone": "m"}
