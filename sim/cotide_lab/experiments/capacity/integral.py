"""Cost of rounding up: plans of small instances compared with the integral optimum of the same program.

Called by `experiment`. Zhang and Boutaba 2014, sec. III, solve the program in fractions and round up. Here the same
program is solved in whole machines and containers by HiGHS, and both are priced the same way. Invariant: fractions cost
no more than whole numbers, and those no more than fractions rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotide_core.provisioning.capacity_model import CapacityModel, ContainerClass, MachineType, Outlook, Park
from cotide_core.provisioning.capacity_plan import plan_capacity
from cotide_core.provisioning.capacity_program import CapacityProgram
from cotide_core.provisioning.power import PowerCurve
from cotide_solvers.highs import HighsSolver


@dataclass(frozen=True, slots=True)
class IntegralGap:
    """Idle energy of the machines, as a multiple of the integral optimum's, over all instances: mean and range."""

    instances: int
    rounded_mean: float
    rounded_low: float
    rounded_high: float
    fractions_mean: float


def integral_gap(seeds: Sequence[int], per_seed: int = 4) -> IntegralGap:
    """Plan small random instances both ways: three types, three classes, three steps."""
    rounded, fractions = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(per_seed):
            model, outlook = _instance(rng)
            park = Park.of(model, np.zeros(3))
            idle = np.array([kind.power.idle for kind in model.machines])
            loose = plan_capacity(CapacityProgram(model, 1), HighsSolver(), park, outlook)
            whole = plan_capacity(
                CapacityProgram(model, 1, whole=True), HighsSolver(time_limit_seconds=10), park, outlook
            )
            best = float((whole.machines @ idle).sum())
            if best > 0:
                rounded.append(float((loose.machines @ idle).sum()) / best)
                fractions.append(loose.cost / max(whole.cost, 1e-12))
    return IntegralGap(
        len(rounded),
        float(np.mean(rounded)),
        float(np.min(rounded)),
        float(np.max(rounded)),
        float(np.mean(fractions)),
    )


def _instance(rng: np.random.Generator) -> tuple[CapacityModel, Outlook]:
    machines = tuple(
        MachineType(
            f"type-{index}",
            (float(cpu), float(memory)),
            20,
            PowerCurve((float(60 * cpu + 20), float(240 * cpu + 40))),
            0.0005,
        )
        for index, (cpu, memory) in enumerate(zip((0.5, 0.5, 1.0), rng.permutation([0.25, 0.5, 1.0]), strict=True))
    )
    sizes = rng.uniform(0.02, 0.25, (3, 2))
    classes = tuple(ContainerClass(f"class-{index}", tuple(map(float, size))) for index, size in enumerate(sizes))
    model = CapacityModel(machines, classes, horizon=3)
    demand = rng.integers(0, 12, (3, 3, 1)).astype(np.float64)
    return model, Outlook((0.9,), demand, rng.uniform(0.02, 0.08, 3))
