"""Counts the words of a text in two phases: read it with little cpu, then count on many cores.

Run by `job.yaml`. In a pod it writes the phase that it wants into a file; a probe of the pod compares that with the
granted one, and Cotide hears from the pod's readiness that they differ. It then waits until Cotide has given its
container the size of that phase; anywhere else it just goes on.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

GRANTED = Path("/etc/podinfo/granted-phase")
PATIENCE_SECONDS = 900


def enter(phase: str) -> None:
    """Say that a phase begins, and wait for its size."""
    wanted = os.environ.get("WANTED_PHASE_FILE")
    if not wanted:
        return
    Path(wanted).write_text(phase, encoding="utf-8")
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and (not GRANTED.is_file() or GRANTED.read_text().strip() != phase):
        time.sleep(1)


def words_of(text: str) -> Counter[str]:
    """Count the words of a part."""
    return Counter(text.lower().split())


def main() -> None:
    """Read the texts that are named, count on all cores, print the ten most frequent words."""
    enter("read")
    lines = [
        line for name in sys.argv[1:] for line in Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    enter("count")
    parts = ["\n".join(lines[start::8]) for start in range(8)]
    with ProcessPoolExecutor() as pool:
        counted = sum(pool.map(words_of, parts), Counter[str]())
    for word, count in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:10]:
        print(count, word)


if __name__ == "__main__":
    main()
