"""What a campaign leaves behind in a cluster whose API server refuses some of what it undoes."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from cotide_core.errors import ClusterError
from cotide_lab.profile.cluster_jobs import ClusterMachine
from cotide_lab.profile.passive import Alternation


class Answer:
    def __init__(self, data: bytes = b"{}") -> None:
        self.data = data


class Api:
    """Refuses the deletion of pod ``a``, and as many patches of Jobs as it is told."""

    def __init__(self, refused: int = 0) -> None:
        self.refused = refused
        self.deleted: list[str] = []
        self.suspended: list[bool] = []

    def list_namespaced_pod(self, *_: Any, **__: Any) -> Answer:
        return Answer(b'{"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}')

    def delete_namespaced_pod(self, name: str, *_: Any, **__: Any) -> Answer:
        if name == "a":
            raise ApiException(status=500, reason="Internal Server Error")
        self.deleted.append(name)
        return Answer()

    def patch_namespaced_job(self, name: str, namespace: str, body: dict[str, Any], **_: Any) -> Answer:
        if self.refused:
            self.refused -= 1
            raise ApiException(status=503, reason="Service Unavailable")
        self.suspended.append(body["spec"]["suspend"])
        return Answer()


def test_a_pod_that_can_not_be_deleted_keeps_no_other_running() -> None:
    machine, api = ClusterMachine.__new__(ClusterMachine), Api()  # its making asks a cluster
    machine._core, machine._namespace, machine._run = api, "default", "1"
    with pytest.raises(ClusterError):
        machine._clear()
    assert api.deleted == ["b"]


@pytest.mark.parametrize(("refused", "suspended"), [(0, [False]), (2, [False]), (3, [])])
def test_jobs_that_are_refused_at_the_end_are_resumed_a_moment_later(refused: int, suspended: list[bool]) -> None:
    api = Api(refused)
    alternation = Alternation(api, [("default", "job")], pauses=(0.0, 0.0))
    if not suspended:
        with pytest.raises(ClusterError):
            alternation.leave()
    else:
        alternation.leave()
    assert api.suspended == suspended
