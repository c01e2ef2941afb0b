"""A whole day of `capacity_day`, offline: each rule at each setting of its dial, so that they compare at equal waits.

Run with ``python benchmarks/provisioning/capacity_dials.py [--seeds 0,1,2] [--hours 24] [--train-hours 48]``; not part
of CI. The same machines, kinds of Jobs, arrivals by the day's curve and services as live, in the experiment's park
(`cotide_lab.provisioning`): boots of two minutes, none fails, waits to the millisecond. Tasks find machines by one rule
whoever switches them, as pods do live; the experiment gives each rule its own. The reactive rule starts machines for
what waits as live (`reactive_machines`). Ours has the service level for a dial, the other two their reserve.
``--train-hours`` is what was seen of tasks before; an operator that has just begun has seen little. Prints a line of
JSON for each setting and seed: energy, waits, machines; and at the end, for each wait, what energy each rule needs at
least for a 95 % wait that is no longer.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from typing import Final

import numpy as np
from capacity_day import JOBS_AN_HOUR, SERVICES, SWING, TASKS, TYPES, idle_watts, peak_watts
from numpy.typing import NDArray

from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import PowerCurve
from cotide_lab.experiments.capacity.controllers import Controller, Packing, Provisioning, waiting_needs
from cotide_lab.experiments.capacity.learned import Learned, learn
from cotide_lab.experiments.capacity.run import run_controller
from cotide_lab.experiments.capacity.scenarios import Scenario
from cotide_lab.provisioning import park_kernel as kernel
from cotide_lab.provisioning.baselines import Fleet, reactive
from cotide_lab.provisioning.park import MachinePark
from cotide_lab.provisioning.task_stream import TaskStream

Floats = NDArray[np.float64]

HOUR: Final = 3600.0
BOOT_SECONDS: Final = 120.0
WARM_UP_HOURS: Final = 1.0
"""Of the day, not counted: all machines are off when it begins."""
SERVICE_CORES, SERVICE_GIB = 2, 4
MOST: Final = (max(cores for cores, _, _ in TYPES.values()), max(memory for _, memory, _ in TYPES.values()))
WAITS: Final = (60.0, 120.0, 240.0, 480.0, 960.0, 1920.0)
"""Seconds of the 95 % wait at which rules are compared."""


class Planned(Provisioning):
    """Ours, where tasks find machines as under the other rules."""

    rule = kernel.POWER_AND_FRAGMENTS


class Thresholds:
    """The rule of `reactive_machines`."""

    rule = kernel.POWER_AND_FRAGMENTS

    def __init__(self, scene: Scenario, reserve: float) -> None:
        self._reserve = reserve
        self._idle = np.array([kind.power.idle for kind in scene.machines])

    def decide(self, park: MachinePark, step: int) -> tuple[Floats, None]:
        """Return a tenth more or fewer by thresholds, and no fewer than what waits needs besides."""
        del step
        up = park.machines.state == kernel.UP
        used = (park.machines.capacity[up] - park.machines.free[up]).sum(axis=0)
        capacity = np.array([kind.capacity for kind in park.types])
        there = np.array([float(kind.count) for kind in park.types])
        on = park.counts(kernel.BOOTING, kernel.UP)
        fleet = Fleet(capacity, there, on, park.order_by_efficiency)
        return reactive(fleet, used, waiting_needs(park), self._idle, self._reserve), None


Make = Callable[[Scenario, Learned, float], Controller]
RULES: Final[dict[str, tuple[Make, tuple[float, ...]]]] = {
    "cotide": (
        lambda scene, known, level: Planned(scene, known, level=level),
        (0.25, 0.5, 0.75, 0.9, 0.97),
    ),
    "reactive": (lambda scene, _known, reserve: Thresholds(scene, reserve), (0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.4)),
    "packing": (lambda scene, known, reserve: Packing(scene, known, reserve=reserve), (1.0, 1.1, 1.3, 1.6)),
}


def tasks(rng: np.random.Generator, hours: float, first: float) -> TaskStream:
    """Return the Jobs and services of so many hours, as from an hour of the day."""
    seconds = hours * HOUR
    most = JOBS_AN_HOUR * (1 + SWING)
    count = rng.poisson(most * hours)
    at = np.sort(rng.uniform(0.0, seconds, count))
    curve = 1.0 + SWING * np.sin(2 * math.pi * ((first * HOUR + at) / 86_400.0 - 0.375))
    at = at[rng.uniform(size=count) < curve / (1 + SWING)]
    kind = rng.choice(len(TASKS), len(at), p=[one[0] for one in TASKS])
    shapes = np.array(TASKS)[kind]
    run = rng.lognormal(np.log(shapes[:, 3]), 0.6)
    need = shapes[:, 1:3] / MOST
    stays = np.full((SERVICES, 2), (SERVICE_CORES, SERVICE_GIB)) / MOST
    return TaskStream(
        "day",
        ("cpu", "memory"),
        np.concatenate([np.zeros(SERVICES), at]),
        np.concatenate([np.full(SERVICES, 10 * seconds), run]),
        np.concatenate([stays, need]),
        np.concatenate([np.ones(SERVICES), np.zeros(len(at))]),
    )


def scene_of(seed: int, hours: float, train_hours: float) -> Scenario:
    """Return the day of a seed, which begins at midnight."""
    machines = tuple(
        MachineType(
            name, (cores / MOST[0], memory / MOST[1]), count, PowerCurve((idle_watts(cores), peak_watts(cores))),
            boot_steps=1, minimum_up_steps=2,
        )
        for name, (cores, memory, count) in TYPES.items()
    )  # fmt: skip
    before, now = (np.random.default_rng([seed, part]) for part in range(2))
    train = tasks(before, train_hours, -train_hours - WARM_UP_HOURS)
    run = tasks(now, hours + WARM_UP_HOURS + 2, -WARM_UP_HOURS)
    return Scenario(
        "day", train, run, machines, (BOOT_SECONDS,) * len(machines), 300.0, WARM_UP_HOURS * HOUR, hours * HOUR,
        np.full(int(hours) + 4, 0.1), np.full(24, 0.1), "as capacity_day", train_hours * HOUR,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--train-hours", type=float, default=48.0)
    parser.add_argument("--rules", default=",".join(RULES))
    asked = parser.parse_args()
    found: dict[str, list[list[tuple[float, float]]]] = {}
    for seed in map(int, asked.seeds.split(",")):
        scene = scene_of(seed, asked.hours, asked.train_hours)
        known = learn(scene, seed)
        for rule in asked.rules.split(","):
            make, dials = RULES[rule]
            points = []
            for dial in dials:
                came = run_controller(scene, known, make(scene, known, dial), rule, dial)
                points.append((came.delay_p95, came.energy_kwh))
                line = {
                    "rule": rule, "dial": dial, "seed": seed, "kilowatt_hours": round(came.energy_kwh, 2),
                    "wait_mean": round(came.delay_mean, 1), "wait_p95": round(came.delay_p95, 1),
                    "wait_p99": round(came.delay_p99, 1), "machines": round(float(np.mean(came.machines)), 1),
                    "switched_on": came.switches, "waiting_at_end": came.waiting,
                    "median_step_seconds": round(came.step_seconds, 3),
                }  # fmt: skip
                print(json.dumps(line), flush=True)
            found.setdefault(rule, []).append(points)
    for wait in WAITS:
        least = {
            rule: [min((kwh for p95, kwh in points if p95 <= wait), default=math.nan) for points in seeds]
            for rule, seeds in found.items()
        }
        means = {rule: round(float(np.mean(values)), 2) for rule, values in least.items()}
        print(json.dumps({"wait_p95_at_most": wait, "kilowatt_hours": means, "by_seed": least}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
