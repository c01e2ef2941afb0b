"""What running pods hold on simulated nodes."""

from __future__ import annotations

from cotide_core.classes import WorkloadClass
from cotide_core.events import Pod
from cotide_core.units import CPU, MEMORY
from cotide_sim.cluster.occupancy import Occupancy
from cotide_sim.cluster.pod_load import PodLoad


def pod_and_load(name: str, cls: WorkloadClass, millicores: int) -> tuple[Pod, PodLoad]:
    requests = ((CPU, millicores), (MEMORY, 100))
    return Pod(name, name, cls, requests, 0.0), PodLoad(name, cls, millicores, 100)


def test_starts_and_ends_leave_the_sums_of_what_runs_by_class() -> None:
    occupancy = Occupancy(["a", "b"])
    web, job = pod_and_load("web", WorkloadClass.ONLINE, 2000), pod_and_load("job", WorkloadClass.GRATIS, 1000)
    occupancy.start("b", *web)
    occupancy.start("b", *job)
    assert occupancy.asked.tolist() == [[0.0, 2000.0], [0.0, 100.0]]
    assert occupancy.held.tolist() == [[0.0, 1000.0], [0.0, 100.0]]
    occupancy.end("b", *job)
    assert not occupancy.held.any()


def test_the_first_resource_that_would_not_fit_is_named_with_what_it_would_come_to() -> None:
    occupancy = Occupancy(["a"])
    occupancy.start("a", *pod_and_load("one", WorkloadClass.BATCH, 3000))
    there = {CPU: 4000, MEMORY: 150}
    assert occupancy.excess("a", pod_and_load("two", WorkloadClass.BATCH, 1500)[0], there) == (CPU, 4500)
    assert occupancy.excess("a", pod_and_load("two", WorkloadClass.BATCH, 1000)[0], there) == (MEMORY, 200)
    occupancy.end("a", *pod_and_load("one", WorkloadClass.BATCH, 3000))
    assert occupancy.excess("a", pod_and_load("two", WorkloadClass.BATCH, 1500)[0], there) is None
