"""The linear program of container-based provisioning over a horizon (Zhang and Boutaba 2014, eqs. 6-13).

Built once for a `CapacityModel`, filled at every step by `CapacityProgram.fill`. A `LinearSolver` answers it, and
`capacity_plan` reads it. Columns, for W steps, M machine types, E pairs of type and class that fit, K classes, J
levels:

    z (W, M)     machines powered, eq. 6; <= those available
    up (W, M)    machines switched on at the step, the positive part of delta
    down (W, M)  machines switched off, the negative part
    x (W, E)     containers by type and class, eq. 7; pairs with psi = 0 have no column, which is eq. 8
    y (W, K, J + 1)  containers that serve a slice of the class's demand, between two quantiles or at the level

Rows: z follows up and down (eq. 6). Containers fit on the machines up (eq. 13; eq. 8 follows from it). Served demand
has its containers (the inner sum of eq. 10). Recently started machines stay on. Departures from the paper, each stated
where it is made. Sigma of eq. 7 costs nothing in the paper, so x is free from step to step. The concave f of eq. 10 is
the expected number of needed containers under the forecast's distribution times their value (`demand_slices`). A
machine that boots draws power and holds nothing.
"""

from __future__ import annotations

import numpy as np

from cotide_core.provisioning.capacity_model import CapacityModel, Outlook, Park, check_park
from cotide_core.provisioning.programs import Floats, LinearProgram, SparseMatrix, Triplets


