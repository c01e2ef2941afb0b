"""Simulated machines: pods that run on them, how fast, how loaded, and when they finish.

Called by the fake nodes (`kubelets`) with the demo's simulated clock and by `world` with a virtual one. Last step of
the flow: bound pods become finish times, latencies and usage, which come back as events. Invariants: pure (time is
passed in and never goes back). A job's isolated seconds are worked exactly once. The outcome does not depend on the
calls of `advance`: speeds change only at starts, stops, finishes and multiples of `STEP_SECONDS`.

How fast a job runs (C millicores of the node, B requested by its batch pods, S service pods with u cores in use)::

    q = min(1, 1000 S / C)
    g = min(1, max(0.05 C, C - 1000 u) / B)
    speed = g * ((1 - q) / slowdown(type, 0, P') + q / slowdown(type, rate, P'))
    h = min(1, (C - g B) / 1000 u)

Here q is the share of its time on a core that a service uses. The batch pods get the share g of their requested cpu,
the services the share h of the cpu that they could use. P' is the pressure of the other batch pods, and the rate is
that of a mean service pod. Batch load spreads evenly over the cores. Each service core is then shared for min(1, B / C)
of the time, which is the f of the latency models.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from cotide_core.classes import WorkloadClass
from cotide_core.forecasts import MixBatch
from cotide_sim.cluster.one_machine import Machine, Running, Serving, shares
from cotide_sim.cluster.pod_load import Finished, NodeUsage, PodLoad, PodUsage, ServiceSample
from cotide_sim.interference.model import Interference
from cotide_sim.workloads.rates import Course

__all__ = ["Finished", "MachinePark", "NodeUsage", "PodLoad", "PodUsage", "ServiceSample"]

STEP_SECONDS: Final = 5.0
"""Interval for re-reading request rates for the speed of jobs; chosen: a twelfth of the usual minute of a trace."""
DEFAULT_LONE_SECONDS: Final = 30.0
"""Run time of a finite pod with neither lone seconds nor a known type; chosen."""


class MachinePark:
    """All simulated machines of one driver.

    Parameters
    ----------
    interference : the model of contention.
    origin_seconds : when request rates and steps begin.
    noise : standard deviation of the log of measured latencies; 0 for none.
    seed : of the noise only.
    """

    def __init__(
        self, interference: Interference, *, origin_seconds: float = 0.0, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.interference = interference
        self._saturation = interference.saturation_requests_per_second
        self._origin = origin_seconds
        self._now = -math.inf
        self._machines: dict[str, Machine] = {}
        self._node_of: dict[str, str] = {}
        self._finishes: list[tuple[float, str, int]] = []
        self._done: list[Finished] = []
        self._changed: dict[str, Machine] = {}
        """Machines with pods that changed at this moment; their speeds are set later, all in one go."""
        self._step = 0
        self._noise = noise
        self._generator = np.random.default_rng(seed)

    def add_node(self, name: str, millicores: int, memory_bytes: int) -> None:
        """Add a machine; a known one keeps its pods and takes the new size at the next change."""
        known = self._machines.get(name)
        if known is not None:
            known.millicores, known.memory_bytes = millicores, memory_bytes
            return
        self._machines[name] = Machine(name, millicores, memory_bytes, at=self._now)

    def remove_node(self, name: str) -> tuple[str, ...]:
        """Take a machine away and return the keys of the pods that stopped with it."""
        machine = self._machines.pop(name, None)
        self._changed.pop(name, None)
        if machine is None:
            return ()
        keys = (*machine.services, *machine.jobs)
        for key in keys:
            del self._node_of[key]
        return keys

    def start_pod(self, node: str, load: PodLoad, now: float) -> None:
        """Start a pod on a machine; a key that runs already is left unchanged.

        Raises
        ------
        KeyError
            When there is no such node: the driver may name only nodes that it added.
        """
        machine = self._machines[node]
        self._advance_to(now)
        if load.key in self._node_of:
            return
        self._node_of[load.key] = node
        self._settle(machine, self._now)
        if load.cls is WorkloadClass.ONLINE:
            step = load.rates_step_seconds
            cpu = Course(load.used_millicores, step) if load.used_millicores else None
            origin = self._origin if load.rates_origin_seconds is None else load.rates_origin_seconds
            machine.add_service(Serving(load, Course(load.rates, step), cpu, origin))
        else:
            machine.add_job(Running(load, node, self._isolated_seconds(load)))
        self._changed[node] = machine

    def stop_pod(self, key: str, now: float) -> bool:
        """Stop a pod before its end (deleted, evicted); False when no such pod runs."""
        self._advance_to(now)
        node = self._node_of.pop(key, None)
        if node is None:
            return False
        machine = self._machines[node]
        self._settle(machine, self._now)
        if key in machine.services:
            machine.remove_service(key)
        else:
            machine.remove_job(key)
        self._changed[node] = machine
        return True

    def advance(self, now: float) -> list[Finished]:
        """Let time pass up to ``now`` and return the finishes since the last call, in order of time and key.

        The result includes a finish during an earlier `start_pod` or `stop_pod`.
        """
        self._advance_to(now)
        done, self._done = self._done, []
        return done

    def next_finish(self) -> float | None:
        """Return when the next pod finishes if speeds stay as they are: ask again after each change; None for never."""
        if self._changed:
            changed, self._changed = list(self._changed.values()), {}
            self._set_speeds(changed)
        return self._next_known_finish()

    def _next_known_finish(self) -> float | None:
        """Return the next finish without looking at machines that changed at this moment."""
        while self._finishes:
            at, name, version = self._finishes[0]
            machine = self._machines.get(name)
            if machine is not None and machine.version == version:
                return at
            heapq.heappop(self._finishes)
        return None

    def remaining_lone_seconds(self, key: str) -> float | None:
        """Return the work left of a finite pod that runs, as of the last advance; None for any other key."""
        node = self._node_of.get(key)
        run = self._machines[node].jobs.get(key) if node is not None else None
        if run is None:
            return None
        return max(0.0, run.remaining - run.speed * (self._now - self._machines[run.node].at))

    def service_samples(self, now: float) -> list[ServiceSample]:
        """Measure every online pod that has request rates, at ``now``."""
        self._advance_to(now)
        loaded = [m for m in self._machines.values() if m.services]
        pods = [(machine, service) for machine in loaded for service in machine.services.values() if service.load.rates]
        if not pods:
            return []
        mixes = self._mixes(pods, now)
        latencies = self.interference.p95_milliseconds(mixes)
        if self._noise > 0.0:
            latencies = latencies * np.exp(self._noise * self._generator.standard_normal(len(pods)))
        return [
            ServiceSample(
                serving.load.key,
                machine.name,
                float(rate) * serving.load.rate_factor,
                float(latency) * serving.load.latency_factor,
            )
            for (machine, serving), rate, latency in zip(pods, mixes.requests_per_second, latencies, strict=True)
        ]

    def node_usage(self, now: float) -> list[NodeUsage]:
        """Return the usage of every machine at ``now``: services by their load, batch pods by their requests or
        shares.
        """
        self._advance_to(now)
        usages = []
        for machine in self._machines.values():
            memory, online = machine.service_memory_bytes, 0.0
            cpu = float(machine.batch_millicores)
            if machine.services:
                served = 1000.0 * self._service_load(machine, now)[0]
                cpu, online = served + cpu, shares(machine, served)[1] * served
            cpu = min(float(machine.millicores), cpu)
            usages.append(NodeUsage(machine.name, cpu, memory + machine.batch_memory_bytes, online, memory))
        return usages

    def pod_usage(self, now: float) -> list[PodUsage]:
        """Return the usage of every pod at ``now``; the pods of a machine add up to its `node_usage`."""
        self._advance_to(now)
        usages = []
        for machine in self._machines.values():
            name, at = machine.name, machine.at
            given, kept = shares(machine, 1000.0 * self._service_load(machine, now)[0])
            for key, service in machine.services.items():
                load = service.load
                used = kept * self._millicores(service, now)
                total = service.core_seconds + machine.kept * self._area(service, at, self._now) / 1000.0
                usages.append(PodUsage(key, name, load.container, used, load.memory_bytes, total))
            for key, run in machine.jobs.items():
                load = run.load
                used = given * load.millicores
                total = run.core_seconds + machine.given * load.millicores * (self._now - at) / 1000.0
                usages.append(PodUsage(key, name, load.container, used, load.memory_bytes, total))
        return usages

    def _isolated_seconds(self, load: PodLoad) -> float:
        if load.isolated_seconds is not None:
            return max(0.0, load.isolated_seconds)
        predicted = float(self.interference.isolated_seconds((load.type,), np.asarray([load.input_bytes]))[0])
        return predicted if math.isfinite(predicted) else DEFAULT_LONE_SECONDS

    def _advance_to(self, now: float) -> None:
        if now < self._now:
            return
        if self._now == -math.inf:
            self._now = now
            self._step = math.floor((now - self._origin) / STEP_SECONDS)
            for machine in self._machines.values():
                machine.at = now
            return
        while True:
            step = self._origin + (self._step + 1) * STEP_SECONDS
            # At this very moment speeds need not be set yet: more pods may start before the next query.
            finish = self._next_known_finish() if self._now == now else self.next_finish()
            if finish is not None and finish <= min(step, now):
                self._finish(finish)
            elif step <= now:
                self._now = step
                self._step += 1
                served = [machine for machine in self._machines.values() if machine.has_changing_speeds]
                for machine in served:
                    self._settle(machine, step)
                self._set_speeds(served)
            else:
                break
        self._now = now

    def _finish(self, at: float) -> None:
        """End the jobs of one machine that are done at ``at``."""
        _, name, _ = heapq.heappop(self._finishes)
        machine = self._machines[name]
        self._now = max(self._now, at)
        over = sorted(
            run.load.key
            for run in machine.jobs.values()
            if run.speed > 0.0 and machine.at + run.remaining / run.speed <= at
        )
        self._settle(machine, at)
        for key in over:
            run = machine.remove_job(key)
            del self._node_of[key]
            self._done.append(Finished(key, at, run.load.exit_code))
        self._changed[name] = machine

    def _settle(self, machine: Machine, now: float) -> None:
        """Book the work done since the machine's last change."""
        passed = now - machine.at
        if passed > 0.0:
            for run in machine.jobs.values():
                run.remaining -= run.speed * passed
                run.core_seconds += machine.given * run.load.millicores * passed / 1000.0
            for service in machine.services.values():
                service.core_seconds += machine.kept * self._area(service, machine.at, now) / 1000.0
        machine.at = now

    def _set_speeds(self, machines: Iterable[Machine]) -> None:
        """Give every job of settled machines its speed from now on, and each machine its next finish."""
        changed = list(machines)
        types: list[str] = []
        rates: list[float] = []
        others: list[float] = []
        for machine in changed:
            if machine.at != self._now:
                self._settle(machine, self._now)
            cores, rate = self._service_load(machine, self._now)
            machine.given, machine.kept = shares(machine, 1000.0 * cores)
            mean = rate / max(1, len(machine.services))
            capacity, batch = machine.millicores, machine.batch_millicores
            for run in machine.jobs.values():
                types.append(run.load.type)
                rates.append(mean)
                others.append((batch - run.load.millicores) / capacity)
        slowdowns = self._slowdowns(types, rates, others)
        for machine in changed:
            self._set_next_finish(machine, slowdowns)

    def _slowdowns(self, types: list[str], rates: list[float], others: list[float]) -> Iterator[tuple[float, float]]:
        """Yield the slowdown of each job without a service and next to one, computed in one call."""
        count = len(types)
        if not count:
            return iter(())
        requests, pressure = np.array([0.0] * count + rates), np.array(others + others)
        both = self.interference.slowdown(types + types, requests, pressure).tolist()
        return zip(both[:count], both[count:], strict=True)

    def _set_next_finish(self, machine: Machine, slowdowns: Iterator[tuple[float, float]]) -> None:
        """Take the slowdowns of a machine's jobs, set their speeds by the module's formula, find its next finish."""
        q = min(1.0, 1000.0 * len(machine.services) / machine.millicores)
        given, at, soonest = machine.given, machine.at, math.inf
        for run in machine.jobs.values():
            apart, beside = next(slowdowns)
            run.speed = speed = given * ((1.0 - q) / apart + q / beside)
            remaining = run.remaining
            finish = at + remaining / speed if remaining > 0.0 else at
            soonest = min(soonest, finish)
        machine.version += 1
        machine.next_finish = soonest
        if soonest < math.inf:
            heapq.heappush(self._finishes, (soonest, machine.name, machine.version))

    def _service_load(self, machine: Machine, now: float) -> tuple[float, float]:
        """Return (cores that all the machine's services could use, their requests/s)."""
        if not machine.services:
            return 0.0, 0.0
        if machine.load_at != now:
            rate = own_rate = cores = 0.0
            for service in machine.services.values():
                requests = service.rate.at(now - service.origin)
                rate += requests
                if service.cpu is None:
                    own_rate += requests
                else:
                    cores += service.cpu.at(now - service.origin) / 1000.0
            machine.load = own_rate / self._saturation + cores, rate
            machine.load_at = now
        return machine.load

    def _millicores(self, one: Serving, now: float) -> float:
        elapsed = now - one.origin
        if one.cpu is not None:
            return one.cpu.at(elapsed)
        return 1000.0 * one.rate.at(elapsed) / self._saturation

    def _area(self, one: Serving, since: float, until: float) -> float:
        """Return the millicore-seconds that a service could use between two moments."""
        since, until = since - one.origin, until - one.origin
        if one.cpu is not None:
            return one.cpu.area(since, until)
        return 1000.0 * one.rate.area(since, until) / self._saturation

    def _mixes(self, pods: Sequence[tuple[Machine, Serving]], now: float) -> MixBatch:
        """Return one row for each (machine, online pod)."""
        types = tuple(sorted({run.load.type for machine, _ in pods for run in machine.jobs.values()}))
        column = {name: index for index, name in enumerate(types)}
        counts, sizes = np.zeros((2, len(pods), len(types)))
        rates, others, pressure = np.zeros((3, len(pods)))
        for row, (machine, serving) in enumerate(pods):
            rates[row] = serving.rate.at(now - serving.origin)
            others[row] = max(0.0, self._service_load(machine, now)[1] - rates[row])
            pressure[row] = machine.batch_millicores / machine.millicores
            for run in machine.jobs.values():
                counts[row, column[run.load.type]] += 1.0
                sizes[row, column[run.load.type]] += run.load.input_bytes
        return MixBatch(rates, others, np.full(len(pods), np.nan), pressure, types, counts, sizes)
