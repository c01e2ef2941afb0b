"""The quadratic program of dynamic service placement over a horizon (Zhang and Boutaba 2014, eqs. 1-5).

Built once for a `PlacementModel`, filled at every step; answered by a `QuadraticSolver`; read by `placement_plan`.
Columns, for W steps, L data centres, V networks, E pairs within the delay:

    x (W, E)     servers of a data centre for a network
    n (W, L)     servers of a data centre, the sum of its x
    up, down (W, L)  the positive and the negative part of u, eq. 1 and 3
    s (W, V)     requests per second that find no server, eq. 4
    o (W, L)     servers beyond the capacity, eq. 5

Penalties are linear and quadratic in s and o, which keeps the program's quadratic part diagonal. Modelled directly:
the matrix is made once, a step fills two vectors.
"""

from __future__ import annotations

import numpy as np

from cotide_core.errors import InputError
from cotide_core.provisioning.placement_model import PlacementModel, PlacementOutlook
from cotide_core.provisioning.programs import Floats, QuadraticProgram, Shift, SparseMatrix, Triplets

SECONDS_PER_HOUR = 3600.0


class PlacementProgram:
    """The program's fixed matrix, and the indices of its columns and rows."""

    def __init__(self, model: PlacementModel) -> None:
        """Check the model and lay out the matrix."""
        model.check()
        self.model = model
        self.pairs = np.argwhere(model.usable())
        self.rate = 1.0 / model.servers_per_rate()[self.pairs[:, 0], self.pairs[:, 1]]
        steps, centres, networks = model.horizon, len(model.centres), len(model.networks)
        shapes = [(steps, len(self.pairs)), *[(steps, centres)] * 3, (steps, networks), (steps, centres)]
        ends = np.cumsum([0, *(rows * columns for rows, columns in shapes)])
        self.blocks = [
            np.arange(first, last).reshape(shape) for first, last, shape in zip(ends, ends[1:], shapes, strict=False)
        ]
        self.columns = int(ends[-1])
        self.matrix = self._matrix()
        rows = (self.total, self.change, self.demand, self.capacity, self.overflow)
        self._shift = Shift.of(self.blocks, rows)
        quadratic = np.zeros(self.columns)
        quadratic[self.blocks[4]] = model.level.quadratic_penalty * model.step_seconds / SECONDS_PER_HOUR
        self._quadratic = quadratic

    def _matrix(self) -> SparseMatrix:
        model, entries = self.model, Triplets()
        steps, centres, networks = model.horizon, len(model.centres), len(model.networks)
        x, n, up, down, short, over = self.blocks
        centre_of, network_of = self.pairs.T
        total = self.total = np.arange(steps * centres).reshape(steps, centres)
        entries.add(total, n, 1.0)
        entries.add(total[:, centre_of], x, -1.0)
        self.change = total.size + total
        entries.add(self.change, n, 1.0)
        entries.add(self.change[1:], n[:-1], -1.0)
        entries.add(self.change, up, -1.0)
        entries.add(self.change, down, 1.0)
        self.equalities = 2 * total.size
        self.demand = self.equalities + np.arange(steps * networks).reshape(steps, networks)
        entries.add(self.demand[:, network_of], x, -self.rate[None])
        entries.add(self.demand, short, -1.0)
        first = self.equalities + self.demand.size
        self.capacity = first + total
        entries.add(self.capacity, n, 1.0)
        entries.add(self.capacity, over, -1.0)
        self.overflow = first + total.size + total
        entries.add(self.overflow, over, 1.0)
        return entries.matrix(first + 2 * total.size, self.columns)

    def fill(self, servers: Floats, outlook: PlacementOutlook) -> QuadraticProgram:
        """Return the program of one step.

        ``servers``: (L,) that run now, the initial state.

        Raises
        ------
        InputError
            When the state or the outlook can't be planned for.
        """
        outlook.check(self.model)
        model = self.model
        if servers.shape != (len(model.centres),) or not np.isfinite(servers).all() or servers.min() < 0:
            raise InputError("needs one finite number >= 0 for each data centre", field="servers")
        x, n, up, down, short, over = self.blocks
        hours = model.step_seconds / SECONDS_PER_HOUR
        cost = np.zeros(self.columns)
        egress = model.egress[self.pairs[:, 0], self.pairs[:, 1]] * self.rate * model.step_seconds
        cost[x] = egress[None]
        cost[n] = hours * outlook.price
        cost[up] = [centre.on_cost for centre in model.centres]
        cost[down] = [centre.off_cost for centre in model.centres]
        cost[short] = model.level.penalty * model.step_seconds
        cost[over] = model.overflow_penalty * hours
        bound = np.zeros(self.matrix.rows)
        bound[self.change[0]] = servers
        bound[self.demand] = -outlook.demand
        capacity = np.array([centre.servers for centre in model.centres])[None]
        if outlook.available is not None:
            capacity = capacity * outlook.available
        bound[self.capacity] = capacity
        bound[self.overflow] = capacity * np.array([centre.overflow for centre in model.centres])[None]
        return QuadraticProgram(self.matrix, self._quadratic, cost, bound, self.equalities, self._shift)
