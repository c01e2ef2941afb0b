"""The live demo held to its own objectives over several seeds (`make demo-bars`); 28 minutes of an idle machine.

Each seed is one run of ``cotide demo --check`` as a user would start it. Exit 3 when an objective was missed under any
seed; 1 when a run could not be judged because the machine was too busy for the demo's clock, or failed. Each page is
kept in ``build/demo-bars``. `cotide_sim.cluster.comparison` asks the same of the engine in virtual time, in a minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "build" / "demo-bars"


def run(seed: int, arguments: argparse.Namespace) -> int:
    """Run one seed and print its row; return the demo's exit code."""
    command = [
        sys.executable, "-m", "cotide_cli", "demo", "--check", "-o", "json", "--seed", str(seed),
        "--seconds", f"{arguments.seconds:g}", "--nodes", str(arguments.nodes), "--speed", f"{arguments.speed:g}",
        "--page", str(PAGES / f"seed-{seed}.html"),
        *(["--data", str(arguments.data)] if arguments.data else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        print(f"seed {seed}: failed with exit code {done.returncode}: {done.stderr.strip()[-500:]}", flush=True)
        return done.returncode or 1
    printed = json.loads(done.stdout)
    for name, figures in printed["policies"].items():
        late = figures["late_seconds"] / max(1.0, figures["waiting_seconds_total"])
        print(
            f"seed {seed:3}  {name:15} waiting {figures['waiting_seconds_total']:9,.0f} s  over limit "
            f"{figures['qos_violation_ratio']:6.2%}  jobs {figures['jobs_finished']:4}  late {late:5.1%}  never ran"
            f" {len(figures['services_never_ran'])}  online pods waiting {figures['online_pods_waiting']}"
        )
    missed = printed["verdict"]["missed"]
    print(f"seed {seed:3}  {printed['verdict']['sentence']}")
    print(
        f"seed {seed:3}  {'; '.join(missed) or 'every objective met' if missed is not None else 'not judged'}",
        flush=True,
    )
    return done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    PAGES.mkdir(parents=True, exist_ok=True)
    codes = [run(int(seed), arguments) for seed in arguments.seeds.split(",")]
    print(f"{codes.count(0)} of {len(codes)} seeds met every objective, {codes.count(3)} missed one", file=sys.stderr)
    raise SystemExit(3 if 3 in codes else 1 if any(codes) else 0)


if __name__ == "__main__":
    main()
