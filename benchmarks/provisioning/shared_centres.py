"""Several services that share data centres: one program over all, beside one after the other in two orders.

    python benchmarks/provisioning/shared_centres.py [--seeds 5] [--hours 48]

Worlds are generated: four services, three data centres, four networks; a lost request costs from 1e-5 to 1e-3, a
replica takes 1 or 2 servers, rates come in daily waves and are known in advance to everybody. ``room`` is the capacity
of all over the mean need. Turns are those of `cotide place`; what is set runs within its hour, and what finds no room
in its data centre waits there, the dearest last. Rivals plan one service after the other, each in the room that those
before take or still hold: in the order of the file, which is by chance, or whom a server is worth most first. Printed
are means over the seeds, in brackets the least and the most.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cotide_core.provisioning.placement_model import ServiceLevel
from cotide_lab.experiments.placement.experiment import route
from cotide_operator.provisioning.placing import PlaceSettings, Seen, Turn, plan_turns

Floats = NDArray[np.float64]
CENTRES, NETWORKS, HORIZON = 3, 4, 12
HOUR = 3600.0
ON_COST = 0.02


@dataclass(frozen=True, slots=True)
class World:
    """One seed: the file, requests per second by service (hours, networks), and (hours, centres) prices."""

    settings: PlaceSettings
    demand: Mapping[str, Floats]
    price: Floats

    @classmethod
    def of(cls, seed: int, room: float, hours: int) -> World:
        rng = np.random.default_rng(seed)
        count, at = hours + HORIZON, np.arange(hours + HORIZON)
        services, demand, need = {}, {}, 0.0
        for number in range(4):
            name, rate = f"s{number}", float(rng.uniform(20, 80))
            services[name] = {
                "deployment": name, "delaySeconds": float(rng.uniform(0.12, 0.2)), "serviceRate": rate,
                "penaltyPerRequest": float(10 ** rng.uniform(-5, -3)), "size": float(rng.choice([1.0, 2.0])),
            }  # fmt: skip
            wave = 1 + 0.7 * np.sin(2 * np.pi * (at / 24 + rng.uniform()))[:, None]
            demand[name] = rng.uniform(50, 400, NETWORKS) * wave * rng.uniform(0.9, 1.1, (count, NETWORKS))
            need += float(demand[name].sum(axis=1).mean()) / rate * services[name]["size"] * 1.3
        shares = rng.dirichlet(np.full(CENTRES, 4.0)) * room * need
        centres = [
            {
                "name": f"c{number}", "context": f"c{number}", "servers": int(share), "onCost": ON_COST,
                "delays": {f"n{network}": float(rng.uniform(0.01, 0.14)) for network in range(NETWORKS)},
            }
            for number, share in enumerate(shares)
        ]  # fmt: skip
        price = 0.1 + 0.05 * np.sin(2 * np.pi * (at[:, None] / 24 + rng.uniform(0, 1, CENTRES)))
        return cls(
            PlaceSettings.model_validate({"stepSeconds": HOUR, "centres": centres, "services": services}), demand, price
        )


SeenAll = Mapping[str, Mapping[str, Seen | None]]
Plan = Callable[[World, Mapping[str, Floats], Floats, SeenAll], dict[str, Turn]]


def together(world: World, demand: Mapping[str, Floats], price: Floats, seen: SeenAll) -> dict[str, Turn]:
    return plan_turns(world.settings, demand, price, seen)


def one_after_the_other(order: Callable[[World], list[str]]) -> Plan:
    def plan(world: World, demand: Mapping[str, Floats], price: Floats, seen: SeenAll) -> dict[str, Turn]:
        taken, turns = dict.fromkeys((one.name for one in world.settings.centres), 0.0), {}
        for name in order(world):
            service = world.settings.services[name]
            centres = tuple(
                one.model_copy(update={"servers": max(int(one.servers - taken[one.name]), 0)})
                for one in world.settings.centres
            )
            alone = world.settings.model_copy(update={"services": {name: service}, "centres": centres})
            turns |= plan_turns(alone, {name: demand[name]}, price, {name: seen[name]})
            for centre, count in turns[name].wanted.items():
                there = seen[name][centre]
                taken[centre] += service.size * max(count, there.replicas if there else 0)
        return turns

    return plan


def by_chance(world: World) -> list[str]:
    return list(world.settings.services)


def by_urgency(world: World) -> list[str]:
    """Whom a server is worth most: by what its requests cost when they are lost."""
    services = world.settings.services

    def worth(name: str) -> float:
        one = services[name]
        return one.penalty_per_request * one.service_rate / one.size

    return sorted(services, key=worth, reverse=True)


def ready(
    world: World, asked: Mapping[str, dict[str, int]], before: Mapping[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return what runs of what is asked for: first what ran before, then as far as there is room."""
    services = world.settings.services
    runs = {name: {key: min(count, before[name][key]) for key, count in of.items()} for name, of in asked.items()}
    for centre in world.settings.centres:
        free = centre.servers - sum(service.size * runs[name][centre.name] for name, service in services.items())
        for name in by_urgency(world):
            more = min(asked[name][centre.name] - runs[name][centre.name], int(free / services[name].size + 1e-9))
            runs[name][centre.name] += more
            free -= more * services[name].size
    return runs


