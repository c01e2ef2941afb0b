"""What is read of pods becomes a sample of their node, or is dropped and counted."""

from __future__ import annotations

import pytest
from engine_objects import pod
from host_load_scene import (
    EPOCH,
    GIB,
    INTO_SLOT,
    MILLICORES,
    batch,
    one_node,
    online,
    samples,
)

from cotide_core.events import (
    NodeUsageSampled,
    PodPhase,
)
from cotide_operator.host_load.pod_usage import PodUsages
from cotide_operator.observability.metrics import Metrics
from cotide_operator.usage.sources import CPU, MEMORY, UsageReading


async def test_the_online_pods_of_a_node_are_summed_and_others_are_not() -> None:
    scene = await one_node(online("web"), online("db"), batch("job"), online("else", node="nowhere"))
    published = await scene.read(*scene.use("web", 250), *scene.use("db", 150), *scene.use("job", 900))
    assert samples(published) == [("a", 400.0, 2.0 * GIB)]
    assert [one.at_seconds for one in published if isinstance(one, NodeUsageSampled)] == [EPOCH + INTO_SLOT]


async def test_a_pod_without_a_reading_counts_with_its_request() -> None:
    scene = await one_node(online("web"), online("new", millicores=1000, memory=2 * GIB))
    assert samples(await scene.read(*scene.use("web", 250))) == [("a", 1250.0, 3.0 * GIB)]  # 250 + 1000, 1 + 2 GiB


async def test_a_node_most_of_whose_pods_are_unknown_has_no_sample() -> None:
    scene = await one_node(online("web"), online("x"), online("y"))
    await scene.nodes("b")
    await scene.place(online("other", node="b"))
    published = await scene.read(*scene.use("web", 250), *scene.use("other", 70))
    assert samples(published) == [("b", 70.0, float(GIB))]  # of a's three pods one is known
    assert (scene.count("node_samples", "incomplete"), scene.count("node_samples", "taken")) == (1, 1)


async def test_a_memory_query_that_gives_nothing_leaves_no_sample_of_cpu_alone() -> None:
    scene = await one_node(online("web"))
    assert samples(await scene.read(*[one for one in scene.use("web", 250) if one.resource == CPU])) == []
    assert scene.count("node_samples", "incomplete") == 1


async def test_a_pod_that_ended_counts_no_more() -> None:
    scene = await one_node(online("web"), online("done")._replace(phase=PodPhase.SUCCEEDED))
    assert samples(await scene.read(*scene.use("web", 250))) == [("a", 250.0, float(GIB))]


@pytest.mark.parametrize(
    ("millicores", "memory", "outcome"),
    [
        (None, GIB, "invalid"),  # NaN, infinite and negative ones leave a source as None
        (100 * MILLICORES, GIB, "implausible"),  # a hundredfold
        (250, 0.0, "implausible"),  # nothing runs in no memory: a zero by missing
    ],
)
async def test_an_impossible_value_is_missing_and_counted(
    millicores: float | None, memory: float, outcome: str
) -> None:
    scene = await one_node(online("web"), online("db"))
    ((_, cpu, held),) = samples(await scene.read(*scene.use("web", millicores, memory), *scene.use("db", 100)))
    assert cpu == (350.0 if millicores == 250 else 1100.0)  # 250 + 100, or the request of 1000 + 100
    assert held == (2.0 * GIB if memory else 3.0 * GIB)
    assert scene.count("usage_readings", outcome) == 1


async def test_a_rate_over_two_minutes_says_too_little_of_a_pod_that_has_just_started() -> None:
    scene = await one_node(online("web"), online("new")._replace(started_seconds=EPOCH), settling=120.0)
    readings = [*scene.use("web", 250), *scene.use("new", 5)]
    assert samples(await scene.read(*readings)) == [("a", 1250.0, 3.0 * GIB)]  # the request of the new one
    assert scene.count("usage_readings", "settling") == 2
    scene.passes(120.0)
    readings = [*scene.use("web", 250), *scene.use("new", 300)]
    assert samples(await scene.read(*readings)) == [("a", 550.0, 2.0 * GIB)]


async def test_an_idle_pod_may_use_no_cpu() -> None:
    scene = await one_node(online("web"))
    assert samples(await scene.read(*scene.use("web", 0.0))) == [("a", 0.0, float(GIB))]


