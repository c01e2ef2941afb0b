"""A pod that is odd inside ends a campaign in a sentence, and keeps none of our own from being deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_server import ObjectServer, object_server
from odd_objects import POD, TIME, WORLD, spoilt

from cotide_core.errors import ClusterError
from cotide_lab.profile.cluster_jobs import ClusterMachine, _lasted

ENDED = ("status", "containerStatuses", 0, "state", "terminated")


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        running.objects = dict(WORLD)
        yield running


@pytest.fixture
def machine(server: ObjectServer, tmp_path: Path) -> ClusterMachine:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    return ClusterMachine("n", "default", "i", kubeconfig=str(kubeconfig))


def test_an_odd_pod_of_the_node_may_be_batch_of_any_type(server: ObjectServer, machine: ClusterMachine) -> None:
    assert [pod["metadata"]["name"] for pod in machine.pods_of_node()] == ["a"]
    server.objects["/api/v1/pods"] = spoilt(POD, ("metadata", "labels"), ["batch"])
    with pytest.raises(ClusterError, match=r"^pod default/a is not what an API server sends: .*labels"):
        machine.pods_of_node()


def test_an_odd_pod_of_ours_is_the_fault_of_the_window_and_is_deleted_all_the_same(
    server: ObjectServer, machine: ClusterMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.objects["/api/v1/pods"] = spoilt(POD, ENDED, [5])
    deleted: list[str] = []
    monkeypatch.setattr(machine, "_delete", deleted.append)
    with machine.running((), ()) as window:
        pass
    assert window.fault.startswith("pod default/a is not what an API server sends: ")
    assert deleted == ["a"]


@pytest.mark.parametrize("ended", ["yesterday", "2026-11-20T13:00:09", "x" * 10_000])
def test_a_time_that_is_none_says_nothing_of_how_long_a_job_ran(ended: Any) -> None:
    assert _lasted(spoilt(POD, (*ENDED, "finishedAt"), "2026-11-20T13:00:09Z")) == 9.0
    assert _lasted(spoilt(POD, (*ENDED, "finishedAt"), ended)) is None
    assert _lasted(spoilt(POD, (*ENDED, "finishedAt"), TIME)) is None, "no whole second"
