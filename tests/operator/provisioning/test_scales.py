"""Replicas of what makes nodes, by the official client: raised once, whoever else writes and whatever gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from official_calls import around_scaling
from urllib3.exceptions import ProtocolError

from cotide_core.errors import ClusterError
from cotide_kube.answers import ApiError
from cotide_kube.official import connect
from cotide_operator.leaderelection.lease import LeadershipLost
from cotide_operator.provisioning.actuators import ScaleSubresource
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.testing import ThreadedServer, server_in_thread

TARGET: Final = "/apis/apps/v1/namespaces/default/deployments/makes-nodes"
WITHIN: Final = 20.0


class Scene:
    """A Deployment of two replicas, and who raises it."""

    def __init__(self, server: ThreadedServer, folder: Path) -> None:
        from kubernetes import client

        self._server = server
        self.api = connect(str(server.write_kubeconfig(folder / "kubeconfig")), retries=False)
        self._apps = client.AppsV1Api(self.api)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "makes-nodes"}, "spec": spec}
        self._apps.create_namespaced_deployment("default", body)

    def scales(self, timeout_seconds: float = WITHIN) -> ScaleSubresource:
        return ScaleSubresource(self.api, {"a": TARGET, "b": f"{TARGET}-not"}, timeout_seconds)

    def raise_to(self, replicas: int, kind: str = "a", timeout_seconds: float = WITHIN) -> bool:
        return asyncio.run(self.scales(timeout_seconds).raise_to(kind, replicas))

    def replicas(self) -> int:
        return int(self._apps.read_namespaced_deployment("makes-nodes", "default").spec.replicas)

    def set(self, replicas: int) -> None:
        self._apps.patch_namespaced_deployment("makes-nodes", "default", {"spec": {"replicas": replicas}})

    def strike(self, **fault: Any) -> Fault:
        return self._server.call(lambda: self._server.server.faults.add(Fault(path="/scale$", **fault)))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with server_in_thread() as server:
        yield Scene(server, tmp_path)


def test_replicas_are_raised_and_never_lowered(scene: Scene) -> None:
    assert scene.raise_to(5) is True
    assert scene.raise_to(5) is False, "the same number twice"
    assert scene.raise_to(1) is False
    assert scene.replicas() == 5


def test_who_leads_no_more_reads_and_raises_nothing(scene: Scene) -> None:
    """By the official client, which does not know the operator's fence."""

    def lost() -> None:
        raise LeadershipLost("the lease may be another's by now")

    scales = ScaleSubresource(scene.api, {"a": TARGET}, WITHIN, lost)
    with pytest.raises(LeadershipLost):
        asyncio.run(scales.raise_to("a", 5))
    assert asyncio.run(scales.raise_to("a", 2)) is False
    assert scene.replicas() == 2


def test_an_object_that_is_not_there_is_told_with_its_path(scene: Scene) -> None:
    with pytest.raises(ApiError, match="makes-nodes-not/scale: 404"):
        scene.raise_to(5, "b")


def test_of_two_who_write_at_once_one_is_refused_and_reads_again_at_its_next_turn(scene: Scene) -> None:
    others = iter((3, 8))

    def another_comes_first(send: Callable[[], Any]) -> Any:
        scene.set(next(others))
        return send()

    around_scaling(scene.api, another_comes_first)
    with pytest.raises(ApiError, match="409"):
        scene.raise_to(5)
    assert scene.replicas() == 3, "what the other has written stays"
    with pytest.raises(ApiError, match="409"):
        scene.raise_to(5)
    assert scene.raise_to(5) is False, "the other wants more by now"
    assert scene.replicas() == 8


def test_a_request_that_arrives_twice_raises_once(scene: Scene) -> None:
    statuses = []

    def delivered_twice(send: Callable[[], Any]) -> Any:
        first, second = send(), send()
        statuses.extend((first.status, second.status))
        return first

    around_scaling(scene.api, delivered_twice)
    assert scene.raise_to(5) is True
    assert (statuses, scene.replicas()) == ([200, 409], 5)


def test_an_answer_that_is_lost_is_no_reason_to_raise_twice(scene: Scene) -> None:
    def lost(send: Callable[[], Any]) -> Any:
        send()
        raise ProtocolError("connection broken")

    around_scaling(scene.api, lost)
    with pytest.raises(ClusterError, match="no answer"):
        scene.raise_to(5)
    assert scene.replicas() == 5, "the server has carried out what it was sent"
    assert scene.raise_to(5) is False


def test_replicas_that_were_raised_without_an_answer_are_known_to_be_ours_once(scene: Scene) -> None:
    def lost(send: Callable[[], Any]) -> Any:
        send()
        raise ProtocolError("connection broken")

    around_scaling(scene.api, lost)
    scales = scene.scales()
    with pytest.raises(ClusterError, match="no answer"):
        asyncio.run(scales.raise_to("a", 5))
    assert [asyncio.run(scales.raise_to("a", 5)) for _ in range(2)] == [True, False]


def test_replicas_that_another_raised_after_a_lost_answer_are_not_taken_for_ours(scene: Scene) -> None:
    def lost(_: Callable[[], Any]) -> Any:
        raise ProtocolError("connection broken")

    around_scaling(scene.api, lost)
    scales = scene.scales()
    with pytest.raises(ClusterError, match="no answer"):
        asyncio.run(scales.raise_to("a", 5))
    scene.set(6)
    assert asyncio.run(scales.raise_to("a", 5)) is False


def test_a_server_that_does_not_answer_is_waited_for_once(scene: Scene) -> None:
    fault = scene.strike(method="GET", delay_seconds=3.0, count=-1)
    with pytest.raises(ClusterError, match="no answer"):
        scene.raise_to(5, timeout_seconds=0.3)
    # A server that has no time may not have seen it yet.
    assert fault.met <= 1, "its HTTP library would ask three times more, each for as long"
