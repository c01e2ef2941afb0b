"""Replays a log in AccaSim and prints one JSON object; run by `accasim_baseline` with the interpreter that AccaSim is
in.

``python accasim_driver.py LOG.swf SYSTEM.json easy|fifo DIRECTORY``. Nothing but the standard library and AccaSim is
imported. AccaSim 1.1.3 was written for Python before 3.10: it looks for ``Mapping`` where that no longer is, so the
name is put back first. Its own files and statistics are off, which makes it faster.
"""

import collections
import collections.abc
import importlib.metadata
import json
import sys
import time

collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]  # where AccaSim expects it

from accasim.base.allocator_class import FirstFit  # noqa: E402 - after the name is back
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402


def main() -> None:
    log, system, policy, directory = sys.argv[1:]
    dispatcher = {"easy": EASYBackfilling, "fifo": FirstInFirstOut}[policy](FirstFit())
    quiet = {"scheduling_output": False, "statistics_output": False, "show_statistics": False, "LOG_LEVEL": "ERROR"}
    simulator = Simulator(log, system, dispatcher, RESULTS_FOLDER_PATH=directory, **quiet)
    wall, own = time.perf_counter(), time.process_time()
    simulator.start_simulation()
    figures = {
        "version": importlib.metadata.version("accasim"),
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - own,
        "jobs": simulator.dispatched_jobs,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