class CapacityProgram:
    """The program's fixed matrix, and the indices of its columns."""

    def __init__(self, model: CapacityModel, levels: int, *, whole: bool = False) -> None:
        """Check the model and lay out the matrix.

        ``levels``: J, of the outlooks to come. ``whole``: machines and containers must be whole numbers. This gives the
        integral optimum, for small instances.
        """
        model.check()
        self.model, self.levels = model, levels
        steps, kinds, classes = model.horizon, len(model.machines), len(model.classes)
        self.pairs = np.argwhere(model.hosts())
        slices = levels + 1
        widths = [steps * kinds] * 3 + [steps * len(self.pairs), steps * classes * slices]
        ends = np.cumsum([0, *widths])
        shapes = [(steps, kinds)] * 3 + [(steps, len(self.pairs)), (steps, classes, slices)]
        self._columns = [
            np.arange(first, last).reshape(shape) for first, last, shape in zip(ends, ends[1:], shapes, strict=False)
        ]
        self.columns = int(ends[-1])
        self._held = [kind for kind, machine in enumerate(model.machines) if machine.minimum_up_steps > 0]
        self.matrix = self._matrix()
        whole_columns = np.zeros(self.columns, dtype=np.bool_)
        whole_columns[: ends[4]] = True
        self._whole = whole_columns if whole else None

    def _matrix(self) -> SparseMatrix:
        model, entries = self.model, Triplets()
        steps, kinds, classes = model.horizon, len(model.machines), len(model.classes)
        z, up, down, x, y = self._columns
        capacity, sizes = model.capacity, model.sizes
        resources = capacity.shape[1]
        self.balance = np.arange(steps * kinds).reshape(steps, kinds)
        entries.add(self.balance, z, 1.0)
        entries.add(self.balance[1:], z[:-1], -1.0)
        entries.add(self.balance, up, -1.0)
        entries.add(self.balance, down, 1.0)
        first = self.balance.size
        self.room = first + np.arange(steps * kinds * resources).reshape(steps, kinds, resources)
        entries.add(self.room, z[:, :, None], -capacity[None])
        for kind, machine in enumerate(model.machines):
            for back in range(machine.boot_steps):
                rows = self.room[back:, kind]
                entries.add(rows, up[: len(rows), kind, None], capacity[None, kind])
        omega = np.array([wanted.overprovisioning for wanted in model.classes])
        if len(self.pairs):
            kind_of, class_of = self.pairs.T
            entries.add(self.room[:, kind_of], x[:, :, None], (omega[:, None] * sizes)[class_of][None])
        first += self.room.size
        self.served = first + np.arange(steps * classes).reshape(steps, classes)
        entries.add(self.served[:, :, None], y, 1.0)
        if len(self.pairs):
            entries.add(self.served[:, class_of], x, -1.0)
        first += self.served.size
        self.stay = first + np.arange(steps * len(self._held)).reshape(steps, len(self._held))
        for index, kind in enumerate(self._held):
            entries.add(self.stay[:, index], z[:, kind], 1.0)
            for back in range(min(steps, model.machines[kind].minimum_up_steps)):
                entries.add(self.stay[back:, index], up[: steps - back, kind], -1.0)
        return entries.matrix(first + self.stay.size, self.columns)

    def fill(self, park: Park, outlook: Outlook) -> LinearProgram:
        """Return the program of one step.

        Raises
        ------
        InputError
            When the park or the outlook is invalid.
        """
        check_park(park, self.model)
        outlook.check(self.model)
        model = self.model
        z, _, _, _, y = self._columns
        lower, upper = np.zeros(self.columns), np.full(self.columns, np.inf)
        upper[z] = park.available[None]
        value, level = model.worth(max(float(outlook.price.mean()), 0.0))
        upper[y], needed = demand_slices(outlook, level)
        bottom = np.full(self.matrix.rows, -np.inf)
        top = np.zeros(self.matrix.rows)
        bottom[self.balance] = 0.0
        bottom[self.balance[0]] = top[self.balance[0]] = park.powered
        if self._held:
            limit = np.minimum(park.held, park.available[:, None])[self._held].T
            bottom[self.stay], top[self.stay] = limit, np.inf
        # More booting than powered, after machines have vanished, would leave no room at all: nothing is up then.
        booting = np.minimum(park.booting, park.available[:, None])
        top[self.room] = -(booting.T[:, :, None] * model.capacity[None])
        return LinearProgram(
            self.matrix, self._cost(outlook, value[:, None] * needed), lower, upper, bottom, top, self._whole
        )

    def _cost(self, outlook: Outlook, worth: Floats) -> Floats:
        """Return the cost of each column, in money for the horizon: eq. 9 and 11, less eq. 10.

        ``worth``: (K, J + 1) money for an hour of a container of each slice.
        """
        model = self.model
        hours = model.step_seconds / 3600.0
        z, up, down, x, y = self._columns
        cost = np.zeros(self.columns)
        idle = np.array([kind.power.idle for kind in model.machines]) / 1000.0
        rent = np.array([kind.hourly_cost for kind in model.machines])
        cost[z] = hours * (idle[None] * outlook.price[:, None] + rent[None])
        cost[up] = [kind.on_cost for kind in model.machines]
        cost[down] = [kind.off_cost for kind in model.machines]
        if len(self.pairs):
            kind_of, class_of = self.pairs.T
            watts = model.container_watts()[kind_of, class_of]
            # If used power were paid for, an empty container would earn money: it uses none.
            cost[x] = hours * np.maximum(outlook.price, 0.0)[:, None] * watts[None] / 1000.0
        cost[y] = -hours * worth[None]
        return cost

    def split(self, solved: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return z, up, down (W, M), containers (W, M, K) and served (W, K) of a solution."""
        model = self.model
        z, up, down, x, y = (solved[columns] for columns in self._columns)
        containers = np.zeros((model.horizon, len(model.machines), len(model.classes)))
        if len(self.pairs):
            containers[:, self.pairs[:, 0], self.pairs[:, 1]] = x
        return z, up, down, containers, y.sum(axis=2)

    def machine_columns(self, values: Floats) -> Floats:
        """Return (W, M): of values by column, those of the machines powered."""
        taken: Floats = values[self._columns[0]]
        return taken

    def spent(self, filled: LinearProgram, solved: Floats) -> float:
        """Return the money of the horizon: the cost without the worth of the served demand."""
        served = self._columns[4].ravel()
        return float(filled.cost @ solved - filled.cost[served] @ solved[served])


def demand_slices(outlook: Outlook, level: Floats) -> tuple[Floats, Floats]:
    """Return (W, K, J + 1) containers in each slice of the demand, and (K, J + 1) the chance that each is needed.

    Between two quantiles the distribution is a straight line. A slice that holds the level of its class is cut there.
    The part below is needed with a chance above 1 - level, the part above with a smaller one. All below the lowest
    quantile counts as needed; above the highest one nothing is known.

    Parameters
    ----------
    level : (K,) in [0, 1).
    """
    chance = np.asarray(outlook.probabilities)
    knots = np.sort(np.column_stack((np.tile(chance, (len(level), 1)), np.clip(level, chance[0], chance[-1]))), axis=1)
    demand = np.maximum.accumulate(outlook.demand, axis=2)
    above = np.clip(np.searchsorted(chance, knots, side="left"), 1, max(len(chance) - 1, 1))
    if len(chance) == 1:
        at = np.repeat(demand, 2, axis=2)
    else:
        share = (knots - chance[above - 1]) / (chance[above] - chance[above - 1])
        rows = np.arange(len(level))[:, None]
        low, high = demand[:, rows, above - 1], demand[:, rows, above]
        at = low + share[None] * (high - low)
    widths: Floats = np.maximum(np.diff(at, axis=2, prepend=0.0), 0.0)
    middle = (knots[:, 1:] + knots[:, :-1]) / 2.0
    needed: Floats = np.column_stack((np.ones(len(level)), 1.0 - middle))
    return widths, needed
