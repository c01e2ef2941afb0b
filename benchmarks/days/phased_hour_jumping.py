"""The hour of `phased_hour` in time that jumps: what phases gain live where the machine's load costs nothing.

Run with ``python benchmarks/days/phased_hour_jumping.py [--only phases] [--jobs 125] [--seed 1]``; not part of CI. The
emulated API server, the fake nodes and the operator are one process whose clock jumps to the next timer once all of
them wait (`jumping_time`): waits of the operator, of its kubelets and of its queue are seen, those for a processor are
not. One of the two rules a call, by phases or at task level. The operator is not killed. Prints one JSON object as
`phased_hour` does, with the simulator's seconds beside it. Exit codes: 0, and 3 as there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import jumping_time

if __name__ == "__main__":
    jumping_time.install()  # before anything keeps the machine's time

import aiohttp
from operator_program import free_port
from phased_hour import BROKE, Hour, by_seeds, offline, plan, run_live

from cotide_kube.credentials import Credentials
from cotide_operator.assembly import Operator, Options
from cotide_operator.config.settings import parse_settings
from cotide_sim.apiserver.server import ApiServer


async def operate_inside(
    _folder: Path, server: ApiServer, config: str, _kills: int, _speed: float, _hour: Hour, open_: asyncio.Event
) -> None:
    """Run the operator in this process; time jumps from when it decides."""
    port, stop = free_port(), asyncio.Event()
    operator = Operator(parse_settings(config), Options(metrics_port=port, install_crds=True), Credentials(server.url))
    running = asyncio.create_task(operator.run(stop))
    try:
        while not await _is_ready(port):
            await asyncio.sleep(0.1)
        jumping_time.begin()
        open_.set()
        await running
    finally:
        stop.set()
        await asyncio.wait([running], timeout=30)


async def _is_ready(port: int) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["phases", "task"], default="phases", help="default: phases")
    parser.add_argument("--jobs", type=int, default=125, help="Jobs of four pods (default 125)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    jobs = plan(asked.seed, asked.jobs)
    phased = asked.only == "phases"
    with tempfile.TemporaryDirectory() as folder:
        run = run_live(jobs, 1.0, 0, Path(folder), None, phased=phased, operate=operate_inside)
        found: dict[str, Any] = asyncio.run(run)
    figures = {asked.only: found, "simulator": offline(jobs), "simulator_by_seeds": by_seeds(asked.jobs)}
    print(json.dumps(figures, indent=1), flush=True)
    return BROKE if found["overfull"] or found["jobs_lost"] or found["jobs"] < len(jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
