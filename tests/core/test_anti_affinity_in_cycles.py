"""Pods that keep others off, decided in one cycle with single pods, gangs and plans: no domain ever holds both."""

from __future__ import annotations

import random
from dataclasses import replace

import engine_objects
import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.cycle import Scheduler, SchedulerConfig
from cotide_core.events import Event, Gang, Pod, PodRules, PodTerm, PodUpserted, Requirement
from cotide_core.forecasting.heuristics import HeuristicCatalogue
from cotide_core.instructions import Bind
from cotide_core.policies.catalogue import Runner, names

APPS = ("web", "db")
ZONES = {"a": "east", "b": "east", "c": "west", "d": "west"}
CYCLES = 4


def some_pods(rng: random.Random) -> list[tuple[Pod, str, str | None]]:
    """Single pods and gangs of two or three, each with its app and the app that it keeps off, if any."""
    gangs = [Gang(f"d/gang-{number}", rng.randint(2, 3), 60.0) for number in range(2)]
    slots = [None] * rng.randint(1, 5) + [gang for gang in gangs for _ in range(gang.minimum) if rng.random() < 0.8]
    rng.shuffle(slots)
    found = []
    for number, gang in enumerate(slots):
        app, off = rng.choice(APPS), rng.choice(APPS) if rng.random() < 0.4 else None
        term = PodTerm("zone", (Requirement("app", "In", (off,)),)) if off else None
        pod = engine_objects.pod(
            f"p{number}",
            rng.choice([100, 500]),
            WorkloadClass.BATCH if gang else rng.choice(list(WorkloadClass)),
            labels=(("app", app),),
            rules=PodRules(anti_affinity=(term,)) if term else None,
            gang=gang,
        )
        found.append((pod, app, off))
    return found


def nodes_of_all(policy: str, pods: list[tuple[Pod, str, str | None]]) -> dict[str, str]:
    """The node of each pod that a policy binds, where all pods come at once."""
    scheduler = Scheduler(replace(SchedulerConfig(), policy=policy), HeuristicCatalogue())
    nodes = [engine_objects.node_upserted(name, 2000, labels=(("zone", zone),)) for name, zone in ZONES.items()]
    by_key = {pod.key: pod for pod, _, _ in pods}
    found: dict[str, str] = {}
    events: list[Event] = [*nodes, *map(PodUpserted, by_key.values())]
    for cycle in range(CYCLES):
        bound = {one.key: one.node for one in scheduler.handle(events, float(cycle)) if isinstance(one, Bind)}
        found |= bound
        events = [PodUpserted(by_key[key]._replace(node=node)) for key, node in bound.items()]
    return found


@pytest.mark.parametrize("policy", names(Runner.LIVE))
def test_no_domain_holds_a_pod_and_another_that_keeps_it_off(policy: str) -> None:
    placed = 0
    for seed in range(12):
        pods = some_pods(random.Random(seed))
        found = nodes_of_all(policy, pods)
        placed += len(found)
        there = [(pod.key, app, off, ZONES[found[pod.key]]) for pod, app, off in pods if pod.key in found]
        for key, app, _, zone in there:
            assert not [one for one, _, off, at in there if one != key and off == app and at == zone], (seed, key)
    assert placed >= 40  # of some 70: a policy that binds nothing keeps every rule
