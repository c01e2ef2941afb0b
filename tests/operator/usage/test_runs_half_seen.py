"""Runs of which the operator saw the end only: they teach nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hand_clock import HandClock

from cotide_core.phases.progress import Usage
from cotide_kube.objects import PodObject
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.config.phase_settings import PhaseSettings
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.phase_learning import UNSEEN_SECONDS, PhaseLearning

ORIGIN = 1_000_000_000.0
CONTAINER = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}


class Scene:
    """One Job of a type and one pod, which began some seconds before the operator came; time is what the test says."""

    def __init__(self, began_before: float | None) -> None:
        self.cache, self.metrics, self.clock = ObjectCache(), Metrics(), HandClock(ORIGIN)
        self.learning = PhaseLearning(PhaseSettings(learn=True), self.cache, clock=self.clock, metrics=self.metrics)
        job = {"metadata": {"namespace": "d", "name": "j", "uid": "j"}, "spec": {"type": "sort"}}
        self.cache.apply("jobs", "ADDED", msgspec.convert(job, CustomObject))
        self.began_before = began_before
        self.see("Running")

    def see(self, phase: str) -> None:
        owner = {"apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
        status: dict[str, Any] = {"phase": phase}
        if self.began_before is not None and phase == "Running":
            began = datetime.fromtimestamp(ORIGIN - self.began_before, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status["containerStatuses"] = [{"name": "c", "state": {"running": {"startedAt": began}}}]
        metadata = {"namespace": "d", "name": "p", "uid": "p", "ownerReferences": [owner]}
        pod = {"metadata": metadata, "spec": {"containers": [CONTAINER]}, "status": status}
        self.cache.apply("pods", "MODIFIED", msgspec.convert(pod, PodObject))

    async def runs(self, seconds: float) -> float:
        """Let the pod run on and succeed; return how many runs taught."""
        for _ in range(int(seconds / 10)):
            self.clock.wall += 10.0
            await self.learning.look(lambda _: Usage(500.0, 2.0**30, self.clock.now()))
        self.see("Succeeded")
        return self.metrics.phase_runs.labels("taught")._value.get()


@pytest.mark.parametrize(("began_before", "taught"), [(None, 1), (2.0, 1), (UNSEEN_SECONDS + 5.0, 0), (3600.0, 0)])
async def test_a_pod_that_was_under_way_when_the_operator_came_teaches_nothing(
    began_before: float | None, taught: int
) -> None:
    """After a change of leaders the rest of each run was taken for a whole one, shorter and with fewer phases."""
    assert await Scene(began_before).runs(600.0) == taught


async def test_a_run_is_as_long_as_its_container_ran() -> None:
    scene = Scene(15.0)
    await scene.runs(600.0)
    (profile,) = scene.learning._profiles.values()
    assert profile.runs[-1].seconds == 615.0


async def test_a_node_whose_clock_runs_ahead_makes_no_run_longer() -> None:
    scene = Scene(-100.0)
    assert await scene.runs(600.0) == 1
    (profile,) = scene.learning._profiles.values()
    assert profile.runs[-1].seconds == pytest.approx(600.0, abs=10.0)
