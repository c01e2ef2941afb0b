"""One controller in one scenario, and its outcome.

Called by `experiment`. Steps of the scenario's length: the controller sees the park, the park follows, time passes.
Invariant: the same scenario and controller give the same figures; energy, money and delays count from the end of the
warm-up to the end of the stretch that counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.power import JOULES_PER_KWH
from cotide_lab.experiments.capacity.controllers import Controller
from cotide_lab.experiments.capacity.learned import Learned
from cotide_lab.experiments.capacity.scenarios import Scenario
from cotide_lab.provisioning import park_kernel as kernel
from cotide_lab.provisioning.park import MachinePark

Floats = NDArray[np.float64]

CDF_POINTS = (0.0, 1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0)
"""Seconds at which the distribution of delays is printed; Figs 5 and 6 have no figures on their axes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run.

    Attributes
    ----------
    policy : name; ``reserve`` its setting.
    energy_kwh, energy_money, switch_money : of the stretch that counts; ``money`` is both sums.
    switches : machines switched on.
    delay_mean, delay_p50, delay_p95, delay_p99 : seconds from arrival to start, waiting ones up to the end.
    waiting : tasks of the stretch that had not started at its end.
    core_hours : cpu of the largest machine, in hours, of tasks of the stretch that ended in it.
    money_per_core_hour : ``money`` over that.
    machines : (steps,) machines on, each step; ``by_type`` (steps, M).
    in_use : share of the scarcest resource in use on the machines that are up, by sums over the steps' ends.
    without_turns : share of the pairs of step and class without a share for any type, under the rule by turns.
    delay_cdf : share of tasks that started within `CDF_POINTS`.
    step_seconds : median time of a decision; ``longest_step_seconds`` is the longest.
    """

    policy: str
    reserve: float
    energy_kwh: float
    energy_money: float
    switch_money: float
    money: float
    switches: float
    delay_mean: float
    delay_p50: float
    delay_p95: float
    delay_p99: float
    waiting: int
    core_hours: float
    money_per_core_hour: float
    machines: tuple[float, ...]
    by_type: tuple[tuple[float, ...], ...]
    in_use: float
    without_turns: float
    delay_cdf: tuple[float, ...]
    step_seconds: float
    longest_step_seconds: float


def run_controller(scene: Scenario, learned: Learned, controller: Controller, policy: str, reserve: float) -> Outcome:
    """Run a controller through a scenario."""
    park = MachinePark(
        scene.machines,
        scene.run,
        learned.label,
        boot_seconds=scene.boot_seconds,
        sizes=learned.sizes,
        shares=learned.shares,
        devices=scene.devices,
    )
    park.use_rule(controller.rule)
    step_seconds = scene.step_seconds
    warm = round(scene.warm_up_seconds / step_seconds)
    steps = warm + round(scene.score_seconds / step_seconds)
    on_cost = np.array([kind.on_cost for kind in scene.machines])
    off_cost = np.array([kind.off_cost for kind in scene.machines])
    energy, switches = np.zeros(steps), np.zeros(steps)
    switched, by_type, took = np.zeros(steps), [], []
    use, idle_turns = [], np.zeros(steps)
    for step in range(steps):
        joules = park.machines.joules.sum()
        on, off = park.switched_on.copy(), park.switched_off.copy()
        started = time.perf_counter()
        wanted, weights = controller.decide(park, step)
        took.append(time.perf_counter() - started)
        park.use_rule(controller.rule, weights)
        idle_turns[step] = 0.0 if weights is None else float((weights.sum(axis=1) <= 0).mean())
        park.set_targets(wanted)
        switched[step] = (park.switched_on - on).sum()
        switches[step] = float((park.switched_on - on) @ on_cost + (park.switched_off - off) @ off_cost)
        by_type.append(park.counts(kernel.BOOTING, kernel.UP, kernel.DRAINING))
        park.run_until((step + 1) * step_seconds)
        use.append(_used_and_up(park))
        energy[step] = (park.machines.joules.sum() - joules) / JOULES_PER_KWH
    counted = slice(warm, steps)
    price = scene.price_at(np.arange(steps, dtype=np.float64) * step_seconds)
    first, last = warm * step_seconds, steps * step_seconds
    delays = park.delays(first, last)
    core_hours = _core_hours(scene, park, first, last)
    money = float((energy * price + switches)[counted].sum())
    points = np.percentile(delays, (50, 95, 99)) if len(delays) else np.zeros(3)
    table = np.array(by_type)[counted]
    return Outcome(
        policy=policy,
        reserve=reserve,
        energy_kwh=float(energy[counted].sum()),
        energy_money=float((energy * price)[counted].sum()),
        switch_money=float(switches[counted].sum()),
        money=money,
        switches=float(switched[counted].sum()),
        delay_mean=float(delays.mean()) if len(delays) else 0.0,
        delay_p50=float(points[0]),
        delay_p95=float(points[1]),
        delay_p99=float(points[2]),
        waiting=int(park.queues.length.sum()),
        core_hours=core_hours,
        money_per_core_hour=money / core_hours if core_hours > 0 else float("inf"),
        machines=tuple(table.sum(axis=1)),
        by_type=tuple(map(tuple, table)),
        in_use=_share(np.array(use)[counted]),
        without_turns=float(idle_turns[counted].mean()),
        delay_cdf=tuple(float((delays <= point).mean()) if len(delays) else 1.0 for point in CDF_POINTS),
        step_seconds=float(np.median(took)),
        longest_step_seconds=float(np.max(took)),
    )


def _used_and_up(park: MachinePark) -> Floats:
    """Return (2, R) resources in use and those of the machines that are up or drained."""
    machines = park.machines
    up = np.isin(machines.state, (kernel.UP, kernel.DRAINING))
    capacity = machines.capacity[up].sum(axis=0)
    return np.stack((capacity - machines.free[up].sum(axis=0), capacity))


def _share(use: Floats) -> float:
    used, up = use.sum(axis=0)
    return float(np.divide(used, up, out=np.zeros_like(used), where=up > 0).max())


def _core_hours(scene: Scenario, park: MachinePark, first: float, last: float) -> float:
    tasks = park.tasks
    ends = tasks.started + tasks.run
    done = (tasks.started >= 0) & (ends <= last * 1000) & (ends > first * 1000)
    return float((scene.run.need[done, 0] * scene.run.seconds[done]).sum()) / 3600.0
