"""The fork_server: a process that has loaded the operator and forks a fresh one for each line on its standard input.

Started by `fork_server`. A fork costs milliseconds where an import costs seconds, and what is forked is a whole
process: it can be killed, frozen and started again as on a node. Invariant: when the input ends, for whatever reason,
every operator is killed.

A child is told what to do by signals: SIGTERM stops it, SIGUSR1 has it write its state, SIGUSR2 lets its wall clock
jump, SIGHUP has it read what is wrong with its machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import machine_troubles
import mutants
import skewed
from kill_points import KillPoints, install

REQUEST_SECONDS: Final = 2.0
"""One try of a request; 15 s in production. Chosen, with the two below, so that an outage of a second is a long one."""
STOP_SECONDS: Final = 2.0
"""What the parts of an operator get to end; 10 s in production, of which kopf takes five when it is stopped early."""
RETRY_SECONDS: Final = (0.05, 0.5)
"""First and longest pause of the client; 0.2 and 10 s in production."""
PHASE_SECONDS: Final = (0.6, 4.0)
"""After which a phase that waits asks all the same, and is granted as it is held; 30 and 600 s in production."""
WATCH_RETRY_SECONDS: Final = 0.5
"""Longest pause of a reflector; 30 s in production."""


def main() -> None:
    """Fork an operator for each line until the input ends."""
    load()
    say({"loaded": True})
    watched, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child listens once it knows what is wrong
    alive: set[int] = set()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(watched, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if watched in ready:
                os.read(watched, 4096)
                reap(alive)
            if 0 in ready:
                read = os.read(0, 1 << 16)
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        for number in (signal.SIGCHLD, signal.SIGINT):
                            signal.signal(number, signal.SIG_DFL)
                        os.close(watched)
                        os.close(woken)
                        os._exit(live(json.loads(line)))
                    alive.add(pid)
                    say({"started": pid})
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def reap(alive: set[int]) -> None:
    for pid in list(alive):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            alive.discard(pid)
            say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def say(what: dict[str, Any]) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def load() -> None:
    """Import what an operator imports, and compile the kernels of the policies that plan."""
    import sklearn.cluster  # noqa: F401 - what plans of capacity load when they first group pods
    import uvloop  # noqa: F401

    from cotide_core.config import SchedulerConfig
    from cotide_core.cycle import Scheduler
    from cotide_core.forecasting.heuristics import HeuristicCatalogue
    from cotide_core.policies import POLICIES
    from cotide_operator import assembly  # noqa: F401
    from cotide_operator.consolidation import controller  # noqa: F401
    from cotide_operator.controllers import kopf_handlers  # noqa: F401
    from cotide_operator.provisioning import controller as capacity  # noqa: F401
    from cotide_predictors.learning import kept_state, renewal  # noqa: F401 - what learns
    from cotide_predictors.run_time.habits.live_catalogue import compile_kernels

    compile_kernels(("habits",))
    for policy in POLICIES:
        Scheduler(SchedulerConfig(policy=policy), HeuristicCatalogue())


def live(spec: dict[str, Any]) -> int:
    """Be one operator, from its first to its last breath; returns the exit code."""
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    from cotide_core.errors import CotideError
    from cotide_operator.observability.logging_setup import set_up

    set_up(spec.get("level", "info"), "text")
    points = KillPoints(spec["kill_at"])
    install(spec["kill_path"], points)
    hasten()
    troubles = machine_troubles.MachineTroubles(Path(spec["troubles"]))
    machine_troubles.install(troubles)
    # Not the loop's: it would give the signal back to the system, which ends the process, when it closes.
    signal.signal(signal.SIGHUP, lambda *_: troubles.read())
    troubles.read()
    if spec["skew"]:
        skewed.install(spec["skew"])
    if spec["broken"]:
        mutants.install(spec["broken"])
    try:
        asyncio_run(spec, points)
    except CotideError as error:
        print(f"cotide: {error}", file=sys.stderr, flush=True)
        return 1
    except Exception:  # noqa: BLE001 - the process's last word, whatever it is
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        return 70
    return 0


def hasten() -> None:
    """Shorten the pauses that no setting names."""
    from cotide_core.phases import growth
    from cotide_kube import backoff, client, reflector
    from cotide_operator import assembly
    from cotide_operator.consolidation import controller
    from cotide_operator.provisioning import controller as capacity
    from cotide_operator.scheduling import phase_resizer

    first, longest = RETRY_SECONDS
    assembly.REQUEST_TIMEOUT_SECONDS = REQUEST_SECONDS
    controller.POLL_SECONDS = capacity.POLL_SECONDS = 0.1
    capacity.SETTLED_SECONDS = 0.5
    growth.PAUSE_SECONDS, phase_resizer.GRANTED_ANYWAY_SECONDS = PHASE_SECONDS
    phase_resizer.ECHO_SECONDS, phase_resizer.PERIOD_SECONDS, phase_resizer.POLLS_PER_SECOND = 0.5, 0.03, 50.0
    assembly.LEDGER_FLUSH_SECONDS = 0.05
    assembly.DRAIN_SECONDS = STOP_SECONDS
    client.Backoff = functools.partial(backoff.Backoff, first, longest)
    reflector.Backoff = lambda **_: backoff.Backoff(first, WATCH_RETRY_SECONDS)


def asyncio_run(spec: dict[str, Any], points: KillPoints) -> None:
    import uvloop

    from cotide_kube.credentials import Credentials
    from cotide_operator.assembly import Operator, Options
    from cotide_operator.config.settings import parse_settings

    shifted = _ShiftedTime(spec["jump_seconds"])
    time.time = shifted
    options = Options(metrics_host="127.0.0.1", metrics_port=0, install_crds=True)
    operator = Operator(parse_settings(spec["config"]), options, Credentials(spec["server"]))

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, lambda: write_state(operator, points, Path(spec["state"])))
        loop.add_signal_handler(signal.SIGUSR2, shifted.jump)
        if spec["cpu_seconds"]:
            machine_troubles.run_out_of_memory(spec["cpu_seconds"])
        await operator.run(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


class _ShiftedTime:
    """`time.time` of a machine whose clock somebody sets."""

    def __init__(self, seconds: list[float]) -> None:
        self._real, self._jumps, self._shift = time.time, list(seconds), 0.0

    def __call__(self) -> float:
        return self._real() + self._shift

    def jump(self) -> None:
        if self._jumps:
            self._shift += self._jumps.pop(0)


_dumps = 0


def write_state(operator: Any, points: KillPoints, path: Path) -> None:
    """Write what the engine believes, all at once."""
    global _dumps  # noqa: PLW0603 - of this process, which is one operator
    _dumps += 1
    scheduler = operator.loop.scheduler
    state = {
        "dump": _dumps,
        "ready": not operator._missing() and operator._leading,
        "leading": operator._leading,
        "points": points.passed,
        "backlog": operator.binder.backlog,
        "pending": scheduler.pending(),
        "positions": scheduler.queue_positions(),
        "pods": {
            record.pod.key: [record.pod.uid, record.node, record.assumed_seconds is not None, record.pod.phase.value]
            for record in scheduler.state.records()
        },
        "nodes": sorted(scheduler.state.columns.row_of),
    }
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(state), encoding="utf-8")
    aside.rename(path)


if __name__ == "__main__":
    main()
