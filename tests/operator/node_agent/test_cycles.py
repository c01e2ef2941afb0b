"""Cycles an instruction: what is unusual for a service is seen, and where nothing may be counted nobody fails."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotide_node_agent.cycles import CYCLES, FIGURES, KNOWN_SAMPLES, CycleMeter, open_counter
from cotide_node_agent.group_files import PodGroup

WEB = PodGroup("web", "kubepods/burstable/podweb", "burstable")
OTHER = PodGroup("other", "kubepods/burstable/podother", "burstable")
SOFTWARE, TASK_CLOCK, PAGE_FAULTS = 1, 1, 2
"""Counters of the kernel's own, which virtual machines have, too (uapi/linux/perf_event.h)."""
MILLION = 1_000_000


class Counters:
    """Counters as files in memory; a leader's has the figures of its pair."""

    def __init__(self) -> None:
        self.leaders: dict[str, list[int]] = {}
        self.open_files: set[int] = set()
        self._figures: dict[str, tuple[int, int]] = {}

    def open(self, config: int, group: int, cpu: int, leader: int) -> int:
        assert (leader == -1) is (config == CYCLES)
        found = os.memfd_create("counter")
        self.open_files.add(found)
        if leader == -1:
            name = Path(f"/proc/self/fd/{group}").readlink().name
            self.leaders.setdefault(name, []).append(found)
            os.pwrite(found, FIGURES.pack(2, 0, 0), 0)
        return found

    def count(self, pod: PodGroup, cycles: int, instructions: int) -> None:
        """Let a pod run: each of its counters rises by so much, and is read from its beginning again."""
        name = Path(pod.path).name
        before = self._figures.get(name, (0, 0))
        now = self._figures[name] = before[0] + cycles, before[1] + instructions
        for leader in self.leaders.get(name, ()):
            os.pwrite(leader, FIGURES.pack(2, *now), 0)
            os.lseek(leader, 0, os.SEEK_SET)

    def alive(self) -> int:
        return sum(Path(f"/proc/self/fd/{file}").exists() for file in self.open_files)


@pytest.fixture
def counters() -> Iterator[Counters]:
    made = Counters()
    yield made
    assert made.alive() == 0, "every counter is given back"


@pytest.fixture
def meter(counters: Counters, tmp_path: Path) -> Iterator[CycleMeter]:
    """On two cpus."""
    for pod in (WEB, OTHER):
        (tmp_path / pod.path).mkdir(parents=True)
    made = CycleMeter(lambda path: tmp_path / path, [0, 1], counters.open)
    yield made
    made.close()


def look(meter: CycleMeter, counters: Counters, cycles: int, instructions: int, *pods: PodGroup) -> float | None:
    for pod in pods:
        counters.count(pod, cycles, instructions)
    return meter.look(pods)


def test_twice_the_cycles_for_the_same_work_is_two(meter: CycleMeter, counters: Counters) -> None:
    for _ in range(KNOWN_SAMPLES + 1):  # the first can only begin
        assert look(meter, counters, 80 * MILLION, 100 * MILLION, WEB) is None
    assert look(meter, counters, 160 * MILLION, 100 * MILLION, WEB) == pytest.approx(2.0)


def test_a_service_is_compared_with_itself_and_the_worst_counts(meter: CycleMeter, counters: Counters) -> None:
    for _ in range(KNOWN_SAMPLES + 2):
        counters.count(WEB, 50 * MILLION, 100 * MILLION)
        counters.count(OTHER, 300 * MILLION, 100 * MILLION)
        found = meter.look([WEB, OTHER])
    assert found == pytest.approx(1.0)  # .5 and 3 are both as ever
    counters.count(WEB, 75 * MILLION, 100 * MILLION)
    counters.count(OTHER, 300 * MILLION, 100 * MILLION)
    assert meter.look([WEB, OTHER]) == pytest.approx(1.5)


def test_a_service_that_does_next_to_nothing_says_nothing(meter: CycleMeter, counters: Counters) -> None:
    for _ in range(KNOWN_SAMPLES + 2):
        assert look(meter, counters, 4 * MILLION, 4 * MILLION, WEB) is None  # 8 of 10 million on both cpus