@pytest.mark.parametrize(("age", "outcome"), [(61.0, "stale"), (-61.0, "future")])
async def test_a_reading_from_another_time_is_dropped(age: float, outcome: str) -> None:
    scene = await one_node(online("web"))
    assert samples(await scene.read(*scene.use("web", 250, age=age))) == []
    assert scene.count("usage_readings", outcome) == 2


async def test_of_duplicates_the_higher_counts() -> None:
    scene = await one_node(online("web"))
    published = await scene.read(*scene.use("web", 250), *scene.use("web", 300), *scene.use("web", 200))
    assert samples(published) == [("a", 300.0, float(GIB))]
    assert scene.count("usage_readings", "duplicate") == 4


@pytest.mark.parametrize("first", [{"millicores": None}, {"millicores": 900, "age": 61.0}])
async def test_a_value_that_is_none_leaves_the_next_one_of_the_same_pod_as_it_is(first: dict[str, float]) -> None:
    scene = await one_node(online("web"))
    published = await scene.read(*scene.use("web", **first), *scene.use("web", 300))
    assert samples(published) == [("a", 300.0, float(GIB))]


async def test_a_reading_older_than_the_last_changes_nothing() -> None:
    scene = await one_node(online("web"))
    await scene.read(*scene.use("web", 250))
    assert samples(await scene.read(*scene.use("web", 900, age=20.0))) == []
    assert scene.count("usage_readings", "late") == 2


async def test_a_pod_that_was_replaced_has_no_reading_of_its_former_self() -> None:
    scene = await one_node(online("web"), online("db"))
    await scene.read(*scene.use("web", 250), *scene.use("db", 100))
    await scene.place(online("web")._replace(uid="another"))
    scene.passes(5.0)
    assert samples(await scene.read(*scene.use("db", 100))) == [("a", 1100.0, 3.0 * GIB)]


async def test_what_the_engine_knows_is_told_again_only_to_stay_fresh() -> None:
    scene = await one_node(online("web"))
    assert len(samples(await scene.read(*scene.use("web", 250)))) == 1
    found = []
    for _ in range(6):  # every 5 s: told again after 15 s, a quarter of the 60 s that it holds
        scene.passes(5.0)
        found.append(len(samples(await scene.read(*scene.use("web", 251)))))
    assert found == [0, 0, 1, 0, 0, 1]
    scene.passes(5.0)
    assert samples(await scene.read(*scene.use("web", 300))) == [("a", 300.0, float(GIB))]  # moved by more than 1 %


async def test_a_step_back_of_the_machines_clock_does_not_stop_the_samples_for_ever() -> None:
    scene = await one_node(online("web"))
    await scene.read(*scene.use("web", 250))
    scene.passes(-3600.0)
    assert scene.clock.now() == EPOCH + INTO_SLOT  # held
    published = await scene.read(*scene.use("web", 900))
    assert samples(published) == [] or samples(published) == [("a", 900.0, float(GIB))]
    scene.passes(3605.0)
    assert samples(await scene.read(*scene.use("web", 900))) == [("a", 900.0, float(GIB))]


async def test_what_a_class_used_is_shown_no_longer_than_it_is_fresh() -> None:
    metrics, job = Metrics(), pod("job")
    usages = PodUsages({job.key: job}.get, 60.0, metrics)

    def shown() -> list[float | None]:
        names = ("cotide_usage_cpu_millicores", "cotide_usage_memory_bytes")
        return [metrics.registry.get_sample_value(name, {"class": "batch"}) for name in names]

    await usages.take([UsageReading(job.key, CPU, 900.0, 0.0), UsageReading(job.key, MEMORY, 5.0, 0.0)], 0.0)
    assert shown() == [900.0, 5.0]
    await usages.take([UsageReading(job.key, CPU, 800.0, 50.0)], 50.0)  # one answer of memory was lost
    assert shown() == [800.0, 5.0]
    await usages.take([], 61.0)  # the source is down
    assert shown() == [800.0, None]
    await usages.take([], 111.0)
    assert shown() == [None, None]
    await usages.take([UsageReading(job.key, CPU, 700.0, 200.0)], 200.0)
    assert shown() == [700.0, None]
