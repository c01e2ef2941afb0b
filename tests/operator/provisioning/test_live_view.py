"""What the operator sees of capacity: nodes that count, pods that need a machine, tasks that taught."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from engine_objects import GIB, pod, running_pod
from manifests import node_manifest, pod_object

from cotide_core.classes import WorkloadClass
from cotide_core.consolidation.removal.watching import Mark, Standing
from cotide_core.events import Pod, PodPhase, Toleration
from cotide_core.provisioning.node_orders import NodeView
from cotide_kube.objects import NodeObject, PodObject
from cotide_operator.cache.object_cache import ObjectCache
from cotide_operator.clock import ScaledClock
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.live_view import LiveView, beyond_slack, live_view, nodes_of
from cotide_operator.provisioning.sorted_nodes import sorted_nodes
from cotide_operator.provisioning.task_history import TaskHistory

LABEL = "node.kubernetes.io/instance-type"
SETTINGS = ProvisioningSettings.model_validate(
    {
        "machineTypes": [{"name": "a", "cpu": "4", "memory": "8Gi", "count": 9}],
        "bootDeadlineSeconds": 600,
    }
)
NOW = 1_000_000.0


def machine(name: str, kind: str = "a", *, ready: str = "True", since: str = "2001-09-09T01:46:40Z", **spec: Any):
    made = node_manifest(name, "4", memory="8Gi")
    made["metadata"] |= {"labels": {LABEL: kind, "kubernetes.io/hostname": name}, "creationTimestamp": since}
    made["status"]["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    made["spec"] = spec
    return msgspec.convert(made, NodeObject)


def cache_of(*objects: NodeObject | PodObject) -> ObjectCache:
    cache = ObjectCache()
    for one in objects:
        cache.apply("pods" if isinstance(one, PodObject) else "nodes", "ADDED", one)
    return cache


def viewed(
    *pods: Pod,
    nodes: tuple[NodeObject, ...] = (),
    slack: tuple[tuple[int, int], ...] = (),
    young: frozenset[str] = frozenset(),
) -> LiveView:
    shown = [pod_object(one.key.partition("/")[2], namespace="d") for one in pods]
    cache = cache_of(*nodes, *shown)
    there = [NodeView(node.metadata.name, "a") for node in nodes]
    return live_view(cache, {one.key: one for one in pods}, there, (), slack, SETTINGS, NOW, young=young)


def test_a_node_that_boots_counts_and_one_that_was_not_ready_for_longer_than_a_boot_is_lost() -> None:
    # 2001-09-09T01:46:40Z is second 1,000,000,000.
    nodes = {"n": machine("n", ready="False"), "x": machine("x", "other")}

    class At(ScaledClock):
        seconds = 1_000_000_000.0

        def now(self) -> float:
            return self.seconds

    clock = At()
    clock.seconds += 599.0
    (young,), unknown = nodes_of(nodes, SETTINGS, clock)
    assert (young.lost, unknown) == (False, ["x"])
    clock.seconds += 2.0
    (old,), _ = nodes_of(nodes, SETTINGS, clock)
    assert old.lost


def test_nodes_are_sorted_by_what_may_be_done_with_them() -> None:
    there = {name: machine(name) for name in ("open", "freed", "draining", "stopping")}
    for name in ("freed", "stopping"):
        there[name] = machine(name, unschedulable=True)
    there["persons"] = machine("persons", unschedulable=True)
    known, unknown = nodes_of(there, SETTINGS, ScaledClock())
    standings = {name: Standing(Mark(name)) for name in ("freed", "draining", "stopping")}
    found = sorted_nodes(known, unknown, standings)
    assert (found.open, found.freed, found.freeing) == ({"a": ("open",)}, {"a": ("freed",)}, {"a": ("draining",)})
    assert [one.name for one in found.stopping] == ["stopping"]
    assert found.away == {"a": 2}, "the one that stops, and the one that a person has cordoned"
    assert found.open_names() == ["open"]


def test_a_pod_that_no_machine_would_take_starts_none() -> None:
    wide = pod("wide", 5000)
    pinned = pod("pinned", node_selector=((LABEL, "other"),))
    here = pod("here", node_selector=(("kubernetes.io/hostname", "n"),))
    fits = pod("fits", node_selector=((LABEL, "a"),), created_seconds=NOW - 50.0)
    found = viewed(wide, pinned, here, fits, nodes=(machine("n"),))
    assert sorted(found.hopeless) == ["d/here", "d/pinned", "d/wide"], "too wide, of another type, bound to one node"
    assert found.view.need.tolist() == [[1000.0, 0.0]]
    assert found.longest_wait_seconds == 50.0


def test_a_new_machine_is_like_those_that_are_there_but_for_what_befell_them() -> None:
    cordoned = machine("n", unschedulable=True, taints=[{"key": "dedicated", "value": "x", "effect": "NoSchedule"}])
    plain, tolerant = pod("plain"), pod("tolerant", tolerations=(Toleration("dedicated", "Exists", "", ""),))
    found = viewed(plain, tolerant, nodes=(cordoned,))
    assert found.hopeless == ("d/plain",)


KEPT = {"key": "maintenance", "value": "", "effect": "NoSchedule"}
TOLERANT = (Toleration("maintenance", "Exists", "", ""),)


def short_of_disk(name: str) -> NodeObject:
    made = node_manifest(name, "4", memory="8Gi")
    made["metadata"] |= {"labels": {LABEL: "a"}}
    made["status"]["conditions"] = [{"type": what, "status": "True"} for what in ("Ready", "DiskPressure")]
    return msgspec.convert(made, NodeObject)


def test_a_node_that_somebody_has_tainted_tells_nothing_of_the_next_machine_of_its_type() -> None:
    for order in ((machine("n", taints=[KEPT]), machine("m")), (machine("m"), machine("n", taints=[KEPT]))):
        assert viewed(pod("plain"), nodes=order).hopeless == ()


def test_a_pool_whose_nodes_are_all_tainted_helps_nobody_who_does_not_tolerate_that() -> None:
    taints = [{"key": "team", "value": name, "effect": "NoSchedule"} for name in ("a", "b")]
    pool = tuple(machine(taint["value"], taints=[taint]) for taint in taints)
    tolerant = pod("tolerant", tolerations=(Toleration("team", "Equal", "b", ""),))
    assert viewed(pod("plain"), tolerant, nodes=pool).hopeless == ("d/plain",)


def test_a_node_that_refuses_all_who_wait_and_would_fit_is_shut_and_one_that_boots_is_not() -> None:
    nodes = (machine("kept", taints=[KEPT]), short_of_disk("full"), machine("open"))
    assert viewed(pod("plain"), nodes=nodes).view.shut == {"kept", "full"}
    assert viewed(pod("plain"), nodes=nodes, young=frozenset({"kept", "full"})).view.shut == frozenset()
    assert viewed(nodes=nodes).view.shut == frozenset(), "nobody waits"


def test_a_node_is_not_shut_to_those_who_tolerate_its_taint_as_far_as_they_fit_what_is_free() -> None:
    nodes = (machine("kept", taints=[KEPT]), machine("open"))
    small, large = pod("small", 1000, tolerations=TOLERANT), pod("large", 4000, tolerations=TOLERANT)
    runs = running_pod("runs", "kept")
    assert viewed(pod("plain"), small, runs, nodes=nodes).view.shut == frozenset()
    assert viewed(pod("plain"), large, runs, nodes=nodes).view.shut == {"kept"}


@pytest.mark.parametrize("seed", range(15))
def test_which_nodes_are_shut_is_asked_of_all_who_wait_at_once_and_is_what_each_would_say(seed: int) -> None:
    """One after the other 2,000 nodes with a taint and 2,000 unlike pods took 3.8 s of a plan."""
    draw = random.Random(seed)
    keys = ("x", "y")
    taints = {f"n{number}": draw.choice((*keys, "")) for number in range(6)}
    nodes = [
        machine(name, taints=[{"key": key, "value": "", "effect": "NoSchedule"}] if key else [])
        for name, key in taints.items()
    ]
    used = {name: draw.choice((0, 1000, 3500)) for name in taints}
    wish = {f"w{number}": (draw.choice((400, 2000, 4000)), draw.choice(("", *keys))) for number in range(3)}
    tolerate = {key: (Toleration(key, "Exists", "", ""),) for key in keys} | {"": ()}
    waiting = [pod(name, cpu, tolerations=tolerate[key]) for name, (cpu, key) in wish.items()]
    runs = [running_pod(f"r-{name}", name, cpu) for name, cpu in used.items() if cpu]
    found = viewed(*waiting, *runs, nodes=(*nodes, machine("open")))
    shut = set()
    for name, key in taints.items():
        fitting = [tolerates for cpu, tolerates in wish.values() if cpu <= 4000 - used[name]]
        if key and fitting and key not in fitting:
            shut.add(name)
    assert found.view.shut == shut


def test_pods_that_ended_or_have_gates_or_ask_for_nothing_need_no_machine() -> None:
    done = running_pod("done", "n", phase=PodPhase.SUCCEEDED)
    gated = pod("gated", gates=("x",))
    idle = pod("idle", 0)
    found = viewed(done, gated, idle, running_pod("elsewhere", "m"), nodes=(machine("n"),))
    assert len(found.view.need) == 0


def test_pods_that_ask_for_reclaimed_capacity_need_a_machine_only_beyond_the_slack() -> None:
    asks = (("cotide.dev/reclaimed-cpu", 1000), ("cotide.dev/reclaimed-memory", GIB))
    waiting = [pod(name)._replace(requests=asks) for name in "xyz"]
    assert beyond_slack(waiting, [(1500, 4 * GIB), (1000, GIB)]) == waiting[2:]
    assert beyond_slack(waiting[:1], [(5000, 1)]) == waiting[:1], "cpu alone is not enough"
    found = viewed(*waiting, nodes=(machine("n"),), slack=((1500, 4 * GIB), (1000, GIB)))
    assert found.view.need.tolist() == [[1000.0, float(GIB)]]


def test_an_online_pod_is_told_from_one_that_ends() -> None:
    web = running_pod("web", "n", cls=WorkloadClass.ONLINE)
    found = viewed(web, running_pod("job", "n", started_seconds=NOW - 60.0), nodes=(machine("n"),))
    assert found.view.online.tolist() == [True, False]
    assert found.view.age.tolist() == [0.0, 60.0]


def test_tasks_that_ended_teach_once_and_online_pods_teach_nothing() -> None:
    cache, pods = ObjectCache(), dict[str, Pod]()
    history = TaskHistory(cache, pods)

    def see(one: Pod) -> None:
        pods[one.key] = one
        cache.apply("pods", "ADDED", pod_object(one.key.partition("/")[2], namespace="d"))

    see(running_pod("web", "n", cls=WorkloadClass.ONLINE, started_seconds=NOW))
    see(running_pod("job", "n", created_seconds=NOW, started_seconds=NOW + 10.0))
    history.follow(NOW + 20.0)
    still = history.copied().read(NOW + 20.0, 3600.0)
    assert still is not None
    assert still.seconds.tolist() == [3600.0], "it runs, and nothing is known yet"
    ended = pods["d/job"]._replace(phase=PodPhase.SUCCEEDED, finished_seconds=NOW + 310.0)
    for _ in range(3):
        see(ended)
        history.follow(NOW + 400.0)
    read = history.copied().read(NOW + 400.0, 3600.0)
    assert read is not None
    assert (read.arrival.tolist(), read.seconds.tolist(), read.until) == ([NOW], [300.0], NOW + 400.0)
    del pods["d/job"]
    cache.apply("pods", "DELETED", pod_object("job", namespace="d"))
    history.follow(NOW + 500.0)
    assert len(history.copied().read(NOW + 500.0, 3600.0).seconds) == 1
    assert history.copied().read(NOW + 3 * 86_400.0, 3600.0) is None, "out of the window"


def test_a_task_that_was_deleted_while_it_ran_had_run_until_then() -> None:
    cache = cache_of(pod_object("job", namespace="d"))
    pods = {"d/job": running_pod("job", "n", created_seconds=NOW, started_seconds=NOW)}
    history = TaskHistory(cache, pods)
    history.follow(NOW + 1.0)
    del pods["d/job"]
    cache.apply("pods", "DELETED", pod_object("job", namespace="d"))
    history.follow(NOW + 77.0)
    assert history.copied().read(NOW + 77.0, 3600.0).seconds.tolist() == [77.0]


def test_a_pod_that_becomes_a_services_is_no_task_any_more() -> None:
    """A Workload took it, or its label was changed: it would run twice in the plan, and once of it for ever."""
    cache = cache_of(pod_object("web", namespace="d"))
    pods = {"d/web": running_pod("web", "n", created_seconds=NOW, started_seconds=NOW)}
    history = TaskHistory(cache, pods)
    history.follow(NOW + 1.0)
    pods["d/web"] = pods["d/web"]._replace(workload_class=WorkloadClass.ONLINE)
    cache.apply("pods", "MODIFIED", pod_object("web", namespace="d"))
    history.follow(NOW + 2.0)
    assert history.copied().read(NOW + 3.0, 3600.0) is None


def test_a_task_of_whose_end_the_engine_was_not_told_yet_is_looked_at_when_it_was() -> None:
    cache = cache_of(pod_object("job", namespace="d"))
    pods = {"d/job": running_pod("job", "n", created_seconds=NOW, started_seconds=NOW)}
    behind = set[str]()
    history = TaskHistory(cache, pods, lambda key: key not in behind)
    history.follow(NOW + 1.0)
    cache.apply("pods", "DELETED", pod_object("job", namespace="d"))
    behind.add("d/job")
    history.follow(NOW + 60.0)
    del pods["d/job"]
    behind.clear()
    history.follow(NOW + 61.0)
    assert history.copied().read(NOW + 900.0, 3600.0).seconds.tolist() == [61.0], (
        "and not twice its age, as if it still ran"
    )


def test_what_is_free_on_a_node_is_what_no_pod_on_it_asks_for_that_has_not_ended() -> None:
    runs = running_pod("runs", "n")._replace(requests=(("cpu", 1500), ("memory", GIB)))
    done = running_pod("done", "n", phase=PodPhase.SUCCEEDED)
    found = viewed(runs, done, nodes=(machine("n"), machine("m")))
    assert found.view.free.tolist() == [[2500.0, 7.0 * GIB], [4000.0, 8.0 * GIB]]


def test_a_pod_tells_which_machine_types_would_take_it() -> None:
    two = SETTINGS.model_copy(update={"machine_types": (*SETTINGS.machine_types, _named("b"), _named("none", 0))})
    anywhere, pinned = pod("anywhere"), pod("pinned", node_selector=((LABEL, "b"),))
    shown = cache_of(pod_object("anywhere", namespace="d"), pod_object("pinned", namespace="d"))
    view = live_view(shown, {one.key: one for one in (anywhere, pinned)}, (), (), (), two, NOW).view
    assert view.takes is not None
    assert view.takes.tolist() == [[True, True, False], [False, True, False]]


def _named(name: str, count: int = 9) -> Any:
    return SETTINGS.machine_types[0].model_copy(update={"name": name, "count": count})
