"""How much a latency-critical service suffers from batch beside it: memcached and real containers on a real node.

Run with ``make interference`` (as root, on Linux; ``ARGS="--repeats 2 --seconds 1"`` for less). One kubelet with
containerd and runc, whose pods have cpus of their own (``--cpus``, by default one); memcached in a pod with a Workload;
an open-loop client that counts from when a request was due. In each round every row of `interference_figures` is
measured once, in an order of the round's own: the service alone, beside pods that the kernel's classes alone keep
apart, and beside a Job that a policy placed, each with and without the node agent.

Each window is in ``--out``/journal.jsonl before the next begins: stopped anywhere and begun again, it goes on. Prints a
table, or with ``-o json`` everything; both are in ``--out``, too. Exit codes: 0, 1 when something failed, 2 for a
mistake in options, 3 when ``--minutes`` were over before every round was measured, 77 where it can't be run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from interference_figures import ROWS, Row, as_json, bars, findings, table

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from journal import Journal

SKIP_CODE: Final = 77
OVER: Final = 3
FOLDER: Final = Path("/run/interference")
"""In memory, and gone with the machine within the machine."""


def rounds(repeats: int, rows: Sequence[Row], seed: int) -> Iterator[tuple[int, list[list[Row]]]]:
    """Yield each round: its blocks in an order of its own, and the rows of each likewise."""
    for number in range(repeats):
        order = random.Random(f"{seed}-{number}")
        blocks = {row.block: [one for one in rows if one.block == row.block] for row in rows}
        drawn = [order.sample(own, len(own)) for own in blocks.values()]
        yield number, order.sample(drawn, len(drawn))


def measure(journal: Journal, options: argparse.Namespace, rows: Sequence[Row]) -> bool:
    """Measure what the journal lacks; whether that was all before the time was over."""
    import interference_stage as stages

    if stages.CGROUP_VARIABLE not in os.environ:
        raise stages.NotToBeHad("it runs in a machine of its own: make interference")
    begun = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with stages.nodes(options.cpus, FOLDER) as (running, cpus):
        emit(f"{time.monotonic() - begun:.0f} s: a node is made, its pods have cpu {','.join(map(str, cpus))}")
        return asyncio.run(all_rounds(running, cpus, journal, options, rows))


async def all_rounds(
    running: Any, cpus: Sequence[int], journal: Journal, options: argparse.Namespace, rows: Sequence[Row]
) -> bool:
    """Measure on a node; whether nothing is left to measure."""
    import interference_stage as stages

    deadline = time.monotonic() + 60.0 * options.minutes
    load = stages.Load(options.rate, options.seconds, options.limit_ms)
    async with stages.stage(running, cpus, load, options.models) as stage:
        if not stage.real_time:
            emit("no real-time priority here: the client shares its cpus with the rest, and polls")
        await stage.window(0)  # fills memcached, and the operators find a rate
        for number, blocks in rounds(options.repeats, rows, options.seed):
            for block in blocks:
                left = [row for row in block if journal.lacks(round=number, row=row.name)]
                if left and time.monotonic() > deadline:
                    return False
                if left:
                    async with stage.batch(left[0].block):
                        for row in left:
                            await one_window(stage, journal, row, number, options)
    return True


async def one_window(stage: Any, journal: Journal, row: Row, number: int, options: argparse.Namespace) -> None:
    """Measure one row once."""
    seed = 1000 * options.seed + number  # all rows of a round get the same arrivals
    if row.agent is None:
        found = await stage.window(seed)
    else:
        async with stage.agent(row.agent):
            found = await stage.window(seed)
    journal.add({"round": number, "row": row.name, "at": time.time(), "real_time": stage.real_time, **found})
    emit(
        f"round {number + 1} of {options.repeats}, {row.name}: p50 {found['p50_ms'] * 1000:.0f}, "
        f"p99 {found['p99_ms'] * 1000:.0f}, p99.9 {found['p999_ms'] * 1000:.0f} µs; {found['batch_pods']} pods use "
        f"{found['batch_cores']:.2f} cores, node {found['busy_share']:.0%} busy; load {found['load_average']:.1f}"
    )


def emit(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def show(journal: Journal, options: argparse.Namespace) -> None:
    """Print what was found, and write it beside the journal."""
    found = findings(journal.lines, journal.plan["cpus"])
    document = {
        "plan": journal.plan,
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "rows": as_json(found),
        "bars": bars(found),
        "windows": journal.lines,
    }
    (options.out / "result.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    lines = [
        f"{name}: {bar['found']:.2f}, {'met' if bar['met'] else 'missed'} "
        f"({'at most' if 'at_most' in bar else 'at least'} {bar.get('at_most', bar.get('at_least'))})"
        for name, bar in bars(found).items()
    ]
    text = "\n".join([table(found), "", *lines, ""])
    (options.out / "table.md").write_text(text, encoding="utf-8")
    sys.stdout.write(f"{json.dumps(document)}\n" if options.o == "json" else text)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options; whatever can't be is refused with its name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10, help="rounds in which each row is measured once")
    parser.add_argument("--seconds", type=float, default=2.5, help="of a window, beside half a second to warm up")
    parser.add_argument("--rate", type=float, default=4000.0, help="requests a second")
    parser.add_argument("--limit-ms", type=float, default=10.0, help="the p95 that the Workload states")
    parser.add_argument("--cpus", type=int, default=1, help="of the node's pods; all else has the others")
    parser.add_argument("--minutes", type=float, default=18.0, help="after which no further block begins")
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS), help="some of the rows, with commas")
    parser.add_argument("--models", type=Path, help="models for qpsm and predictive, as `cotide train` makes them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/interference"))
    parser.add_argument("--report", action="store_true", help="measure nothing, show what the journal has")
    parser.add_argument("-o", choices=("table", "json"), default="table")
    options = parser.parse_args(arguments)
    for name, least in (("repeats", 1), ("seconds", 0.2), ("rate", 10.0), ("cpus", 1), ("limit_ms", 0.01)):
        if not getattr(options, name) >= least:
            parser.error(f"--{name.replace('_', '-')} must be {least} or more")
    unknown = sorted(set(options.rows.split(",")) - {row.name for row in ROWS})
    if unknown:
        parser.error(f"--rows: there is no {', '.join(unknown)}; there are {', '.join(row.name for row in ROWS)}")
    return options


def main() -> int:
    """Measure, and show what was found."""
    options = parsed()
    rows = [row for row in ROWS if row.name in options.rows.split(",")]
    plan = {
        name: getattr(options, name) for name in ("seconds", "rate", "limit_ms", "cpus", "seed")
    } | {"models": str(options.models) if options.models else None}  # fmt: skip
    journal = Journal(options.out / "journal.jsonl", None if options.report else plan)
    whole = True
    if not options.report:
        import interference_stage as stages
        import pytest

        try:
            whole = measure(journal, options, rows)
        except stages.NotToBeHad as reason:
            emit(f"interference can't be measured here: {reason}")
            return SKIP_CODE
        except (pytest.fail.Exception, AssertionError) as reason:
            emit(f"{reason}\nstopped; the same command goes on")
            return 1
    show(journal, options)
    if not whole:
        emit(f"{options.minutes:g} minutes are over before all rounds were measured; the same command goes on")
        return OVER
    return 0


if __name__ == "__main__":
    sys.exit(main())
