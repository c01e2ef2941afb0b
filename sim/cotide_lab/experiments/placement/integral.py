"""Cost of rounding up in placement: small instances compared with the integral optimum of the same program.

Called by `experiment`. Zhang and Boutaba 2014, sec. II, let servers be fractions and round up, which is reasonable for
tens of servers; here there are a few. Invariant: no ratio is below 1, except by the solver's gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cotide_core.provisioning.placement_model import DataCentre, PlacementModel, PlacementOutlook, ServiceLevel
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_core.provisioning.programs import Floats
from cotide_solvers.highs import HighsSolver


def placement_gap(seeds: Sequence[int], per_seed: int = 4) -> list[float]:
    """Return the money of rounding up over the integral optimum, for instances of two centres and three networks."""
    ratios = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for _ in range(per_seed):
            centres = tuple(DataCentre(f"place-{index}", 40.0, 0.02, 0.01) for index in range(2))
            model = PlacementModel(
                centres, ("a", "b", "c"), rng.uniform(0.01, 0.06, (2, 3)), np.zeros((2, 3)),
                (ServiceLevel(0.1, 50.0, 1.0, 1e-3),), 3600.0, 4,
            )  # fmt: skip
            outlook = PlacementOutlook(rng.uniform(0.0, 150.0, (4, 1, 3)), rng.uniform(0.03, 0.1, (4, 2)))
            program = PlacementProgram(model)
            linear = program.fill(np.zeros((1, 2)), outlook).linear()
            whole = np.zeros(program.columns, dtype=np.bool_)
            whole[program.blocks[1]] = True
            loose, best = HighsSolver().solve(linear), HighsSolver().solve(replace(linear, whole=whole))
            rounded = np.ceil(loose.x[program.blocks[1][:, 0]] - 1e-6)
            ratios.append(_money(model, outlook, rounded) / best.cost)
    return ratios


def _money(model: PlacementModel, outlook: PlacementOutlook, servers: Floats) -> float:
    """Return the cost of (W, L) servers; rounding up serves at least as much, so no requests are lost."""
    change = np.diff(servers, axis=0, prepend=0.0)
    on = np.array([centre.on_cost for centre in model.centres])
    off = np.array([centre.off_cost for centre in model.centres])
    running = float((servers * outlook.price).sum()) * model.step_seconds / 3600.0
    return running + float((np.maximum(change, 0.0) @ on + np.maximum(-change, 0.0) @ off).sum())
