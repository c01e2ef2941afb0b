"""A machine within the machine: runs a command in namespaces of its own, where two real nodes fit.

::

    python tests/node/machine/machine.py -- python -m pytest tests/node

The command's processes see no others, have a network of their own (loopback only), and write to folders in memory
where runtimes write (``/run``, ``/var/lib``, ``/etc/cni``). Its first process is ours, which ends orphans' zombies.
Invariant: however this program ends (SIGKILL included), every process in the machine ends within a second, and its
folders of control groups are removed by a guard that outlives it. Needs root, namespaces and cgroup v1 or v2; exit
code 77 and one line where these are not to be had. Called by ``make test-node``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

SKIP_CODE: Final = 77
"""Exit code of "not possible here", as in automake's test protocol."""
REQUIRED: Final = "COTIDE_REAL"
"""Set to ``required``, what can't be had is a failure instead of a skip."""
GROUPS: Final = Path("/sys/fs/cgroup")
PREFIX: Final = "cotide-machine-"
CGROUP_VARIABLE: Final = "COTIDE_MACHINE_CGROUP"
"""Tells what runs within where its control groups are."""
UNSHARE: Final = ("unshare", "--pid", "--mount", "--net", "--ipc", "--uts", "--fork")
WITH_US: Final = ("setpriv", "--pdeathsig", "KILL")
"""Ends what it starts when we end."""
OVER_SECONDS: Final = 30.0
"""Chosen: how long killed processes may take to leave their control groups."""
IN_MEMORY: Final = ("/run", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cni", "/etc/cni", "/var/log")
"""Where runtimes and kubelets leave files."""


def main(command: Sequence[str]) -> int:
    """Run a command in a new machine and return its exit code."""
    if command[:1] == ["--guard"]:
        return guard(command[1])
    if command[:1] == ["--first"]:
        return first_process(command[1:])
    command = command[1:] if command[:1] == ["--"] else command
    lacking = _lacking()
    if lacking:
        sys.stderr.write(f"the tests on real nodes are skipped: {lacking}\n")
        return 1 if os.environ.get(REQUIRED) == "required" else SKIP_CODE
    with _alone():
        for one in stale():
            remove_groups(one)
    name = f"{PREFIX}{secrets.token_hex(4)}"
    guard_command = [sys.executable, __file__, "--guard", name]
    with subprocess.Popen(
        guard_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as guarding:
        assert guarding.stdout is not None
        guarding.stdout.read(1)  # it has made them
        started = subprocess.Popen(
            [*WITH_US, *UNSHARE, "--kill-child=SIGKILL", sys.executable, __file__, "--first", *command],
            env={**os.environ, CGROUP_VARIABLE: name},
        )
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: started.kill())
        code = started.wait()
        assert guarding.stdin is not None
        guarding.stdin.close()
        guarding.wait()
    return code if code >= 0 else 128 - code


def guard(name: str) -> int:
    """Make control groups for our starter, wait until it is gone, and remove them."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with _alone():
        make_groups(name)
        held = [os.open(folder, os.O_RDONLY) for folder in _folders(name)]
        for folder in held:
            fcntl.flock(folder, fcntl.LOCK_EX)  # says to others that these are in use
    os.write(1, b".")
    sys.stdin.buffer.read()
    return 0 if remove_groups(name) else 1


def first_process(command: Sequence[str]) -> int:
    """Prepare the machine as its process 1, run the command, and wait for whoever lost its parent."""
    _mount("proc", "/proc", "proc")
    for folder in IN_MEMORY:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _mount("tmpfs", folder, "tmpfs", "mode=755")
    Path("/run/lock").mkdir(exist_ok=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    started = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == started.pid:
            return os.waitstatus_to_exitcode(status)


def make_groups(name: str) -> None:
    """Make our folder in each hierarchy of control groups; in cpuset's with all CPUs, else it takes no process."""
    for folder in _folders(name):
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).exists():
                (folder / file).write_text((folder.parent / file).read_text(encoding="ascii"), encoding="ascii")


def remove_groups(name: str) -> bool:
    """Kill what is left in our control groups and remove them; whether all are gone."""
    deadline = time.monotonic() + OVER_SECONDS
    while time.monotonic() < deadline:
        left = [folder for folder in _folders(name) if folder.exists()]
        if not left:
            return True
        for folder in left:
            _empty(folder)
        time.sleep(0.05)
    return False


def _empty(folder: Path) -> None:
    for inner, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # gone meanwhile, or its processes are still ending
            for pid in (Path(inner) / "cgroup.procs").read_text(encoding="ascii").split():
                os.kill(int(pid), signal.SIGKILL)
            Path(inner).rmdir()


def _folders(name: str) -> list[Path]:
    if (GROUPS / "cgroup.controllers").exists():
        return [GROUPS / name] if name else [GROUPS]
    # Some names are links to a hierarchy that holds several controllers.
    found = {one.resolve() for one in GROUPS.iterdir() if (one / "cgroup.procs").exists()}
    return [one / name if name else one for one in sorted(found)]


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold other machines off: groups that were just made are not in use yet, and look like those of a dead one."""
    opened = os.open(GROUPS, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def stale() -> set[str]:
    """Return the groups of machines whose guard is gone, too."""
    found = set()
    for folder in {one for hierarchy in _folders("") for one in hierarchy.glob(f"{PREFIX}*")}:
        opened = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.add(folder.name)
        except BlockingIOError:
            pass
        finally:
            os.close(opened)
    return found


def _mount(source: str, folder: str, kind: str, options: str = "") -> None:
    subprocess.run(["mount", "-t", kind, *(["-o", options] if options else []), source, folder], check=True)


def _lacking() -> str:
    """Return what this machine lacks, or nothing."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "they need Linux and root"
    if not any(_folders("")):
        return "there are no control groups in /sys/fs/cgroup"
    bridge = ["ip", "link", "add", "cotide0", "type", "bridge"]
    probe = subprocess.run([*WITH_US, *UNSHARE, *bridge], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return f"no namespaces with a bridge: {probe.stderr.strip().splitlines()[-1:]}"
    try:
        for folder in _folders(f"{PREFIX}{secrets.token_hex(4)}"):
            folder.mkdir()
            folder.rmdir()
    except OSError as reason:
        return f"control groups can't be made: {reason}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
