"""Figs. 9 and 10 of Wen et al.: HSA with DMNS, DMAS and BFD on 4,096 nodes, under switches of 32 to 256 ports.

Called by ``cotide experiment consolidation``.
Means over seeds, with the least and the largest. The figures are pictures without numbers; the text describes them, and
`missed_in_hierarchy` checks that description.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_lab.consolidation.bfd import bfd
from cotide_lab.consolidation.dmas import dmas
from cotide_lab.consolidation.dmns import dmns
from cotide_lab.consolidation.energy import energy
from cotide_lab.consolidation.hsa import hsa
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.metrics import local_transfer_ratio, total, weighted_transfer
from cotide_lab.consolidation.switch_tree import SwitchTree
from cotide_lab.experiments.consolidation.node_loads import KINDS, Kind, generated_instance

METHODS: Final[dict[str, Callable[[Instance], Outcome]]] = {"DMNS": dmns, "DMAS": dmas, "BFD": bfd}
PORTS: Final = (32, 64, 128, 256)
NODES: Final = 4096


@dataclass(frozen=True, slots=True)
class HierarchyRow:
    """One method under one kind of switch; transfers as shares of T.

    Attributes
    ----------
    nodes : mean nodes in use at the end; ``fewest`` by volume.
    first_level, upper_levels : transfer of level 1 and of all above.
    roldt : with its least and largest value over the seeds.
    weighted : net transfer times the level it crosses, over T.
    watts_saved : share of the watts before, servers and switches.
    """

    kind: str
    ports: int
    method: str
    nodes: float
    fewest: float
    first_level: float
    upper_levels: float
    roldt: float
    roldt_range: tuple[float, float]
    weighted: float
    watts_saved: float


def run_hierarchy(
    seeds: Sequence[int],
    *,
    nodes: int = NODES,
    ports: Sequence[int] = PORTS,
    progress: Callable[[str, float], object] = lambda _text, _share: None,
) -> list[HierarchyRow]:
    """Return a row for each input, kind of switch and method."""
    rows = []
    cases = [(kind, port) for kind in KINDS for port in ports]
    for at, (kind, port) in enumerate(cases):
        progress(f"HSA, {kind}, {port} ports", at / len(cases))
        rows += [_row(kind, port, name, seeds, nodes) for name in METHODS]
    return rows


def _row(kind: Kind, ports: int, name: str, seeds: Sequence[int], nodes: int) -> HierarchyRow:
    figures = []
    tree = SwitchTree.of_ports(nodes, ports)
    for seed in seeds:
        instance = generated_instance(kind, nodes, seed)
        found = hsa(instance, tree, METHODS[name])
        whole = total(instance)
        before = energy(instance, instance.outcome(instance.homes), tree).total
        figures.append(
            [
                found.outcome.nodes_used,
                instance.fewest_by_volume,
                found.level_transfers[0] / whole,
                sum(found.level_transfers[1:]) / whole,
                local_transfer_ratio(instance, found, ports),
                weighted_transfer(instance, found.outcome, tree) / whole,
                1 - energy(instance, found.outcome, tree).total / before,
            ]
        )
    table = np.array(figures)
    used, fewest, first, upper, roldt, weighted, saved = (float(column) for column in table.mean(axis=0))
    span = float(table[:, 4].min()), float(table[:, 4].max())
    return HierarchyRow(kind, ports, name, used, fewest, first, upper, roldt, span, weighted, saved)


def missed_in_hierarchy(rows: Sequence[HierarchyRow]) -> list[str]:
    """Return the statements of section VII-C that the rows do not confirm."""
    missed = []
    by_key = {(row.kind, row.ports, row.method): row for row in rows}
    ports = sorted({row.ports for row in rows})
    for kind in KINDS:
        for port in ports:
            totals = {name: _total(by_key[kind, port, name]) for name in METHODS}
            if min(totals, key=lambda name: totals[name]) != "DMNS":
                missed.append(f"{kind}, {port} ports: DMNS does not move least")
        for name in METHODS:
            upper = [by_key[kind, port, name].upper_levels for port in ports]
            if upper != sorted(upper, reverse=True):
                missed.append(f"{kind}, {name}: the transfer of level 2 and above does not fall with the ports")
            best = min(ports, key=lambda port: by_key[kind, port, name].roldt)
            if best != 64 and 64 in ports:
                missed.append(f"{kind}, {name}: most stable (least RoLDT) with {best} ports, the text states 64")
    return missed


def _total(row: HierarchyRow) -> float:
    return row.first_level + row.upper_levels
