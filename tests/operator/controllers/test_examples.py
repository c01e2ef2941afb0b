"""``kubectl apply -f examples/`` on the server, the nodes and the operator, each started as a user starts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from repository import ROOT

from cotide_sim.apiserver.testing import server_process

SPEED = 20.0
DEADLINE = "60s"


@contextmanager
def cotide(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one command of ours until the block is left; it must still run then."""
    command = [sys.executable, "-m", "cotide_cli", *arguments]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stderr=out) as process,
    ):
        try:
            yield process
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs the kubectl binary")
def test_the_examples_end_with_jobs_succeeded_and_a_workload_ready(tmp_path: Path) -> None:
    origin = f"{time.time():.0f}"
    config = tmp_path / "cotide.yaml"
    config.write_text(
        "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
        f"simulatedTime: {{originSeconds: {origin}, speed: {SPEED:g}}}\n"
    )
    with ExitStack() as stack:
        server = stack.enter_context(server_process())
        to_server = ("--kubeconfig", str(server.kubeconfig_path))
        timing = ("--speed", f"{SPEED:g}", "--origin-seconds", origin)
        stack.enter_context(cotide(tmp_path / "nodes.log", "nodes", *to_server, "--count", "4", *timing))
        operator = ("operator", "--config", str(config), *to_server, "--metrics-port", "0")
        stack.enter_context(cotide(tmp_path / "operator.log", *operator))

        def kubectl(*arguments: str) -> str:
            environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig_path)}
            done = subprocess.run(
                ["kubectl", *arguments], capture_output=True, text=True, timeout=90, env=environment, check=False
            )
            logs = (tmp_path / "operator.log").read_text()
            assert done.returncode == 0, f"kubectl {arguments}: {done.stderr}\n{logs}"
            return done.stdout

        definitions = ("crd/jobs.cotide.dev", "crd/workloads.cotide.dev")
        kubectl("apply", "-k", str(ROOT / "deploy" / "crds"))
        kubectl("wait", "--for=condition=Established", *definitions, f"--timeout={DEADLINE}")
        kubectl("apply", "-f", str(ROOT / "examples"))
        kubectl("wait", "--for=condition=Ready", "cwl", "--all", f"--timeout={DEADLINE}")
        kubectl("wait", "--for=condition=Complete", "cjob", "--all", f"--timeout={DEADLINE}")
        kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/report", f"--timeout={DEADLINE}")
        table = kubectl("get", "cjob,cwl").splitlines()
        headings = [line.split() for line in table if line.startswith("NAME")]
        assert headings[0][1:7] == ["CLASS", "TYPE", "PHASE", "DONE", "OF", "POSITION"]
        assert headings[1] == ["NAME", "READY", "RPS", "P95", "LIMIT", "DECIDES", "VIOLATIONS", "AGE"]
        jobs = json.loads(kubectl("get", "cjob", "-o", "json"))["items"]
        assert {job["metadata"]["name"]: job["status"]["succeeded"] for job in jobs} == {
            "render": 4,
            "sort": 2,
            "wordcount": 6,
        }
