"""Tables I and II of Wen et al. and Figs. 5, 7 and 8: KMNS, DMNS, DMAS and BFD under one switch, and ours.

Called by ``cotide experiment consolidation``.
Every figure is a mean over instances, with its least and largest mean over seeds; every seed has as many instances as
the paper. A printed figure counts as reproduced when it is no further from ours than three standard errors of both
means. For BFD the paper takes the node with "most applications" transferred, without a definition of "most". The
printed transfer must lie between matching by size, which is ours, and matching by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from cotide_lab.consolidation.bfd import bfd
from cotide_lab.consolidation.dmas import dmas
from cotide_lab.consolidation.dmns import dmns
from cotide_lab.consolidation.ffd import ffd
from cotide_lab.consolidation.instance import Instance, Outcome
from cotide_lab.consolidation.kmns import kmns
from cotide_lab.consolidation.linear_solver import LinearSolver
from cotide_lab.consolidation.lower_bound import least_transfer
from cotide_lab.consolidation.metrics import nodes_used_ratio, transfer_estimate_ratio, transfer_ratio
from cotide_lab.consolidation.transfer_plan import plan
from cotide_lab.experiments.consolidation.node_loads import KINDS, Kind, generated_instance
from cotide_lab.experiments.consolidation.printed import INSTANCES, PRINTED

METHODS: Final[dict[str, Callable[[Instance], Outcome]]] = {"DMNS": dmns, "DMAS": dmas, "BFD": bfd, "FFD": ffd}
OURS: Final = "ours"
SIZES: Final = (32, 64, 128, 256)
CURVE_POINTS: Final = 17
"""Values of K of each curve, from 0 to N (chosen)."""
ERRORS: Final = 3.0
"""Standard errors within which two means count as the same (chosen)."""
SLACK: Final = 0.002
"""Allowed fall of RoDT from one K to the next for a curve that counts as rising (chosen)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One method on one kind of input.

    Attributes
    ----------
    nodes, transfer : means; each with the least and the largest mean of a seed.
    printed_nodes, printed_transfer : the paper's; None where it has none.
    above_transfer : mean transfer over the least that any plan with as few nodes has, less 1.
    at_fewest : share of instances with as few nodes as the bound.
    by_number : mean transfer when new nodes are matched by the number of applications; of BFD.
    """

    kind: str
    nodes_given: int
    method: str
    nodes: float
    nodes_range: tuple[float, float]
    transfer: float
    transfer_range: tuple[float, float]
    printed_nodes: float | None
    printed_transfer: float | None
    above_transfer: float
    at_fewest: float
    by_number: float | None
    standard_errors: tuple[float, float]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """KMNS at one K of Figs. 5 and 7, means over instances."""

    nodes_given: int
    drained: int
    ronu: float
    rodt: float
    rodte: float
    fewest: float


def run_tables(
    seeds: Sequence[int],
    solver: LinearSolver,
    *,
    sizes: Sequence[int] = SIZES,
    instances: int = INSTANCES,
    progress: Callable[[str, float], object] = lambda _text, _share: None,
) -> list[Cell]:
    """Return every cell of Tables I and II, with ours and FFD added."""
    cells = []
    cases = [(kind, size) for kind in KINDS for size in sizes]
    for at, (kind, size) in enumerate(cases):
        progress(f"{kind}, {size} nodes", at / len(cases))
        cells += _cells(kind, size, seeds, instances, solver)
    return cells


def _cells(kind: Kind, size: int, seeds: Sequence[int], instances: int, solver: LinearSolver) -> list[Cell]:
    names = [*METHODS, OURS]
    found = np.zeros((len(names), len(seeds), instances, 5))
    for at, seed in enumerate(seeds):
        for number in range(instances):
            instance = generated_instance(kind, size, seed * instances + number)
            for row, name in enumerate(names):
                found[row, at, number] = _measure(instance, name, solver)
    cells = []
    for row, name in enumerate(names):
        nodes, transfer, least, fewest, number = np.moveaxis(found[row], -1, 0)
        by_seed = nodes.mean(axis=1), transfer.mean(axis=1)
        printed = PRINTED.get((kind, size), {}).get(name)
        spread = np.sqrt(1 / INSTANCES + 1 / nodes.size)
        cells.append(
            Cell(
                kind,
                size,
                name,
                float(nodes.mean()),
                (float(by_seed[0].min()), float(by_seed[0].max())),
                float(transfer.mean()),
                (float(by_seed[1].min()), float(by_seed[1].max())),
                None if printed is None else printed[0],
                None if printed is None else printed[1],
                float(transfer.sum() / max(least.sum(), 1) - 1),
                float((nodes == fewest).mean()),
                float(number.mean()) if name == "BFD" else None,
                (float(nodes.std() * spread), float(transfer.std() * spread)),
            )
        )
    return cells


def _measure(instance: Instance, name: str, solver: LinearSolver) -> tuple[float, ...]:
    fewest = instance.fewest_by_volume
    if name == OURS:
        measured = plan(instance, solver=solver, time_limit_seconds=2.0)
        outcome = measured.outcome
        fewest = fewest if measured.nodes_bound is None else measured.nodes_bound.nodes
    else:
        outcome = METHODS[name](instance)
    by_number = transfer_by_number(instance, outcome) if name == "BFD" else 0
    return outcome.nodes_used, outcome.transfer, least_transfer(instance, outcome.nodes_used), fewest, by_number


def transfer_by_number(instance: Instance, outcome: Outcome) -> int:
    """Return the transfer when each node of a packing becomes the one that it shares most applications with."""
    pairs, counts = np.unique(outcome.targets * instance.nodes + instance.homes, return_counts=True)
    size_of = np.bincount(
        np.searchsorted(pairs, outcome.targets * instance.nodes + instance.homes), weights=instance.moving
    )
    taken: set[int] = set()
    matched: set[int] = set()
    stays = 0
    for pair in np.lexsort((pairs, -counts)):
        new, old = divmod(int(pairs[pair]), instance.nodes)
        if new not in matched and old not in taken:
            matched.add(new)
            taken.add(old)
            stays += int(size_of[pair])
    return int(instance.moving.sum()) - stays


def run_curves(seed: int, *, sizes: Sequence[int] = SIZES, instances: int = 20) -> list[CurvePoint]:
    """Return RoNU, RoDT and RoDTE of KMNS over K, on uniform input (Figs. 5 and 7 do not name theirs)."""
    points = []
    for size in sizes:
        cases = [generated_instance("uniform", size, seed * instances + number) for number in range(instances)]
        for drained in np.unique(np.linspace(0, size, CURVE_POINTS).astype(int)):
            found = [(case, kmns(case, int(drained))) for case in cases]
            points.append(
                CurvePoint(
                    size,
                    int(drained),
                    float(np.mean([nodes_used_ratio(*pair) for pair in found])),
                    float(np.mean([transfer_ratio(*pair) for pair in found])),
                    float(np.mean([transfer_estimate_ratio(*pair) for pair in found])),
                    float(np.mean([case.fewest_by_volume / size for case in cases])),
                )
            )
    return points


def missed_in_tables(cells: Sequence[Cell]) -> list[str]:
    """Return the statements of the tables that these cells do not confirm, and the missed bars of ours."""
    missed = []
    by_key = {(cell.kind, cell.nodes_given, cell.method): cell for cell in cells}
    for cell in cells:
        where = f"{cell.kind}, {cell.nodes_given} nodes, {cell.method}"
        if cell.printed_nodes is not None and cell.printed_transfer is not None:
            if abs(cell.nodes - cell.printed_nodes) > ERRORS * cell.standard_errors[0]:
                missed.append(f"{where}: {cell.nodes:.2f} nodes, printed {cell.printed_nodes:.2f}")
            low = cell.transfer - ERRORS * cell.standard_errors[1]
            high = max(cell.transfer, cell.by_number or 0.0) + ERRORS * cell.standard_errors[1]
            if not low <= cell.printed_transfer <= high:
                missed.append(f"{where}: transfer {cell.transfer:.0f}, printed {cell.printed_transfer:.0f}")
        if cell.method == OURS:
            rival = by_key[cell.kind, cell.nodes_given, "DMNS"]
            if (cell.nodes, cell.transfer) > (rival.nodes, rival.transfer):
                missed.append(f"{where}: above DMNS")
            if cell.at_fewest < 0.95:
                missed.append(f"{where}: as few nodes as the bound in {cell.at_fewest:.0%} of instances, wanted 95 %")
            if cell.above_transfer > 0.05:
                missed.append(f"{where}: transfer {cell.above_transfer:.1%} above the least, wanted 5 %")
    for kind, size in {(cell.kind, cell.nodes_given) for cell in cells}:
        ordered = [by_key[kind, size, name].transfer for name in ("DMNS", "DMAS", "BFD")]
        if ordered != sorted(ordered):
            missed.append(f"{kind}, {size} nodes: DMNS, DMAS, BFD are not in this order by transfer")
    return sorted(missed)


def missed_in_curves(points: Sequence[CurvePoint]) -> list[str]:
    """Return the statements of section V-B about Figs. 5 and 7 that the curves do not confirm."""
    missed = []
    for size in sorted({point.nodes_given for point in points}):
        curve = [point for point in points if point.nodes_given == size]
        if any(after.ronu > before.ronu + SLACK for before, after in pairwise(curve)):
            missed.append(f"{size} nodes: RoNU(K) does not fall with K")
        if any(after.rodt < before.rodt - SLACK for before, after in pairwise(curve)):
            missed.append(f"{size} nodes: RoDT(K) does not rise with K")
        if any(point.ronu < point.fewest - 1e-9 for point in curve):
            missed.append(f"{size} nodes: RoNU(K) is below the volume bound")
    return missed
