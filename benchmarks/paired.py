"""Two commits side by side: the same work in interleaved rounds, medians and their ratio.

    python benchmarks/paired.py 81d888d                           # replay kernels, at that commit and at HEAD
    python benchmarks/paired.py 81d888d HEAD --data DIR --policies easy,svf --logs KTH,HPC2N --rounds 9
    python benchmarks/paired.py 81d888d --script bench_engine.py -- --nodes 500

Kernels: a process for each commit stays up (`paired_worker`); in each round both replay each log, in turn first, so
that a machine whose speed drifts hurts both alike. Ratios are of processor time, which other work on the machine
stretches less than wall time. Exit 3 when a schedule differs by a bit, or a median is slower by more than ``--allow``.

A script (``--script``): the benchmark of that name, each commit's own, is run whole in each round; each number that
both print on lines of the same words is paired. No verdict there: a number may be a time or a rate.

The commits are unpacked into ``build/paired/COMMIT``, which keeps their machine code for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).with_name("paired_worker.py")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
LOGS = "KTH-SP2,CTC-SP2,SDSC-BLUE,HPC2N,OpenB"
POLICIES = "fcfs,sjf-queue,svf-queue,easy,easy-sjbf,easy-svbf,easy-sjf,easy-svf,conservative,online-svf,hybrid"


def unpacked(commit: str) -> Path:
    """Return a folder with the files of a commit."""
    name = git("rev-parse", "--short=12", f"{commit}^{{commit}}")
    folder = ROOT / "build" / "paired" / name
    if not (folder / ".whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", name], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
        (folder / ".whole").touch()
    return folder


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def script_in(folder: Path, name: str) -> Path:
    """Return a commit's benchmark of a file name, in whatever wing it stood then: all lay flat until 84f9b0d."""
    found = sorted((folder / "benchmarks").rglob(name))
    if len(found) != 1:
        raise SystemExit(f"{folder.name} has {len(found)} benchmarks of the name {name}")
    return found[0]


def environment_of(folder: Path) -> dict[str, str]:
    roots = os.pathsep.join(str(folder / root) for root in ("operator", "predictors", "sim"))
    return {**os.environ, "PYTHONPATH": roots, "OMP_NUM_THREADS": "1"}


class Worker:
    """The process of one commit: a line in, a line out."""

    def __init__(self, folder: Path, data: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), str(data)],
            env=environment_of(folder), cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, log: str, policy: str, runtime: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([log, policy, runtime]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of a commit ended with {self._process.wait()}")
        return dict(json.loads(line))

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def workers(folders: Sequence[Path], data: Path) -> Iterator[list[Worker]]:
    found = [Worker(folder, data) for folder in folders]
    try:
        yield found
    finally:
        for worker in found:
            worker.end()


def pair_kernels(folders: Sequence[Path], arguments: argparse.Namespace) -> int:
    """Print a row for each log and policy; return how many miss the bar."""
    missed = 0
    print(f"{'log':12} {'policy':14} {'run times':9} {'before ms':>10} {'after ms':>10} {'ratio':>7}  schedule")
    with workers(folders, arguments.data) as pair:
        for log in arguments.logs.split(","):
            for policy in arguments.policies.split(","):
                first = [worker.ask(log, policy, arguments.runtime) for worker in pair]
                if any("missing" in answer for answer in first):
                    said = "; ".join(str(answer["missing"]) for answer in first if "missing" in answer)
                    print(f"{log:12} {policy:14} {arguments.runtime:9} left out: {said}", flush=True)
                    continue
                spent: list[list[float]] = [[], []]
                for number in range(arguments.rounds):
                    for at in (0, 1) if number % 2 == 0 else (1, 0):
                        spent[at].append(pair[at].ask(log, policy, arguments.runtime)["cpu_seconds"])
                before, after = (statistics.median(seconds) for seconds in spent)
                same = first[0]["digest"] == first[1]["digest"]
                slow = after > before * (1 + arguments.allow)
                missed += not same or slow
                print(
                    f"{log:12} {policy:14} {arguments.runtime:9} {before * 1000:10.2f} {after * 1000:10.2f} "
                    f"{after / before:7.3f}  {'same' if same else 'DIFFERS'}{', SLOWER' if slow else ''} "
                    f"{first[1]['digest'][:12]}",
                    flush=True,
                )
    return missed


def pair_script(folders: Sequence[Path], name: str, rounds: int, rest: Sequence[str]) -> None:
    """Print each number's medians and their ratio."""
    found: list[dict[tuple[str, int], list[float]]] = [{}, {}]
    for number in range(rounds):
        for at in (0, 1) if number % 2 == 0 else (1, 0):
            command = [sys.executable, str(script_in(folders[at], name)), *rest]
            done = subprocess.run(
                command, env=environment_of(folders[at]), cwd=folders[at], capture_output=True, text=True, check=False
            )
            if done.returncode not in (0, 3):
                raise SystemExit(f"{name} ended with {done.returncode} at {folders[at].name}:\n{done.stderr[-2000:]}")
            for line in done.stdout.splitlines():
                words = re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip()
                for index, value in enumerate(NUMBER.findall(line)):
                    found[at].setdefault((words, index), []).append(float(value.replace(",", "")))
    for words, index in found[0]:
        before, after = found[0][words, index], found[1].get((words, index))
        if after is None or len(before) != len(after) or len(before) % rounds:
            continue
        middle = [statistics.median(values) for values in (before, after)]
        if middle[0]:
            print(f"{middle[0]:14,.4g} {middle[1]:14,.4g} {middle[1] / middle[0]:7.3f}  number {index + 1} of: {words}")


def main() -> None:
    given = os.environ.get("COTIDE_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument(
        "--data", type=lambda path: Path(path).resolve(), default=Path(given) if given else Path("nowhere"),
        help="real traces",
    )  # fmt: skip
    parser.add_argument("--logs", help=f"beginnings of names; default: {LOGS}, or 'made-up' without --data")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--runtime", default="request", help="request, clairvoyant, last-two or learned")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--allow", type=float, default=0.05, help="slower by this share is accepted")
    parser.add_argument("--script", help="a benchmark in place of the kernels; what follows -- is for it")
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    if arguments.logs is None:
        arguments.logs = LOGS if arguments.data.is_dir() else "made-up"
    folders = [unpacked(arguments.before), unpacked(arguments.after)]
    print(f"before {folders[0].name}, after {folders[1].name}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if arguments.script:
        pair_script(folders, arguments.script, arguments.rounds, rest)
    elif missed := pair_kernels(folders, arguments):
        print(f"{missed} rows miss the bar", file=sys.stderr)
        raise SystemExit(3)


if __name__ == "__main__":
    main()