def test_a_counter_that_answers_nothing_fails_nobody(meter: CycleMeter, counters: Counters) -> None:
    look(meter, counters, 1, 1, WEB)
    os.truncate(counters.leaders[Path(WEB.path).name][1], 0)
    assert meter.look([WEB]) is None


def test_a_pod_that_ends_while_its_counters_are_opened_ends_no_others_measurement(
    counters: Counters, tmp_path: Path
) -> None:
    def opener(config: int, group: int, cpu: int, leader: int) -> int:
        name = Path(f"/proc/self/fd/{group}").readlink()
        if name.name == Path(WEB.path).name:
            name.rmdir()
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return counters.open(config, group, cpu, leader)

    for pod in (WEB, OTHER):
        (tmp_path / pod.path).mkdir(parents=True)
    meter = CycleMeter(lambda path: tmp_path / path, [0], opener)
    meter.look([OTHER])
    meter.look([WEB, OTHER])
    assert (meter.permitted, counters.alive()) == (True, 2)
    meter.close()


def test_counters_of_a_pod_that_is_gone_are_given_back(meter: CycleMeter, counters: Counters) -> None:
    look(meter, counters, 1, 1, WEB, OTHER)
    assert counters.alive() == 8  # two pods, two cpus, cycles and instructions
    meter.look([OTHER])
    assert counters.alive() == 4


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES, errno.ENOSYS])
def test_where_nothing_may_be_counted_it_is_asked_once_and_nothing_is_said(code: int, tmp_path: Path) -> None:
    asked = []

    def refuse(*call: int) -> int:
        asked.append(call)
        raise OSError(code, os.strerror(code))

    (tmp_path / WEB.path).mkdir(parents=True)
    meter = CycleMeter(lambda path: tmp_path / path, [0, 1], refuse)
    assert [meter.look([WEB]) for _ in range(3)] == [None] * 3
    assert len(asked) == 1


def test_a_second_counter_that_is_refused_takes_the_first_with_it(counters: Counters, tmp_path: Path) -> None:
    def half(config: int, group: int, cpu: int, leader: int) -> int:
        if leader >= 0:
            raise OSError(errno.ENOENT, "none")
        return counters.open(config, group, cpu, leader)

    (tmp_path / WEB.path).mkdir(parents=True)
    assert CycleMeter(lambda path: tmp_path / path, [0], half).look([WEB]) is None


def test_a_group_that_is_not_there_says_nothing_and_others_do(meter: CycleMeter, counters: Counters) -> None:
    gone = PodGroup("gone", "kubepods/podgone", "")
    for _ in range(KNOWN_SAMPLES + 2):
        counters.count(WEB, 50 * MILLION, 100 * MILLION)
        found = meter.look([gone, WEB])
    assert found == pytest.approx(1.0)
    assert meter.permitted


def test_the_kernel_takes_what_is_asked_of_it_and_answers_in_the_form_that_is_read() -> None:
    """With counters of its own, the task's clock and its page faults, since few virtual machines show a processor's."""
    try:
        leader = open_counter(TASK_CLOCK, -1, -1, -1, SOFTWARE)
    except OSError as error:
        pytest.skip(f"no counters may be read here: {error.strerror}")
    second = open_counter(PAGE_FAULTS, -1, -1, leader, SOFTWARE)
    try:
        # The kernel takes up a second counter when its task is next switched in: somebody is waited for.
        subprocess.run([sys.executable, "-c", ""], check=True)
        first = FIGURES.unpack(os.read(leader, FIGURES.size))
        with mmap.mmap(-1, 64 * mmap.PAGESIZE) as touched:  # new pages: the heap may have some that were touched before
            for start in range(0, len(touched), mmap.PAGESIZE):
                touched[start] = 1
            then = FIGURES.unpack(os.read(leader, FIGURES.size))
    finally:
        os.close(second)
        os.close(leader)
    assert first[0] == then[0] == 2  # counters in the group
    assert then[1] > first[1]  # nanoseconds that we ran
    assert then[2] > first[2]
