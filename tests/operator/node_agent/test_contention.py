"""What counts as waiting for others, and what as waiting for one's own limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from node_groups import NodeGroups

from cotide_core.errors import CotideError
from cotide_node_agent.contention import ContentionMeter
from cotide_node_agent.group_files import open_group_files


def schedstat(processes: Path, thread: int, ran: float, waited: float, turns: int = 7) -> None:
    folder = processes / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"{round(ran * 1e9)} {round(waited * 1e9)} {turns}\n")


def test_threads_that_waited_a_third_of_their_time_say_so(tmp_path: Path) -> None:
    node = NodeGroups(tmp_path / "cgroup", "version 1")
    path = node.add("web", "burstable", containers=1)
    (node.mount / "cpu" / path / "c0" / "tasks").write_text("11\n12\n13\n")
    groups, processes = open_group_files(node.mount), tmp_path / "proc"
    schedstat(processes, 11, 5, 1)
    meter = ContentionMeter(groups, processes)
    assert meter.look(groups.pods(), 1.0).waiting_share is None
    schedstat(processes, 11, 7, 2)
    schedstat(processes, 12, 90, 90)  # a new one says nothing yet
    assert meter.look(groups.pods(), 2.0).waiting_share == pytest.approx(1 / 3)


@pytest.mark.parametrize(("waited", "share"), [(0.032, 0.0), (0.399, 0.0), (0.401, 0.401 / 0.441)])
def test_turns_that_wait_no_longer_than_it_takes_to_begin_one_are_not_held_back(
    tmp_path: Path, waited: float, share: float
) -> None:
    """4,000 requests of 10 microseconds each: 8 of waiting are a switch, though as long; more than 100 are waiting."""
    node = NodeGroups(tmp_path / "cgroup", "version 1")
    path = node.add("web", "burstable")
    (node.mount / "cpu" / path / "tasks").write_text("11\n")
    groups, processes = open_group_files(node.mount), tmp_path / "proc"
    schedstat(processes, 11, 5.0, 1.0, 1000)
    meter = ContentionMeter(groups, processes)
    meter.look(groups.pods(), 1.0)
    schedstat(processes, 11, 5.04, 1.0 + waited, 5000)
    assert meter.look(groups.pods(), 2.0).waiting_share == pytest.approx(share)


def test_pressure_is_taken_where_the_kernel_has_it(tmp_path: Path) -> None:
    node = NodeGroups(tmp_path / "cgroup", "version 2")
    pressure = node.mount / node.add("web", "burstable") / "cpu.pressure"
    groups = open_group_files(node.mount)
    meter = ContentionMeter(groups, tmp_path / "proc")
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    meter.look(groups.pods(), 1.0)
    pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=0\n")
    assert meter.look(groups.pods(), 3.0).waiting_share == pytest.approx(0.25)


@pytest.mark.parametrize("kind", ["version 1", "version 2"])
def test_a_service_that_its_own_limit_holds_back_is_no_reason_to_cut_batch(kind: str, tmp_path: Path) -> None:
    node = NodeGroups(tmp_path / "cgroup", kind)
    path = node.add("web", "burstable", quota=50_000)
    groups = open_group_files(node.mount)
    threads = node.mount / ("cpu" if node.first else "") / path / ("tasks" if node.first else "cgroup.threads")
    threads.write_text("11\n")
    schedstat(tmp_path / "proc", 11, 1, 1)
    meter = ContentionMeter(groups, tmp_path / "proc")
    meter.look(groups.pods(), 1.0)
    node.throttle(path, 5)
    schedstat(tmp_path / "proc", 11, 2, 9)
    assert meter.look(groups.pods(), 2.0) == (None, 1)
    schedstat(tmp_path / "proc", 11, 3, 10)
    assert meter.look(groups.pods(), 3.0) == (pytest.approx(0.5), 0)


def test_a_mount_without_control_groups_or_without_a_kubelet_s_is_named(tmp_path: Path) -> None:
    with pytest.raises(CotideError, match="holds no control groups"):
        open_group_files(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("")
    with pytest.raises(CotideError, match="holds neither kubepods nor"):
        open_group_files(tmp_path)


def test_a_container_that_ends_while_threads_are_listed_costs_no_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NodeGroups(tmp_path / "cgroup", "version 1")
    path = node.add("web", "burstable", containers=2)
    pod = node.mount / "cpu" / path
    for number in range(2):
        (pod / f"c{number}" / "tasks").write_text(f"{number}\n")
    (pod / "tasks").write_text("7\n")
    groups, listed = open_group_files(node.mount), os.scandir

    def scandir(folder: Path) -> Listing:
        found = Listing(listed(folder))
        if Path(folder) == pod and (pod / "c0").exists():
            for file in (pod / "c0").iterdir():
                file.unlink()
            (pod / "c0").rmdir()
        return found

    monkeypatch.setattr(os, "scandir", scandir)
    assert groups.threads(path) == [7, 1]


class Listing(list["os.DirEntry[str]"]):
    """A folder's entries as they were, whatever became of them since."""

    def __enter__(self) -> Listing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __next__(self) -> os.DirEntry[str]:
        if not self:
            raise StopIteration
        return self.pop(0)
