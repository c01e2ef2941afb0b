"""The agent on a node of files: who is held back, when, and what is left when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_groups import NodeGroups

from cotide_node_agent.agent import BatchPod, NodeAgent
from cotide_node_agent.control_law import LawSettings
from cotide_node_agent.group_files import open_group_files
from cotide_node_agent.undo_journal import UndoJournal

LAW = LawSettings(target_share=0.95, half_life_seconds=5.0)
BATCH = BatchPod("b1", gratis=False, reclaimed_cpus=1.0, reclaimed_memory_bytes=64 * 2**20)
OTHER = BatchPod("b2", gratis=False, reclaimed_cpus=1.0)
GRATIS = BatchPod("g1", gratis=True)


class Run:
    """An agent on a node of four cpus, tick by tick."""

    def __init__(self, tree: NodeGroups, journal: Path, *batch: BatchPod) -> None:
        self.tree = tree
        self.batch = {pod.uid: pod for pod in batch}
        self.agent = NodeAgent(open_group_files(tree.mount), UndoJournal(journal), tree.mount / "proc", LAW)
        self.now = 0.0

    def tick(self, seconds: float = 0.25, **cpus: float) -> None:
        """Let time pass in which groups, by a word of their path, use so many cpus; then one tick."""
        self.now += seconds
        for path in self.paths():
            for word, amount in cpus.items():
                if word in path:
                    self.tree.use(path, amount * seconds)
        self.agent.tick(self.batch, 4.0, 0.0, self.now)

    def paths(self) -> list[str]:
        return [pod.path for pod in open_group_files(self.tree.mount).pods()]


def test_a_rise_of_the_services_lowers_batch_within_one_tick_and_gives_back_slowly(
    tree: NodeGroups, tmp_path: Path
) -> None:
    path, _ = tree.add("b1"), tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH)
    run.tick()
    run.tick(podb1=3.0, podweb=0.5)
    assert tree.quota_cpus(path) == pytest.approx(0.95 * 4 - 0.5, abs=0.01)
    run.tick(podb1=3.0, podweb=3.0)
    assert tree.quota_cpus(path) == pytest.approx(3.8 - 3.0, abs=0.01)
    run.tick(podb1=0.8, podweb=0.5)
    assert 0.8 < (tree.quota_cpus(path) or 9) < 1.0  # of the 2.5 that came free, 3 % in a quarter of a second
    for _ in range(80):
        run.tick(podb1=3.0, podweb=0.5)
    assert tree.quota_cpus(path) == pytest.approx(3.3, rel=0.07)


@pytest.mark.parametrize(("cpus", "offered"), [("0-1,3", 3.0), ("0-7", 4.0), ("", 4.0)])
def test_cpus_that_pods_may_not_run_on_are_not_theirs_to_use(
    tree: NodeGroups, tmp_path: Path, cpus: str, offered: float
) -> None:
    path, _ = tree.add("b1"), tree.add("web", "burstable")
    tree.confine(cpus)
    run = Run(tree, tmp_path / "journal", BATCH)
    run.tick()
    run.tick(podb1=1.0, podweb=0.5)
    assert tree.quota_cpus(path) == pytest.approx(0.95 * offered - 0.5, abs=0.01)


def test_two_batch_pods_share_what_is_left_and_what_one_leaves_goes_to_the_other(
    tree: NodeGroups, tmp_path: Path
) -> None:
    one, other = tree.add("b1"), tree.add("b2")
    tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH, OTHER)
    run.tick()
    run.tick(podb1=1.0, podb2=1.0, podweb=1.8)
    assert (tree.quota_cpus(one), tree.quota_cpus(other)) == pytest.approx((1.0, 1.0), abs=1e-3)
    run.tick(podb1=0.1, podb2=1.0, podweb=1.8)
    assert (tree.quota_cpus(other) or 0) > 1.8


def test_a_batch_pod_keeps_what_it_requested_of_the_node_and_a_gratis_pod_next_to_nothing(
    tree: NodeGroups, tmp_path: Path
) -> None:
    batch, gratis = tree.add("b1", "burstable"), tree.add("g1")
    tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH._replace(requested_cpus=0.5), GRATIS)
    run.tick()
    run.tick(podb1=1.0, podg1=1.0, podweb=4.0)
    assert (tree.quota_cpus(batch), tree.quota_cpus(gratis)) == pytest.approx((0.5, 0.02), abs=0.001)


def test_a_service_and_a_pod_that_nobody_knows_are_never_touched(tree: NodeGroups, tmp_path: Path) -> None:
    tree.add("web", "burstable"), tree.add("unknown"), tree.add("b1")
    run = Run(tree, tmp_path / "journal", BATCH)
    before = tree.texts()
    for _ in range(8):
        run.tick(podb1=3.0, podweb=3.0)
    changed = [path for path, text in tree.texts().items() if before[path] != text]
    assert changed
    assert all("podb1" in path for path in changed)


def test_a_pod_beside_services_of_its_tier_has_the_least_weight_and_alone_one_by_what_it_asked_for(
    tree: NodeGroups, tmp_path: Path
) -> None:
    alone, beside = tree.add("b1"), tree.add("b2", "burstable")
    tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH, OTHER)
    run.tick()
    run.tick()
    # 1 reclaimed cpu is 1024 shares, which are 39 of version 2.
    assert (tree.weight(alone), tree.weight(beside)) == ((1024, 2) if tree.first else (39, 1))


def test_reclaimed_memory_is_where_memory_is_taken_back_from(tree: NodeGroups, tmp_path: Path) -> None:
    path = tree.add("b1")
    run = Run(tree, tmp_path / "journal", BATCH)
    run.tick()
    run.tick()
    assert tree.memory(path) == str(64 * 2**20)


@pytest.mark.parametrize("killed", [False, True])
def test_everything_is_as_before_when_it_ends_and_at_the_next_start_after_a_kill(
    tree: NodeGroups, tmp_path: Path, killed: bool
) -> None:
    tree.add("b1", containers=2, quota=250_000), tree.add("b2"), tree.add("web", "burstable")
    before = tree.texts()
    run = Run(tree, tmp_path / "journal", BATCH, OTHER)
    for services in (3.0, 0.5, 2.0, 0.1):
        for _ in range(4):
            run.tick(podb1=2.0, podb2=1.0, podweb=services)
    assert tree.texts() != before
    if killed:
        journal = UndoJournal(tmp_path / "journal")
        assert journal.load() == len([path for path, text in before.items() if tree.texts()[path] != text])
        journal.undo()
    else:
        run.agent.undo()
    assert tree.texts() == before


def test_a_pod_that_is_batch_no_more_gets_back_what_it_had(tree: NodeGroups, tmp_path: Path) -> None:
    tree.add("b1"), tree.add("web", "burstable")
    before = tree.texts()
    run = Run(tree, tmp_path / "journal", BATCH)
    for _ in range(6):
        run.tick(podb1=2.0, podweb=3.0)
    run.batch.clear()
    for _ in range(6):
        run.tick(podb1=2.0, podweb=3.0)
    assert tree.texts() == before


def test_pods_that_end_are_forgotten_and_never_stop_a_tick(tree: NodeGroups, tmp_path: Path) -> None:
    path, _ = tree.add("b1"), tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH)
    for _ in range(6):
        run.tick(podb1=2.0, podweb=3.0)
    tree.remove(path)
    for _ in range(6):
        run.tick(podweb=3.0)
    assert run.agent.undo() == 0


def test_a_container_of_version_1_never_has_more_than_its_pod(tmp_path: Path) -> None:
    tree = NodeGroups(tmp_path / "cgroup", "version 1")
    path = tree.add("b1", quota=200_000, containers=1)
    groups, journal = open_group_files(tree.mount), UndoJournal(tmp_path / "journal")
    held = (2.0, 2.0)
    for cpus in (1.0, 0.5, 1.5, 4.0):
        for file, text in groups.quota(path, cpus, journal.before):
            journal.change(file, text)
            now = (tree.quota_cpus(path) or 0.0, tree.quota_cpus(f"{path}/c0") or 0.0)
            assert now[1] <= now[0], (held, now)
            held = now
        assert held == (min(2.0, cpus), min(2.0, cpus))  # and never more than its own


def test_a_pod_that_is_batch_between_two_looks_only_gets_back_what_it_had(tree: NodeGroups, tmp_path: Path) -> None:
    """A look is a second; the operator sets a class right that claims too much as soon as it sees it."""
    tree.add("b1"), tree.add("web", "burstable")
    before = tree.texts()
    run = Run(tree, tmp_path / "journal")
    for _ in range(6):
        run.tick(podweb=3.0)
    run.batch["b1"] = BATCH
    run.tick(podb1=2.0, podweb=3.0)
    assert tree.texts() != before
    run.batch.clear()
    for _ in range(6):
        run.tick(podb1=2.0, podweb=3.0)
    assert tree.texts() == before


@pytest.mark.parametrize(("resized", "services"), [(50_000, 2.1), (50_000, 2.0), (300_000, 2.0)])
def test_a_limit_that_a_kubelet_changes_holds_at_once_and_batch_gets_no_more(
    tree: NodeGroups, tmp_path: Path, resized: int, services: float
) -> None:
    """Services use 2 cpus, so that batch may use 1.8, and as long as they do nothing else asks for another quota."""
    path, _ = tree.add("b1", quota=200_000), tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH)
    for _ in range(6):
        run.tick(podb1=3.0, podweb=2.0)
    assert tree.quota_cpus(path) == pytest.approx(1.8, abs=0.01)
    tree.limit(path, resized)
    run.tick(podb1=3.0, podweb=services)
    assert tree.quota_cpus(path) == pytest.approx(min(3.8 - services, resized / 100_000), abs=0.01)
    run.agent.undo()
    assert tree.quota_cpus(path) == resized / 100_000


def test_a_limit_below_what_batch_may_use_is_noticed_when_it_rises(tree: NodeGroups, tmp_path: Path) -> None:
    path, _ = tree.add("b1", quota=100_000), tree.add("web", "burstable")
    run = Run(tree, tmp_path / "journal", BATCH)
    for _ in range(6):
        run.tick(podb1=3.0, podweb=2.0)
    assert tree.quota_cpus(path) == 1.0
    tree.limit(path, 300_000)
    run.tick(podb1=3.0, podweb=2.0)
    assert tree.quota_cpus(path) == pytest.approx(1.8, abs=0.01)
