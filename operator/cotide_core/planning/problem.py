"""The input of a plan, in arrays: waiting pods by group, and the demand of each group on each node.

Made by `planning` for each plan, read by the plan methods. Pods of one shape and one planned run time form a group: a
kernel treats them alike. Invariant: the same pods in the same state give the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Booleans, Floats, Integers
from cotide_core.kernels.machine_plan import Demands, stretched
from cotide_core.placement.capacity import PlannedCapacity
from cotide_core.placement.placer import Placer
from cotide_core.planning.availability import PHYSICAL, Availability, planned_length
from cotide_core.planning.qos_exclusions import PlanGuard
from cotide_core.queueing.queued_pod import QueuedPod
from cotide_core.state.snapshot import Snapshot

RATE_STEPS: Final = 64
"""Steps of a node's rate, each twice the one before, for the order of nodes in guarded plans (chosen: the rate
dominates the risk).
"""


class PlanProblem:
    """n pods in G groups on N nodes.

    Parameters
    ----------
    waiting : in the order of planning.
    seconds : the planned run time of a pod.
    guard : the refusals of the latency guard; None considers resources only.
    beside : the planned run time of a pod that starts next to a reservation; None for ``seconds``.

    Attributes
    ----------
    group : (n,) of each pod.
    firsts : one pod of each group.
    length_beside : (G,) as ``length``, for pods that start next to a reservation.
    need, take, length, kind, fit, slot, stretch, may, soft : see `kernels.machine_plan`.
    amounts : (G, 2) millicores and bytes, plain and reclaimed.
    used : the needed resources, of those of the availability: the others refuse no pod.
    slots : rows that the kernel's bounds take.
    """

    def __init__(
        self,
        waiting: Sequence[QueuedPod],
        snapshot: Snapshot,
        placer: Placer,
        availability: Availability,
        seconds: Callable[[QueuedPod], float],
        guard: PlanGuard | None,
        beside: Callable[[QueuedPod], float] | None = None,
    ) -> None:
        type_of = availability.stretches.type_of
        groups: dict[tuple[object, float, float, str], int] = {}
        self.firsts: list[QueuedPod] = []
        members: list[int] = []
        lasts: list[tuple[int, int]] = []
        for entry in waiting:
            planned = seconds(entry)
            shorter = planned if beside is None else beside(entry)
            number = groups.setdefault((entry.shape, planned, shorter, type_of(entry.pod)), len(groups))
            if number == len(self.firsts):
                self.firsts.append(entry)
                lasts.append((planned_length(planned), planned_length(shorter)))
            members.append(number)
        firsts = self.firsts
        # A guard distinguishes shapes that fit on the same nodes, and slack distinguishes gratis pods from batch.
        fits: dict[Hashable, int] = {}
        plain = guard is None and availability.capacity.by_requests
        shapes = [first.shape.fit if plain else first.shape for first in firsts]
        self.group: Integers = np.array(members, np.int64)
        self.fit: Integers = np.array([fits.setdefault(shape, len(fits)) for shape in shapes], np.int64)
        kinds: dict[str, int] = {}
        self.kind: Integers = np.array([kinds.setdefault(type_of(first.pod), len(kinds)) for first in firsts], np.int64)
        take = np.array([availability.vector(first.pod.requests) for first in firsts])
        need = take.copy()
        if availability.capacity.by_requests:
            need[[first.shape.fit.physical is None for first in firsts], -PHYSICAL:] = 0
        self.amounts: Integers = np.ascontiguousarray(take[:, -PHYSICAL:])
        self.used = np.flatnonzero(need.any(axis=0))
        # In rows: the kernel is compiled once for each layout of its arrays.
        self.need: Integers = np.ascontiguousarray(need[:, self.used])
        self.take: Integers = np.ascontiguousarray(take[:, self.used])
        # In rows of their own: the kernel is compiled once for each layout of its arrays.
        lengths = np.array(lasts, np.int64).T
        self.length: Integers = np.ascontiguousarray(lengths[0])
        self.length_beside: Integers = np.ascontiguousarray(lengths[1])
        rates = snapshot.service_rates
        self.stretch: Floats = np.array([availability.stretches.of_rows(kind, rates) for kind in kinds])
        rows = {int(row): first for row, first in zip(self.fit.tolist(), firsts, strict=True)}
        some = [rows[row].shape for row in range(len(fits))]
        self.may: Booleans = np.array([placer.feasibility.allowed(shape.fit, snapshot) for shape in some])
        self.soft: Integers = np.array([placer.feasibility.matches(shape.fit, snapshot).soft for shape in some])
        if guard is not None:
            # Among equal nodes one without a service comes first (Ou 2024, section 4.3), then one with a lower rate.
            doublings = np.clip(np.frexp(rates)[1], 0, RATE_STEPS - 2)
            self.soft = RATE_STEPS * self.soft + np.where(snapshot.service_counts > 0, 1 + doublings, 0)
        self._shapes = some
        # A gang is tried at many moments, so an earlier found start does not bound its later ones.
        several = (np.bincount(self.group) > 1) & np.array([not first.shape.gang for first in firsts])
        self.slot: Integers = np.where(several, np.cumsum(several), 0)
        self.slots = 1 + int(several.sum())

    def demands(self, group: Integers, machines: int, moment: int, *, beside: bool = False) -> Demands:
        """Return the demands of pods of these groups, (n,), on the nodes; the bounds hold for one call of a kernel.

        ``beside`` gives the lengths of pods that start next to a reservation.
        """
        length = self.length_beside if beside else self.length
        bound = np.full((self.slots, machines), moment, np.int64)
        return Demands(
            group, self.need, self.take, length, self.kind, self.stretch, self.fit, self.may, self.soft, self.slot,
            bound,
        )  # fmt: skip

    def held_at_last(self, availability: Availability) -> Booleans:
        """Return (G,) whether a node that may take the group can hold a pod of it after all running pods end."""
        rows = np.arange(len(availability.sizes))
        free = availability.free[rows, availability.sizes - 1][:, self.used]
        known: dict[tuple[int, bytes], bool] = {}
        held = []
        for fit, need in zip(self.fit.tolist(), self.need, strict=True):
            asked = fit, need.tobytes()
            if asked not in known:
                known[asked] = bool(((free[self.may[fit]] >= need) | (need == 0)).all(axis=1).any())
            held.append(known[asked])
        return np.array(held)

    def keep_off(self, capacity: PlannedCapacity) -> None:
        """Exclude the nodes that shapes can't use even after all pods there end."""
        for row, shape in enumerate(self._shapes):
            capacity.leave_out(shape, self.may[row])

    def refuse(self, guard: PlanGuard, snapshot: Snapshot) -> None:
        """Exclude the nodes that the guard refused to a shape."""
        for row, shape in enumerate(self._shapes):
            guard.leave_out(shape, snapshot, self.may[row])

    def lasts(self, index: int, row: int, *, beside: bool = False) -> int:
        """Return the planned microseconds of a pod on a row, with or without a start next to a reservation."""
        of = int(self.group[index])
        if beside:
            return stretched(int(self.length_beside[of]), float(self.stretch[self.kind[of], row]))
        return self.lasts_of(of, row)

    def lasts_of(self, of: int, row: int) -> int:
        """Return the same for the pods of a group."""
        return stretched(int(self.length[of]), float(self.stretch[self.kind[of], row]))
