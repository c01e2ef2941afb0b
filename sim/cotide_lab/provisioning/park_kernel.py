"""The park's events between two decisions: tasks arrive, start, end; machines come up and go down.

Called by `park.MachinePark.run_until`. One loop over the next arrival and a heap of ends and boots, in milliseconds.
Invariants: no machine ever holds more than its capacity, and no device, such as a GPU, more than itself. A task runs on
one machine and the same devices of it, from its start to its end. A task that fits starts, even while others wait for
more room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.kernels.compiled import compiled
from cotide_lab.provisioning.round_robin import next_type
from cotide_lab.trace_replay.kernels.time_heap import heap_pop, heap_push

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

OFF, BOOTING, UP, DRAINING = 0, 1, 2, 3
FIRST_FIT, ROUND_ROBIN, POWER_AND_FRAGMENTS = 0, 1, 2
"""Rules that choose a task's machine: types in a fixed order; types in turn by weight; the machine with the least rise
of power and fragmentation."""
SLACK = 1e-9
MOST_TRIED = 32
"""Waiting tasks of a class that are tried when room appears (chosen)."""


class Tasks(NamedTuple):
    """Tasks: arrival and run in milliseconds, need (n, R), size class; started and machine are written, -1 at first.

    ``devices``: (n, 2) how many devices a task takes, and how much of each. ``held``: (n,) is written, bit d for device
    d.
    """

    arrival: Integers
    run: Integers
    need: Floats
    label: Integers
    started: Integers
    machine: Integers
    devices: Floats
    held: Integers


class Machines(NamedTuple):
    """N machines by rising type: capacity and free (N, R), state, tasks on it, energy in joules so far, its last time.

    ``first``: (M + 1,) where each type begins. ``curve``: (M, P) watts at even loads. ``devices`` and
    ``device_capacity``: (N, D) what is free of each device, and what it has.
    """

    kind: Integers
    capacity: Floats
    free: Floats
    state: Integers
    held: Integers
    joules: Floats
    since: Integers
    first: Integers
    curve: Floats
    devices: Floats
    device_capacity: Floats


class Queues(NamedTuple):
    """Waiting tasks by class as linked lists, and a heap; ``scalar``: its size, the next task, how many ended."""

    head: Integers
    tail: Integers
    follower: Integers
    length: Integers
    most: Integers
    there: Integers
    times: Integers
    events: Integers
    scalar: Integers


class Rule(NamedTuple):
    """How tasks find machines: ``order`` (M,) types; weights and credit (S, M); sizes and shares of classes, (S, R)."""

    name: int
    order: Integers
    weights: Floats
    credit: Floats
    sizes: Floats
    shares: Floats
    blend: float


@compiled
def watts_of(machines: Machines, machine: int) -> float:
    """Return the watts of a machine now: its curve at its cpu load; idle while it boots."""
    state = machines.state[machine]
    if state == OFF:
        return 0.0
    curve = machines.curve[machines.kind[machine]]
    capacity = machines.capacity[machine, 0]
    load = 0.0
    if capacity > 0.0:
        load = (capacity - machines.free[machine, 0]) / capacity
    if load <= 0.0:
        return float(curve[0])
    position = min(load, 1.0) * (len(curve) - 1)
    below = min(int(position), len(curve) - 2)
    return float(curve[below] + (position - below) * (curve[below + 1] - curve[below]))


@compiled
def settle(machines: Machines, machine: int, now: int) -> None:
    """Count the energy of a machine up to now; called before its load or state changes."""
    machines.joules[machine] += watts_of(machines, machine) * (now - machines.since[machine]) / 1000.0
    machines.since[machine] = now


@compiled
def open_devices(free: Floats, devices: Floats) -> int:
    """Return the first so many devices of a machine that have so much free, bit d for device d; -1 for too few."""
    found, left = 0, devices[0]
    for device in range(len(free)):
        if left > 0 and free[device] + SLACK >= devices[1]:
            found |= 1 << device
            left -= 1
    return found if left <= 0 else -1


@compiled
def fits(machines: Machines, machine: int, need: Floats, devices: Floats) -> bool:
    """Whether a machine is up and has room for a task with whole devices or shares of one."""
    if machines.state[machine] != UP:
        return False
    for resource in range(len(need)):
        if need[resource] > machines.free[machine, resource] + SLACK:
            return False
    return devices[0] <= 0 or open_devices(machines.devices[machine], devices) >= 0


@compiled
def first_of_type(machines: Machines, kind: int, need: Floats, devices: Floats) -> int:
    """Return the first machine of a type with room, or -1: tasks gather on the first ones, the last ones get empty."""
    for machine in range(machines.first[kind], machines.first[kind + 1]):
        if fits(machines, machine, need, devices):
            return machine
    return -1


@compiled
def fragments(free: Floats, rule: Rule) -> float:
    """Return the expected cpu of a machine's free part that a task drawn from the classes could not use."""
    lost = 0.0
    for label in range(len(rule.shares)):
        for resource in range(len(free)):
            if rule.sizes[label, resource] > free[resource] + SLACK:
                lost += rule.shares[label] * free[0]
                break
    return lost


@compiled
def by_power_and_fragments(machines: Machines, need: Floats, devices: Floats, rule: Rule) -> int:
    """Return the machine with the least rise of power and fragmentation, or -1."""
    best, found = 0.0, -1
    after = np.empty(len(need))
    for machine in range(len(machines.kind)):
        if not fits(machines, machine, need, devices):
            continue
        curve = machines.curve[machines.kind[machine]]
        peak, capacity = curve[len(curve) - 1], machines.capacity[machine, 0]
        watts = watts_of(machines, machine)
        before = fragments(machines.free[machine], rule)
        for resource in range(len(need)):
            after[resource] = machines.free[machine, resource] - need[resource]
        kept = machines.free[machine, 0]
        machines.free[machine, 0] = after[0]
        power = (watts_of(machines, machine) - watts) / max(peak, 1e-9)
        machines.free[machine, 0] = kept
        broken = (fragments(after, rule) - before) / max(capacity, 1e-9)
        score = rule.blend * power + (1.0 - rule.blend) * broken
        if found < 0 or score < best - 1e-12:
            best, found = score, machine
    return found


