"""The service and the batch jobs as processes of this machine, on cores that they share.

Used by `campaign` where no cluster is named. A job that ends starts again at once. Each job has a thread, so that its
end is seen at once. A thread is bound to the cores before it starts a process, which inherits that.

Invariant: every started process ends, with all its children, when the context is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from cotide_core.errors import InputError
from cotide_lab.predictors.profiling.design import Mix
from cotide_lab.profile.cgroups import CpuGroup
from cotide_lab.profile.plan import BatchJob

START_SECONDS: Final = 20.0
"""Seconds that a service may take until it accepts connections (chosen)."""
BEGIN_SECONDS: Final = 20.0
"""Seconds that a job may take to enter its group (chosen): Linux holds it up while other, starved jobs begin
processes."""
STOP_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 0.5
"""Seconds that jobs have to end by themselves after a window (chosen: `sort` removes gigabytes in less)."""
FAILURES: Final = 3
"""Jobs that fail one after the other before the campaign ends: a mistyped command measures nothing (chosen)."""


class RunningMix:
    """Jobs that are kept running: the ended ones, and the cpu of all of them, since `mark`."""

    def __init__(self) -> None:
        self.fault: str = ""
        self._ended: list[tuple[str, float]] = []
        self._failed: Counter[str] = Counter()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._cpu_of_ended = 0.0
        self._cpu_before = 0.0
        self._lock = threading.Lock()

    def mark(self) -> None:
        """Begin the window: forget the jobs that ended so far."""
        with self._lock:
            self._ended, self._cpu_before = [], self._cpu()
            self._failed = Counter()

    def take(self) -> tuple[tuple[tuple[str, float], ...], float]:
        """Return jobs that ended well since the mark, with their seconds, and cpu seconds of all jobs since then."""
        with self._lock:
            return tuple(self._ended), max(0.0, self._cpu() - self._cpu_before)

    def failed(self) -> tuple[tuple[str, int], ...]:
        """Return how many jobs of each name failed since the mark."""
        with self._lock:
            return tuple(sorted(self._failed.items()))

    def names_ended(self) -> set[str]:
        """Return the names of jobs that ended since the mark, well or not."""
        with self._lock:
            return {name for name, _ in self._ended} | set(self._failed)

    def began(self, process: subprocess.Popen[bytes]) -> None:
        """Note a job that runs."""
        with self._lock:
            self._running[process.pid] = process

    def ended(self, process: subprocess.Popen[bytes], cpu_seconds: float, name: str, seconds: float) -> None:
        """Note a job that ended."""
        with self._lock:
            del self._running[process.pid]
            self._cpu_of_ended += cpu_seconds
            if process.returncode == 0:
                self._ended.append((name, seconds))
            else:
                self._failed[name] += 1

    def stop(self, how: signal.Signals) -> None:
        """Send every job a signal, and its children."""
        with self._lock:
            for pid in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, how)

    def _cpu(self) -> float:
        return self._cpu_of_ended + (cpu_seconds_of(self._running.keys()) if self._running else 0.0)


def cpu_seconds_of(leaders: Collection[int]) -> float:
    """Return the cpu seconds of these leaders' process groups: of running processes and of their ended children."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended
            continue
        fields = text.rpartition(")")[2].split()  # after the name, which may contain any text: from the third field on
        if int(fields[2]) in leaders:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class LocalMachine:
    """The machine of the jobs.

    Parameters
    ----------
    cores : shared by service and jobs; empty for all.
    service_millicores : the service's weight.
    """

    def __init__(self, cores: Sequence[int], service_millicores: int) -> None:
        self._cores = tuple(cores)
        self._service_millicores = service_millicores
        self._open = ExitStack()
        self.weighted = True
        """Whether every group could be made; otherwise niceness replaces it."""

    def __enter__(self) -> LocalMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def start_service(self, command: str, address: tuple[str, int]) -> None:
        """Start the service and wait until it accepts connections.

        Raises
        ------
        InputError
            When it ends, or takes too long.
        """
        group = self._open.enter_context(CpuGroup("service", self._service_millicores))
        self.weighted &= group.directory is not None
        started: list[subprocess.Popen[bytes]] = []
        # In a thread of its own: a load generator that is started later must not inherit these cores.
        prefix = group.prefix(self._service_millicores)
        thread = threading.Thread(target=lambda: started.append(self._start(prefix + command)))
        thread.start()
        thread.join()
        process = started[0]
        self._open.callback(end_group, process)
        deadline = time.monotonic() + START_SECONDS
        while True:
            if process.poll() is not None:
                message = f"{command!r} ended with {process.returncode} before it accepted a connection"
                raise InputError(message, field="--service-command")
            with contextlib.suppress(OSError), socket.create_connection(address, 1.0):
                return
            if time.monotonic() > deadline:
                message = f"{command!r} accepted no connection at {address[0]}:{address[1]} in {START_SECONDS:g} s"
                raise InputError(message, field="--service-command")
            time.sleep(0.05)

    @contextmanager
    def running(self, mix: Mix, jobs: Sequence[BatchJob]) -> Iterator[RunningMix]:
        """Keep a mix running inside the context, after every job has begun.

        Raises
        ------
        InputError
            When a job does not begin.
        """
        found, stop = RunningMix(), threading.Event()
        by_name = {job.kind.name: job for job in jobs}
        with ExitStack() as open_groups:
            threads, begins = [], []
            for name, count in mix:
                for number in range(count):
                    job = by_name[name]
                    group = open_groups.enter_context(CpuGroup(f"{name}-{number}", job.kind.millicores))
                    self.weighted &= group.directory is not None
                    begins.append((name, group))
                    prefix = group.prefix(self._service_millicores)
                    threads.append(threading.Thread(target=self._keep, args=(job, prefix, found, stop), daemon=True))
            for thread in threads:
                thread.start()
            try:
                _wait_until_begun(begins, found)
                yield found
            finally:
                stop.set()
                asked = time.monotonic()
                while any(thread.is_alive() for thread in threads):
                    # A signal first, so that a job removes its temporary files; a second one, since a job may just have
                    # begun.
                    patient = time.monotonic() < asked + LEAVE_SECONDS
                    found.stop(signal.SIGTERM if patient else signal.SIGKILL)
                    threads[0].join(0.05)
                    threads = [thread for thread in threads if thread.is_alive()]

    def _keep(self, job: BatchJob, prefix: str, found: RunningMix, stop: threading.Event) -> None:
        """Run a job again and again, in a thread of its own, until a stop."""
        failures = 0
        while not stop.is_set():
            begin = time.monotonic()
            process = self._start(prefix + job.command)
            found.began(process)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            found.ended(process, used.ru_utime + used.ru_stime, job.kind.name, time.monotonic() - begin)
            failures = 0 if process.returncode == 0 else failures + 1
            if failures == FAILURES and not stop.is_set():
                found.fault = f"{job.command!r} failed {FAILURES} times in a row, with exit code {process.returncode}"
                return

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        if self._cores:
            os.sched_setaffinity(0, self._cores)
        # The user's own command, as the user typed it.
        return subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _wait_until_begun(begins: Sequence[tuple[str, CpuGroup]], found: RunningMix) -> None:
    """Return when every group has a job or its kind had one: an earlier window would measure the service alone."""
    deadline, left = time.monotonic() + BEGIN_SECONDS, list(begins)
    while left := [(name, group) for name, group in left if not (group.is_used() or name in found.names_ended())]:
        if time.monotonic() > deadline:
            raise InputError(f"no job ran in its control group within {BEGIN_SECONDS:g} s", field="--job")
        time.sleep(0.01)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all its children: by a signal first, then by a kill."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
