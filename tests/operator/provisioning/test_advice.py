"""Advice where pods wait: what fits nothing, whose nodes are needed whatever the service level, and who may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cotide_core.provisioning.node_orders import NodeView
from cotide_operator.config.provisioning_settings import ProvisioningSettings
from cotide_operator.provisioning.advice import Advice, Underway, advise
from cotide_operator.provisioning.cluster_view import made_view

GIB = 2.0**30
MACHINE = {"cpu": "4", "memory": "64Gi", "bootSeconds": 60, "minimumUpSeconds": 0}
SMALL = {**MACHINE, "name": "small", "count": 9}


def advised(
    nodes: Sequence[NodeView],
    free: Sequence[tuple[float, float]],
    rows: Sequence[tuple[float, ...]],
    *,
    takes: Sequence[Sequence[bool]] | None = None,
    underway: Underway | None = None,
    moves: bool = True,
    types: Sequence[dict[str, Any]] = (SMALL,),
    **section: Any,
) -> Advice:
    settings = ProvisioningSettings.model_validate({"machineTypes": list(types), **section})
    return advise(settings, made_view(nodes, (), rows, free, takes), None, underway, moves=moves)


def nodes(count: int, kind: str = "small", *, pods: int = 0, cordoned: bool = False) -> list[NodeView]:
    return [NodeView(f"{kind}-{number}", kind, None, cordoned, pods) for number in range(count)]


def need_of(cores: float, *, waits: bool = False) -> tuple[float, ...]:
    """An online pod: what it needs is certain."""
    return (1000.0 * cores, GIB, 0.0, 0.0, float(waits), 1.0)


HALF_FULL = [(2000.0, 60 * GIB), (2000.0, 60 * GIB)]
RUNNING = [need_of(2.0), need_of(2.0)]
"""Two nodes with two cores free on each, which together would hold three cores."""


def test_a_pod_that_fits_no_free_part_has_a_machine_at_once() -> None:
    for cores, wanted in ((2.0, 2.0), (2.5, 3.0)):
        advice = advised(nodes(2, pods=1), HALF_FULL, [*RUNNING, need_of(cores, waits=True)])
        assert advice.plan.machines[0].tolist() == [wanted]
    assert advice.reasons[0].tolist() == [3.0, 0.0, 0.0, 0.0], "all for pods that are there"


def test_a_machine_on_its_way_is_room_and_a_cordoned_node_is_none() -> None:
    rows = [*RUNNING, need_of(2.5, waits=True)]
    coming = Underway({"small": [30.0]})
    assert advised(nodes(2, pods=1), HALF_FULL, rows, underway=coming).plan.machines[0].tolist() == [3.0]
    there = [*nodes(2, pods=1), *nodes(1, cordoned=True)]
    assert advised(there, [*HALF_FULL, (4000.0, 64 * GIB)], rows).plan.machines[0].tolist() == [3.0]


def test_a_machine_is_started_of_a_type_that_takes_the_pod() -> None:
    types = (SMALL, {**MACHINE, "name": "wide", "count": 9, "idleWatts": 180})
    rows = [need_of(1.0, waits=True)]
    free = [(4000.0, 64 * GIB)]
    either = advised(nodes(1), free, rows, types=types, takes=[(True, True)])
    only = advised(nodes(1), free, rows, types=types, takes=[(False, True)])
    assert (either.plan.machines[0].tolist()[1], only.plan.machines[0].tolist()[1]) == (0.0, 1.0)


def test_a_type_that_rests_starts_nothing_for_what_waits() -> None:
    rests = Underway(barred=frozenset({"small"}))
    advice = advised(nodes(2, pods=1), HALF_FULL, [*RUNNING, need_of(2.5, waits=True)], underway=rests)
    assert advice.plan.machines[0].tolist() == [2.0]


def test_a_node_that_does_not_say_what_it_has_is_taken_for_what_its_type_has() -> None:
    advice = advised(nodes(1), [(np.nan, np.nan)], [need_of(2.5, waits=True)])
    assert advice.plan.machines[0].tolist() == [1.0]


def test_nodes_of_online_pods_are_wanted_at_any_service_level() -> None:
    dear = {**MACHINE, "name": "dear", "count": 9, "idleWatts": 400, "peakWatts": 500}
    for level in (0.05, 0.25, 0.9):
        advice = advised(
            [*nodes(1), *nodes(2, "dear")], [(0.0, 0.0)] * 3, [need_of(1.0)] * 8,
            types=({**SMALL, "count": 1}, dear), serviceLevel=level,
        )  # fmt: skip
        assert advice.plan.machines[0].tolist() == [1.0, 2.0]


def test_where_nobody_moves_pods_only_idle_nodes_go() -> None:
    there = [*nodes(3, pods=1), NodeView("idle", "small")]
    free = [(3000.0, 63 * GIB)] * 3 + [(4000.0, 64 * GIB)]
    rows = [need_of(1.0)] * 3  # one machine would hold them
    assert advised(there, free, rows).plan.machines[0].tolist() == [1.0]
    assert advised(there, free, rows, moves=False).plan.machines[0].tolist() == [3.0]
