"""What a forecast is asked about pods that might leave is the node as it is once they have left."""

from __future__ import annotations

import numpy as np
from engine_objects import node_upserted, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.events import PodDeleted, PodUpserted, ServiceSampled, Workload, WorkloadUpserted
from cotide_core.forecasts import MixBatch
from cotide_core.qos.applicability import OTHER_RATE_UNKNOWN
from cotide_core.qos.mix_batch import Departure, mixes_without
from cotide_core.state.cluster_state import ClusterState

JOBS = {"a": ("sort", 500, 10), "b": ("sort", 1000, 20), "c": ("grep", 250, 5)}
"""Type, millicores and input bytes."""


def cluster() -> ClusterState:
    state = ClusterState()
    events = [node_upserted("n", 4000)]
    events += [WorkloadUpserted(Workload(f"d/{name}", limit)) for name, limit in (("web", 10.0), ("db", 200.0))]
    online = WorkloadClass.ONLINE
    events += [PodUpserted(running_pod(name, "n", cls=online, workload=f"d/{name}")) for name in ("web", "db")]
    events += [
        PodUpserted(running_pod(name, "n", cpu, type=kind, input_bytes=size))
        for name, (kind, cpu, size) in JOBS.items()
    ]
    for event in [*events, ServiceSampled("d/web", 100.0, 5.0)]:
        state.apply(event)
    return state


def columns(mixes: MixBatch) -> list[np.ndarray]:
    assert mixes.service is not None
    assert mixes.unmeasured is not None
    return [
        mixes.requests_per_second, mixes.other_requests_per_second, mixes.limit_milliseconds, mixes.cpu_pressure,
        mixes.counts, mixes.input_bytes, mixes.service, mixes.unmeasured,
    ]  # fmt: skip


def test_a_mix_without_pods_is_that_of_the_node_when_they_are_gone() -> None:
    before, after = cluster(), cluster()
    leaving = tuple(record for record in before.records() if record.pod.key in ("d/a", "d/c"))
    for record in leaving:
        after.apply(PodDeleted(record.pod.key, record.pod.uid))
    asked = mixes_without(before, [Departure("d/web", leaving), Departure("d/db", leaving)])
    answer = mixes_without(after, [Departure("d/web", ()), Departure("d/db", ())])
    for column, other in zip(columns(asked), columns(answer), strict=True):
        np.testing.assert_array_equal(column, other)


def test_a_mix_is_about_one_service_beside_the_jobs_that_stay() -> None:
    """Of 1,750m of jobs on 4,000m a sort of 1,000m stays; what `db` is asked for nobody measured."""
    state = cluster()
    leaving = tuple(record for record in state.records() if record.pod.key in ("d/a", "d/c"))
    mixes = mixes_without(state, [Departure("d/web", leaving)])
    assert mixes.cpu_pressure.tolist() == [0.25]
    assert dict(zip(mixes.types, mixes.counts[0].tolist(), strict=True)) == {"sort": 1.0, "grep": 0.0}
    assert (mixes.requests_per_second.tolist(), mixes.limit_milliseconds.tolist()) == ([100.0], [10.0])
    assert mixes.unmeasured is not None
    assert mixes.unmeasured.tolist() == [OTHER_RATE_UNKNOWN]
    assert mixes.service is not None
    assert mixes.services[mixes.service[0]] == "d/web"
