"""The quadratic program of dynamic service placement over a horizon (Zhang and Boutaba 2014, eqs. 1-5).

Built once for a `PlacementModel`, filled at every step; answered by a `QuadraticSolver`; read by `placement_plan`.
Beyond the paper it has several services, which share the capacity of the data centres. Scarce servers go to the service
with the most expensive lost requests. Columns, for W steps, S services, L data centres, V networks, E triples within
the delay:

    x (W, E)        servers of a service in a data centre for a network
    n (W, S, L)     servers of a service in a data centre, the sum of its x
    up, down (W, S, L)  the positive and the negative part of u, eq. 1 and 3
    s (W, S, V)     requests per second that find no server, eq. 4
    o (W, L)        servers beyond the capacity, eq. 5

A falling service frees its room in the next step: services that change places are planned to begin in time. In the
first step this is the task of `placement_plan`, which knows the services that can go at once.

Penalties are linear and quadratic in s and o, which keeps the program's quadratic part diagonal. Modelled directly: the
matrix is made once, a step fills two vectors. Two blocks of rows limit the first step only, and bind nothing until
`narrow` sets them. They limit what a service may have in a data centre, and what may be added in one.
"""

from __future__ import annotations

from dataclasses import replace

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
        per_rate = model.servers_per_rate()
        self.triples = np.argwhere(np.isfinite(per_rate))
        """(E, 3) service, data centre and network."""
        self.rate = 1.0 / per_rate[tuple(self.triples.T)]
        self.sizes = np.array([level.size for level in model.services])
        steps, services, centres, networks = model.horizon, len(model.services), len(model.centres), len(model.networks)
        shapes: list[tuple[int, ...]] = [(steps, len(self.triples)), *[(steps, services, centres)] * 3]
        shapes += [(steps, services, networks), (steps, centres)]
        ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
        self.blocks = [
            np.arange(first, last).reshape(shape) for first, last, shape in zip(ends, ends[1:], shapes, strict=False)
        ]
        self.columns = int(ends[-1])
        self.owner = np.full(self.columns, services)
        """(columns,) index of the service; the last of all for the shared columns."""
        self.owner[self.blocks[0]] = self.triples[:, 0]
        for block in self.blocks[1:5]:
            self.owner[block] = np.arange(services)[:, None]
        self.matrix = self._matrix()
        rows = (self.total, self.change, self.demand, self.capacity, self.overflow, self.most[None], self.added[None])
        self._shift = Shift.of(self.blocks, rows)
        quadratic = np.zeros(self.columns)
        steep = np.array([level.quadratic_penalty for level in model.services])
        quadratic[self.blocks[4]] = steep[None, :, None] * model.step_seconds / SECONDS_PER_HOUR
        self._quadratic = quadratic

    def _matrix(self) -> SparseMatrix:
        entries = Triplets()
        x, n, up, down, short, over = self.blocks
        service_of, centre_of, network_of = self.triples.T
        sizes = self.sizes[:, None]
        total = self.total = np.arange(n.size).reshape(n.shape)
        entries.add(total, n, 1.0)
        entries.add(total[:, service_of, centre_of], x, -1.0)
        self.change = total.size + total
        entries.add(self.change, n, 1.0)
        entries.add(self.change[1:], n[:-1], -1.0)
        entries.add(self.change, up, -1.0)
        entries.add(self.change, down, 1.0)
        self.equalities = 2 * total.size
        self.demand = self.equalities + np.arange(short.size).reshape(short.shape)
        entries.add(self.demand[:, service_of, network_of], x, -self.rate[None])
        entries.add(self.demand, short, -1.0)
        first = self.equalities + self.demand.size
        self.capacity = first + np.arange(over.size).reshape(over.shape)
        entries.add(self.capacity[:, None], n, sizes)
        entries.add(self.capacity[1:, None], down[1:], sizes)
        entries.add(self.capacity, over, -1.0)
        self.overflow = self.capacity + over.size
        entries.add(self.overflow, over, 1.0)
        first += 2 * over.size
        self.most = first + np.arange(n[0].size).reshape(n[0].shape)
        entries.add(self.most, n[0], 1.0)
        first += self.most.size
        self.added = first + np.arange(over.shape[1])
        entries.add(self.added[None], up[0], sizes)
        return entries.matrix(first + self.added.size, self.columns)

    def fill(self, servers: Floats, outlook: PlacementOutlook) -> QuadraticProgram:
        """Return the program of one step.

        ``servers``: (S, L) that run now, the initial state.

        Raises
        ------
        InputError
            When the state or the outlook is invalid.
        """
        outlook.check(self.model)
        model = self.model
        shape = (len(model.services), len(model.centres))
        if servers.shape != shape or not np.isfinite(servers).all() or servers.min() < 0:
            raise InputError("needs one finite number >= 0 for each service and data centre", field="servers")
        x, n, up, down, short, over = self.blocks
        _, centre_of, network_of = self.triples.T
        hours = model.step_seconds / SECONDS_PER_HOUR
        cost = np.zeros(self.columns)
        cost[x] = (model.egress[centre_of, network_of] * self.rate * model.step_seconds)[None]
        cost[n] = hours * self.sizes[:, None] * outlook.price[:, None]
        cost[up] = [centre.on_cost for centre in model.centres]
        cost[down] = [centre.off_cost for centre in model.centres]
        cost[short] = np.array([level.penalty for level in model.services])[:, None] * model.step_seconds
        cost[over] = model.overflow_penalty * hours
        bound = np.zeros(self.matrix.rows)
        bound[self.change[0]] = servers
        bound[self.demand] = -outlook.demand
        capacity = bound[self.capacity] = self._capacity(outlook)
        above = bound[self.overflow] = capacity * np.array([centre.overflow for centre in model.centres])
        most = capacity + above + 1.0  # one more than possible: they must not share the capacity's duals
        bound[self.most] = most / self.sizes[:, None]
        bound[self.added] = most
        return QuadraticProgram(self.matrix, self._quadratic, cost, bound, self.equalities, self._shift)

    def narrow(self, program: QuadraticProgram, most: Floats, added: Floats) -> QuadraticProgram:
        """Return a filled program with narrower limits of its first step; inf keeps the limit.

        ``most``: (S, L) servers of a service in a data centre. ``added``: (L,) servers of size 1 that may be added.
        """
        bound = program.bound.copy()
        bound[self.most] = np.minimum(bound[self.most], most)
        bound[self.added] = np.minimum(bound[self.added], added)
        return replace(program, bound=bound, shift=None)

    def room(self, program: QuadraticProgram) -> Floats:
        """Return (L,) servers of size 1 that fit in the first step, overflow included."""
        room: Floats = program.bound[self.capacity[0]] + program.bound[self.overflow[0]]
        return room

    def _capacity(self, outlook: PlacementOutlook) -> Floats:
        capacity = np.array([centre.servers for centre in self.model.centres], dtype=np.float64)
        return capacity if outlook.available is None else capacity * outlook.available
