"""The two scenarios for the comparison of policies, and the plan of each.

Called by the demo and by `comparison`. ``latency``: few services that never use half of their requests, and limits that
break when jobs run next to them. A scheduler must consider latency. ``slack``: services that own about half of the
cluster by their requests, with a lower mean usage and a higher one for moments. A scheduler must consider real use
(`slack`). Invariant: the jobs and their arrivals are the same in both, and so is the plan for every policy.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from cotide_core.config import HierarchicalConfig
from cotide_core.policies.catalogue import by_slack
from cotide_sim.interference.model import Interference
from cotide_sim.workloads.generated import generate
from cotide_sim.workloads.plan import Plan
from cotide_sim.workloads.slack import STEP_SECONDS, with_measured_services
from cotide_sim.workloads.traced import COMPRESSION, from_traces

Scenario = Literal["latency", "slack"]
SCENARIOS: Final[tuple[Scenario, ...]] = ("latency", "slack")
SLOT_SECONDS: Final = STEP_SECONDS
"""Slot of forecasts and overloads in both: five minutes of the traces at their compression."""


def watchful(knobs: HierarchicalConfig) -> HierarchicalConfig:
    """Return the knobs of forecast slack with a monitor for these scenarios.

    Its times are at the compression of the traces, as the slot is. A burst of minutes, observed for 15 s on a cluster,
    passes here in some seconds. It begins at the planned share of a node instead of the whole. A burst rises for
    seconds, which is the time to make room.
    """
    return replace(
        knobs,
        overload_share=knobs.capacity_share,
        overload_observation_seconds=knobs.overload_observation_seconds / COMPRESSION,
        overload_pause_seconds=knobs.overload_pause_seconds / COMPRESSION,
        flap_window_seconds=knobs.flap_window_seconds / COMPRESSION,
        cordon_seconds=knobs.cordon_seconds / COMPRESSION,
    )


def usual_scenario(policies: Collection[str]) -> Scenario:
    """Return the default scenario for a comparison of these policies."""
    return "slack" if any(map(by_slack, policies)) else "latency"


def plan_of(
    scenario: Scenario,
    seed: int,
    nodes: int,
    duration_seconds: float,
    *,
    data: Path | None,
    interference: Interference | None = None,
) -> Plan:
    """Return the plan of a scenario, from the traces below ``data``, or generated.

    Raises
    ------
    InputError
        When a trace is missing or broken, with its file and line.
    """
    if data is None:
        plan = generate(seed, nodes, duration_seconds, interference)
    else:
        plan = from_traces(data, seed, nodes, duration_seconds)
    return plan if scenario == "latency" else with_measured_services(plan, seed, nodes, data)
