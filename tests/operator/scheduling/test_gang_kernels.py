"""What gangs need of machine code is compiled beside the loop, and only where there is a gang that may need it."""

from __future__ import annotations

import threading

import pytest
from live_cluster import engine, node, pod

from cotide_core.events import Gang
from cotide_operator.scheduling import gang_kernels
from cotide_operator.scheduling.gang_kernels import GangKernels

GANG = pod("g-0", 1000, 10.0, gang=Gang("d/g", 2, 60.0))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which something was compiled."""
    threads: list[threading.Thread] = []
    monkeypatch.setattr(gang_kernels, "compile_gangs", lambda: threads.append(threading.current_thread()))
    return threads


def test_the_first_gang_has_them_compiled_once_in_another_thread(compiled: list[threading.Thread]) -> None:
    kernels = GangKernels()
    scheduler, _ = engine("fifo", node(), GANG, gang_reserve_seconds=120.0)
    for _ in range(3):
        kernels.follow(scheduler)
    assert kernels.thread is not None
    kernels.thread.join()
    assert compiled == [kernels.thread]
    assert compiled[0] is not threading.current_thread()


@pytest.mark.parametrize(("gang", "after"), [(False, 120.0), (True, None)])
def test_nothing_is_compiled_where_no_room_is_kept(
    compiled: list[threading.Thread], gang: bool, after: float | None
) -> None:
    kernels = GangKernels()
    single = pod("p", 1000, 10.0)
    scheduler, _ = engine("fifo", node(), GANG if gang else single, gang_reserve_seconds=after)
    kernels.follow(scheduler)
    assert kernels.thread is None
    assert not compiled
