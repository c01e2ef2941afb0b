"""A park of machines of several types under a stream of tasks: what capacity controllers are judged in.

Driven by `experiments.capacity`: `run_until` lets time pass, `set_targets` carries a plan's first step out. Machines to
be switched off take no more tasks and go off when their last one has ended: none is ever killed. Invariant: energy is
that of the measured power curves, counted exactly between events, whatever line the controller planned with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotide_core.provisioning.capacity_model import MachineType
from cotide_core.provisioning.power import JOULES_PER_KWH
from cotide_lab.provisioning import park_kernel as kernel
from cotide_lab.provisioning.park_kernel import BOOTING, DRAINING, OFF, UP, Floats, Integers
from cotide_lab.provisioning.task_stream import TaskStream
from cotide_lab.trace_replay.kernels.time_heap import heap_push

MILLISECONDS = 1000


class MachinePark:
    """N machines and the tasks on them; all are off at first."""

    def __init__(
        self,
        types: Sequence[MachineType],
        tasks: TaskStream,
        label: Integers,
        *,
        boot_seconds: Sequence[float],
        sizes: Floats,
        shares: Floats,
        devices: Sequence[int] = (),
    ) -> None:
        """Take machines and tasks.

        Parameters
        ----------
        label : (n,) size class of each task.
        boot_seconds : of each type.
        devices : of a machine of each type, such as GPUs; none where left out.
        sizes, shares : (S, R) mean tasks of the classes and (S,) how common each is, for the rule by fragmentation.
        """
        self.types, self.now = tuple(types), 0
        self._boot = [round(seconds * MILLISECONDS) for seconds in boot_seconds]
        counts = [kind.count for kind in types]
        kinds = np.repeat(np.arange(len(types)), counts)
        capacity = np.array([kind.capacity for kind in types], dtype=np.float64)[kinds]
        total, count, classes = len(kinds), len(tasks), len(sizes)
        none = np.full(count, -1, dtype=np.int64)
        arrival = np.round(tasks.arrival * MILLISECONDS).astype(np.int64)
        run = np.maximum(np.round(tasks.seconds * MILLISECONDS), 1).astype(np.int64)
        asked = np.zeros((count, 2)) if tasks.devices is None else np.ascontiguousarray(tasks.devices)
        self.tasks = kernel.Tasks(
            arrival, run, np.ascontiguousarray(tasks.need), label, none, none.copy(), asked, np.zeros(count, np.int64)
        )
        zeros = np.zeros(total, dtype=np.int64)
        numbers_of_devices = np.array(devices or (0,) * len(types), dtype=np.int64)[kinds]
        columns = np.arange(int(numbers_of_devices.max(initial=0)))
        whole = (columns < numbers_of_devices[:, None]).astype(np.float64)
        self.machines = kernel.Machines(
            kinds, capacity, capacity.copy(), zeros, zeros.copy(), np.zeros(total), zeros.copy(),
            np.concatenate(([0], np.cumsum(counts))), _curves(types), whole, whole.copy(),
        )  # fmt: skip
        empty = np.full(classes, -1, dtype=np.int64)
        numbers = np.zeros(classes, dtype=np.int64)
        room = 2 * count + 4 * total + 16
        self.queues = kernel.Queues(
            empty, empty.copy(), none.copy(), numbers, numbers.copy(), numbers.copy(),
            np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64), np.zeros(3, dtype=np.int64),
        )  # fmt: skip
        self.order_by_efficiency = np.array(
            sorted(range(len(types)), key=lambda number: peak_watts_per_cpu(types[number]))
        )
        self.rule = kernel.Rule(
            kernel.FIRST_FIT, self.order_by_efficiency, np.zeros((classes, len(types))),
            np.zeros((classes, len(types))), sizes, shares, 0.2,
        )  # fmt: skip
        self.switched_on = np.zeros(len(types))
        self.switched_off = np.zeros(len(types))

    def use_rule(self, name: int, weights: Floats | None = None) -> None:
        """Choose how tasks find machines; ``weights``: (S, M) shares, for the rule by turns."""
        if weights is not None:
            self.rule.weights[:] = weights
        self.rule = self.rule._replace(name=name)

    def run_until(self, seconds: float) -> None:
        """Let time pass; ``queues.most`` then holds the most tasks of each class that were there at one time."""
        until = round(seconds * MILLISECONDS)
        self.queues.most[:] = self.queues.there
        kernel.advance(self.tasks, self.machines, self.queues, self.rule, until)
        self.now = until
        for machine in np.flatnonzero(self.machines.state != OFF):
            kernel.settle(self.machines, int(machine), until)

    def set_targets(self, wanted: Floats) -> None:
        """Switch machines on and off so that ``wanted`` (M,) of each type are on, booting ones among them."""
        state, held = self.machines.state, self.machines.held
        for kind, target in enumerate(wanted):
            rows = np.arange(self.machines.first[kind], self.machines.first[kind + 1])
            on = rows[(state[rows] == BOOTING) | (state[rows] == UP)]
            missing = int(min(target, len(rows))) - len(on)
            if missing > 0:
                draining = rows[state[rows] == DRAINING]
                back = draining[np.argsort(-held[draining], kind="stable")][:missing]
                state[back] = UP
                self._boot_up(rows[state[rows] == OFF][: missing - len(back)], kind)
            elif missing < 0:
                # The emptiest first, of equals the last ones, since tasks gather on the first.
                leaving = on[np.lexsort((-on, held[on]))][:-missing]
                self._let_go(leaving, kind)
        kernel.start_waiting(self.tasks, self.machines, self.queues, self.rule, -1, self.now)

    def _boot_up(self, machines: Integers, kind: int) -> None:
        for machine in machines:
            self.machines.since[machine] = self.now
            self.machines.state[machine] = BOOTING
            size = self.queues.scalar[0]
            event = len(self.tasks.arrival) + int(machine)
            self.queues.scalar[0] = heap_push(
                self.queues.times, self.queues.events, size, self.now + self._boot[kind], event
            )
        self.switched_on[kind] += len(machines)

    def _let_go(self, machines: Integers, kind: int) -> None:
        for machine in machines:
            kernel.settle(self.machines, int(machine), self.now)
            self.machines.state[machine] = DRAINING if self.machines.held[machine] else OFF
        self.switched_off[kind] += len(machines)

    def counts(self, *states: int) -> Floats:
        """Return (M,) machines of each type in any of the states."""
        chosen = np.isin(self.machines.state, states)
        return np.bincount(self.machines.kind[chosen], minlength=len(self.types)).astype(np.float64)

    def running(self) -> tuple[Integers, Floats]:
        """Return the size class and the age in seconds of every task that runs.

        One that ends at this very moment is among them: its machine gives its room back in the next step.
        """
        started = self.tasks.started[: self.queues.scalar[1]]
        ends = started + self.tasks.run[: len(started)]
        rows = np.flatnonzero((started >= 0) & (ends >= self.now))
        return self.tasks.label[rows], (self.now - started[rows]) / MILLISECONDS

    def kilowatt_hours(self) -> float:
        """Return the energy so far."""
        return float(self.machines.joules.sum()) / JOULES_PER_KWH

    def delays(self, first: float, last: float) -> Floats:
        """Return seconds from arrival to start of the tasks that came in [first, last); waiting ones up to now."""
        bounds = np.searchsorted(self.tasks.arrival, (round(first * MILLISECONDS), round(last * MILLISECONDS)))
        rows = slice(*bounds)
        started, arrival = self.tasks.started[rows], self.tasks.arrival[rows]
        return np.asarray(np.where(started >= 0, started, self.now) - arrival, dtype=np.float64) / MILLISECONDS


def peak_watts_per_cpu(kind: MachineType) -> float:
    """Return the watts at full load for a unit of cpu: what machines are ordered by where only energy counts."""
    return kind.power.watts[-1] / max(kind.capacity[0], 1e-9)


def _curves(types: Sequence[MachineType]) -> Floats:
    """Return (M, 11) watts at loads of 0, 10, ..., 100 %."""
    return np.array([kind.power.at(np.linspace(0.0, 1.0, 11)) for kind in types])