@compiled
def machine_for(machines: Machines, label: int, need: Floats, devices: Floats, rule: Rule) -> int:
    """Return the machine that takes a task, or -1."""
    if rule.name == POWER_AND_FRAGMENTS:
        return by_power_and_fragments(machines, need, devices, rule)
    if rule.name == ROUND_ROBIN:
        kind = next_type(rule.weights[label], rule.credit[label])
        if kind >= 0:
            machine = first_of_type(machines, kind, need, devices)
            if machine >= 0:
                return machine
            rule.credit[label, kind] += 1.0  # it could not take its turn
    for index in range(len(rule.order)):
        machine = first_of_type(machines, rule.order[index], need, devices)
        if machine >= 0:
            return machine
    return -1


@compiled
def move_devices(tasks: Tasks, machines: Machines, task: int, machine: int, sign: int) -> None:
    """Take what a task holds of the devices of its machine (``sign`` -1), or give it back (1)."""
    for device in range(machines.devices.shape[1]):
        if (tasks.held[task] >> device) & 1:
            machines.devices[machine, device] += sign * tasks.devices[task, 1]


@compiled
def start(tasks: Tasks, machines: Machines, queues: Queues, task: int, machine: int, now: int) -> None:
    """Start a task on a machine that has room."""
    settle(machines, machine, now)
    for resource in range(tasks.need.shape[1]):
        machines.free[machine, resource] -= tasks.need[task, resource]
    if tasks.devices[task, 0] > 0:
        tasks.held[task] = open_devices(machines.devices[machine], tasks.devices[task])
    move_devices(tasks, machines, task, machine, -1)
    machines.held[machine] += 1
    tasks.started[task] = now
    tasks.machine[task] = machine
    queues.scalar[0] = heap_push(queues.times, queues.events, queues.scalar[0], now + tasks.run[task], task)


@compiled
def start_waiting(tasks: Tasks, machines: Machines, queues: Queues, rule: Rule, only: int, now: int) -> None:
    """Start what waits, class by class, each in its order; on machine ``only``, or on any for -1.

    Of a class the first `MOST_TRIED` are tried: one that fits nowhere does not hold up those behind it.
    """
    for label in range(len(queues.head)):
        before, task, tried = -1, queues.head[label], 0
        while task >= 0 and tried < MOST_TRIED:
            after = queues.follower[task]
            machine = -1
            if only >= 0:
                if fits(machines, only, tasks.need[task], tasks.devices[task]):
                    machine = only
            else:
                machine = machine_for(machines, label, tasks.need[task], tasks.devices[task], rule)
            tried += 1
            if machine < 0:
                before, task = task, after
                continue
            if before >= 0:
                queues.follower[before] = after
            else:
                queues.head[label] = after
            if after < 0:
                queues.tail[label] = before
            queues.length[label] -= 1
            start(tasks, machines, queues, task, machine, now)
            task = after


@compiled
def take_event(tasks: Tasks, machines: Machines, queues: Queues, rule: Rule) -> None:
    """Let the first event of the heap happen: a task ends, or a machine is up."""
    now, event = queues.times[0], queues.events[0]
    queues.scalar[0] = heap_pop(queues.times, queues.events, queues.scalar[0])
    count = len(tasks.arrival)
    if event >= count:
        machine = event - count
        if machines.state[machine] != BOOTING:
            return  # it was switched off before it was up
        settle(machines, machine, now)
        machines.state[machine] = UP
    else:
        machine = tasks.machine[event]
        settle(machines, machine, now)
        for resource in range(tasks.need.shape[1]):
            machines.free[machine, resource] += tasks.need[event, resource]
        move_devices(tasks, machines, event, machine, 1)
        machines.held[machine] -= 1
        queues.there[tasks.label[event]] -= 1
        queues.scalar[2] += 1
        if machines.held[machine] == 0:
            for resource in range(tasks.need.shape[1]):  # what additions left over does not gather
                machines.free[machine, resource] = machines.capacity[machine, resource]
            for device in range(machines.devices.shape[1]):
                machines.devices[machine, device] = machines.device_capacity[machine, device]
            if machines.state[machine] == DRAINING:
                machines.state[machine] = OFF
    start_waiting(tasks, machines, queues, rule, machine, now)


@compiled
def advance(tasks: Tasks, machines: Machines, queues: Queues, rule: Rule, until: int) -> None:
    """Let everything happen before ``until``."""
    count = len(tasks.arrival)
    while True:
        task = queues.scalar[1]
        arrives = tasks.arrival[task] if task < count else until
        happens = queues.times[0] if queues.scalar[0] > 0 else until
        if min(arrives, happens) >= until:
            break
        if happens <= arrives:
            take_event(tasks, machines, queues, rule)
            continue
        queues.scalar[1] = task + 1
        label = tasks.label[task]
        queues.there[label] += 1
        queues.most[label] = max(queues.most[label], queues.there[label])
        machine = machine_for(machines, label, tasks.need[task], tasks.devices[task], rule)
        if machine >= 0:
            start(tasks, machines, queues, task, machine, arrives)
            continue
        queues.follower[task] = -1
        if queues.tail[label] >= 0:
            queues.follower[queues.tail[label]] = task
        else:
            queues.head[label] = task
        queues.tail[label] = task
        queues.length[label] += 1
