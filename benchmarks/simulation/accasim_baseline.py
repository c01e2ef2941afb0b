"""AccaSim beside ours, for `bench_replay --accasim`: the same cleaned log, the same machine, the same minute.

AccaSim is no dependency. It is installed into an environment of its own in a temporary directory, from the index that
pip is set up with, and is gone afterwards. Where it can't be had one line says why and nothing else changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from cotide_sim.traces.jobs.batch_jobs import BatchJobs
from cotide_sim.traces.jobs.swf_write import log_of_schedule, write_swf

REQUIREMENT = "accasim==1.1.3"
INSTALL_SECONDS = 900.0
"""pip is given up after so long (chosen: it fetches numpy, scipy and matplotlib, too)."""
DRIVER = Path(__file__).with_name("accasim_driver.py")


class Unavailable(Exception):
    """AccaSim can't be had or doesn't run here; the message is one line."""


@dataclass(frozen=True)
class Timing:
    version: str
    wall_seconds: float
    cpu_seconds: float
    jobs: int


def accasim_timings(jobs: BatchJobs, policies: tuple[str, ...]) -> dict[str, Timing]:
    """Replay a log once under each policy (``easy``, ``fifo``) and return AccaSim's own times, its reading included.

    Raises
    ------
    Unavailable
        When it can't be installed or stops with an error.
    """
    with tempfile.TemporaryDirectory(prefix="accasim-") as name:
        directory = Path(name)
        python = _installed(directory / "venv")
        log, system = directory / "log.swf", directory / "system.json"
        write_swf(log_of_schedule(jobs, jobs.submit, "as submitted"), log)
        pool = {"groups": {"g": {"core": 1}}, "resources": {"g": jobs.processors}}
        system.write_text(json.dumps({**pool, "equivalence": {"processor": {"core": 1}}, "start_time": 0}))
        found = {}
        for policy in policies:
            command = [str(python), str(DRIVER), str(log), str(system), policy, str(directory / "results")]
            last = _last_line(_run(command, None, "AccaSim stopped"))
            found[policy] = Timing(**json.loads(last))
            if found[policy].jobs != len(jobs):
                raise Unavailable(f"AccaSim ran {found[policy].jobs} of {len(jobs)} jobs")
        return found


def _installed(directory: Path) -> Path:
    try:
        venv.create(directory, with_pip=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"no virtual environment can be made: {error}") from None
    python = directory / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT]
    _run(command, INSTALL_SECONDS, f"pip can't install {REQUIREMENT}")
    return python


def _run(command: list[str], seconds: float | None, failure: str) -> str:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{failure}: not done after {seconds:.0f} s") from None
    except OSError as error:
        raise Unavailable(f"{failure}: {error}") from None
    if done.returncode:
        raise Unavailable(f"{failure}: {_last_line(done.stderr) or _last_line(done.stdout)}")
    return done.stdout


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