class Outcome(NamedTuple):
    """Money of all, of lost requests, and the share of requests lost by whom a server is worth most."""

    cost: float
    lost: float
    of_dearest: float


def run(world: World, plan: Plan, hours: int) -> Outcome:
    settings = world.settings
    names = [centre.name for centre in settings.centres]
    delays = np.array([[centre.delays[network] for network in settings.networks] for centre in settings.centres])
    asked = {name: dict.fromkeys(names, 0) for name in settings.services}
    runs = asked
    cost, lost = 0.0, dict.fromkeys(runs, 0.0)
    for hour in range(hours):
        ahead = {name: rates[hour : hour + HORIZON] for name, rates in world.demand.items()}
        seen = {name: {key: Seen(count, runs[name][key]) for key, count in of.items()} for name, of in asked.items()}
        turns = plan(world, ahead, world.price[hour : hour + HORIZON], seen)
        before_all, asked = runs, {name: of | turns[name].set_now for name, of in asked.items()}
        runs = ready(world, asked, before_all)
        for name, service in settings.services.items():
            before = np.array(list(before_all[name].values()))
            now = np.array(list(runs[name].values()), dtype=float)
            per_rate = ServiceLevel(service.delay_seconds, service.service_rate).servers_per_rate(delays)
            served = route(turns[name].plan.split, now, per_rate, ahead[name][0])
            missing = max(float(ahead[name][0].sum() - served.sum()), 0.0) * HOUR
            lost[name] += missing
            cost += float(now @ world.price[hour]) * service.size + missing * service.penalty_per_request
            cost += ON_COST * float(np.maximum(now - before, 0.0).sum())
    penalties = {name: service.penalty_per_request for name, service in settings.services.items()}
    dearest = by_urgency(world)[0]
    money = sum(lost[name] * penalties[name] for name in lost)
    return Outcome(cost, money, lost[dearest] / (world.demand[dearest][:hours].sum() * HOUR))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hours", type=int, default=48)
    options = parser.parse_args()
    plans = {"file": one_after_the_other(by_chance), "urgent": one_after_the_other(by_urgency), "together": together}
    print("room  over the file's order       over most urgent first      lost by the dearest: file, urgent, together")
    for room in (0.6, 0.9, 1.2, 2.0, 6.0):
        found: dict[str, list[Outcome]] = {name: [] for name in plans}
        for seed in range(options.seeds):
            world = World.of(seed, room, options.hours)
            for name, plan in plans.items():
                found[name].append(run(world, plan, options.hours))
        ours = np.array([one.cost for one in found["together"]])
        cells = []
        for rival in ("file", "urgent"):
            ratio = ours / [one.cost for one in found[rival]]
            cells.append(f"{ratio.mean():.3f} ({ratio.min():.3f}-{ratio.max():.3f})")
        shares = ", ".join(f"{np.mean([one.of_dearest for one in found[name]]):.1%}" for name in plans)
        print(f"{room:<6g}{cells[0]:<28}{cells[1]:<28}{shares}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
