"""Pods of Jobs with phases: what they ask for when they are made, and the example that says its phases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from manifests import container, job_manifest, template
from repository import ROOT

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_kube.objects import Metadata
from cotide_operator.apis.types import read_job
from cotide_operator.controllers.child_pods import job_pod

EXAMPLE = ROOT / "examples" / "phases"
PHASES = [
    {"name": "read", "resources": {"cpu": "200m", "memory": "1Gi"}},
    {"name": "count", "resources": {"cpu": 2}},
]


def job(phases: list[dict[str, Any]], requests: dict[str, str]) -> Any:
    """A Job of phases, read, whose pods ask for so much."""
    return read_job(
        job_manifest(phases=phases, template=template(containers=[container(resources={"requests": requests})]))
    )


@pytest.mark.parametrize("reclaim", [False, True])
def test_a_phased_pod_asks_plainly_for_the_largest_of_each_resource(reclaim: bool) -> None:
    made = job_pod(
        Metadata(name="count", namespace="ns", uid="u"),
        job(PHASES, {"cpu": "1m", "ephemeral-storage": "1Gi"}),
        index=0,
        retry=0,
        workload_class=WorkloadClass.BATCH,
        scheduler_name="cotide",
        reclaim=reclaim,
    )
    asked = made["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"}


def test_phases_of_one_name_are_refused_with_their_field() -> None:
    with pytest.raises(InputError, match="different names"):
        job([PHASES[0], PHASES[0]], {})


def test_the_example_is_a_job_and_counts_words(tmp_path: Path) -> None:
    spec = read_job(yaml.safe_load((EXAMPLE / "job.yaml").read_text()))
    assert [phase.millicores for phase in spec.phases] == [200, 2000]
    text = tmp_path / "text"
    text.write_text("so it is\nand SO it was\n" * 5)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "word_count.py"), str(text)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[:2] == ["10 it", "10 so"]
