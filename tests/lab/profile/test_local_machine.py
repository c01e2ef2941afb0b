"""A window beside a job begins when the job has: until then it would be one of the service alone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import pytest

from cotide_core.errors import InputError
from cotide_lab.predictors.profiling.windows import JobKind
from cotide_lab.profile import local_machine
from cotide_lab.profile.cgroups import CpuGroup
from cotide_lab.profile.local_machine import LocalMachine
from cotide_lab.profile.plan import BatchJob

MIX = (("sleep", 1),)
JOB = BatchJob(JobKind("sleep", 7, 500), "exec sleep 100")


class StandInGroup(CpuGroup):
    """A group that is a plain directory, into which no job comes by itself."""

    folder: ClassVar[Path]

    def __enter__(self) -> StandInGroup:
        self.directory = self.folder
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prefix(self, beside_millicores: int) -> str:
        return ""


@pytest.fixture
def held_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hold jobs up before their group; return the file in which it says who is in it."""
    monkeypatch.setattr(StandInGroup, "folder", tmp_path, raising=False)
    monkeypatch.setattr(local_machine, "CpuGroup", StandInGroup)
    return tmp_path / "cgroup.procs"


def test_a_window_waits_for_a_job_that_is_held_up(held_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job comes into its group when it was waited for three times."""
    waited: list[float] = []

    def come(seconds: float) -> None:
        waited.append(seconds)
        held_up.write_text("1\n" if len(waited) == 3 else "")

    monkeypatch.setattr(time, "sleep", come)
    with LocalMachine((), 1000) as machine, machine.running(MIX, [JOB]):
        assert len(waited) == 3


@pytest.mark.usefixtures("held_up")
def test_a_job_that_never_comes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_machine, "BEGIN_SECONDS", 0.0)
    with (
        LocalMachine((), 1000) as machine,
        pytest.raises(InputError, match="no job ran"),
        machine.running(MIX, [JOB]),
    ):
        pass


@pytest.mark.usefixtures("held_up")
def test_a_job_too_short_to_be_met_in_its_group_has_begun() -> None:
    with LocalMachine((), 1000) as machine, machine.running(MIX, [BatchJob(JOB.kind, "true")]) as jobs:
        assert jobs.names_ended() == {"sleep"}
