"""Writes the tables of docs/compatibility.md from the results that are kept in the tree.

Run after results were made again (``make test-upstream RECORD=1``, ``make bench-upstream ARGS=--record``)::

    python benchmarks/upstream/compatibility.py

A test compares the page with what this script makes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.extend(
    str(Path(__file__).resolve().parents[2] / folder) for folder in ("tests/upstream", "benchmarks/upstream")
)

from perf_figures import HEADS, KUBE_SCHEDULER, comparisons, rows
from specs import Results

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "compatibility.md"
SPECS: Final = ROOT / "tests" / "upstream" / "results"
PERF: Final = Path(__file__).with_name("results")
BLOCK: Final = "<!-- {name}: written by benchmarks/upstream/compatibility.py -->"
POLICIES: Final = ("cotide-predictive", "cotide-qpsm", "cotide-fifo")
"""In the order of columns; others follow."""
Json = dict[str, Any]


def specs_table(runs: Sequence[Results]) -> str:
    """Return the table of upstream's specs, a column for each run, and the number that passed in the last row."""
    ordered = sorted(runs, key=_column)
    names = sorted({name for run in ordered for name in run.specs})
    heads = ["spec", *(f"{run.scheduler.removeprefix('cotide-')}, {run.kubernetes}" for run in ordered)]
    lines = [[_cell(name), *(run.state(name) for run in ordered)] for name in names]
    return markdown(heads, [*lines, ["passed", *(f"{run.passed} of {len(run.specs)}" for run in ordered)]])


def _column(run: Results) -> tuple[str, int, str]:
    order = (KUBE_SCHEDULER, *POLICIES)
    return run.kubernetes, order.index(run.scheduler) if run.scheduler in order else len(order), run.scheduler


def perf_tables(document: Json) -> str:
    """Return a table of scheduler_perf's workloads for each policy that was run."""
    machine, plan = document["machine"], document["plan"]
    schedulers = dict.fromkeys(run["scheduler"] for run in document["runs"] if run["scheduler"] != KUBE_SCHEDULER)
    parts = [
        f"Kubernetes {plan['kubernetes']}, {machine['cores']} cores, {machine['memory_gib']} GiB, load "
        f"{_range(run['load_average'] for run in document['runs'])}."
    ]
    for scheduler in schedulers:
        compared = comparisons(document["runs"], scheduler)
        parts.append(f"Policy `{scheduler.removeprefix('cotide-')}`:\n\n{markdown(HEADS, rows(compared))}")
    return "\n\n".join(parts)


def _range(values: Iterable[float]) -> str:
    known = sorted(values)
    return f"{known[0]:.0f} to {known[-1]:.0f}"


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[")


def written(page: str, **tables: str) -> str:
    """Return a page with these tables in their blocks.

    Raises
    ------
    ValueError
        When the page has no block of a name.
    """
    for name, table in tables.items():
        begin, end = BLOCK.format(name=name), f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"the page has no block {name}")
        page = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return page


def current() -> str:
    """Return the page as the results make it."""
    runs = [Results.read(file) for file in sorted(SPECS.glob("*.json"))]
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(PERF.glob("*.json"))]
    perf = "\n\n".join(perf_tables(document) for document in documents)
    return written(PAGE.read_text(encoding="utf-8"), specs=specs_table(runs), perf=perf)


def main() -> int:
    PAGE.write_text(current(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
