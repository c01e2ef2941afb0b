"""A poison pill among ordinary objects: nobody else's placement, status, event or time changes.

More of them: ``make test-poison RUNS=100``, or ``--poison-runs N --chaos-seed S --chaos-server real``; each run is done
twice, without the pill and with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane, control_plane
from poison_pills import PILLS
from poison_run import PoisonRun, Script, Sight, timeless
from servers import emulated, real

from cotide_kube.client import KubeClient

LATER_SECONDS = 2.0
"""That a step may take longer than the longest without the pill; chosen: above what a busy machine adds to a step of
some 50 ms, and far below what each of the pills once cost (docs/tenancy.md)."""

Observe = Callable[..., tuple[Sight, int]]


@pytest.fixture(scope="module")
def real_plane(
    server: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane | None]:
    if server == "emulated":
        yield None
        return
    still = dict.fromkeys(("node-monitor-grace-period", "node-startup-grace-period"), "1h")
    with control_plane(request.getfixturevalue("binaries"), tmp_path_factory.mktemp("plane")) as plane:
        plane.start_controller_manager(still)
        plane.wait_for_accounts()
        yield plane


@pytest.fixture
def observe(real_plane: ControlPlane | None, tmp_path: Path) -> Observe:
    async def carry_out(script: Script, poisoned: bool) -> tuple[Sight, int]:
        folder = tmp_path / str(poisoned)
        folder.mkdir()
        async with contextlib.AsyncExitStack() as stack:
            found = await stack.enter_async_context(emulated(folder) if real_plane is None else real(real_plane))
            client = await stack.enter_async_context(KubeClient(found.credentials))
            run = PoisonRun(script, found, client, poisoned=poisoned)
            return await run.carry_out(), run.accepted

    return lambda script, *, poisoned: asyncio.run(carry_out(script, poisoned))


def test_a_poison_pill_changes_nothing_for_others(pill_seed: int, observe: Observe) -> None:
    script = Script.of(pill_seed)
    clean, _ = observe(script, poisoned=False)
    poisoned, accepted = observe(script, poisoned=True)
    assert len(clean.objects) == 12, "5 small pods and a large one, a Job and a Workload with 2 pods each"
    assert poisoned.objects == clean.objects, script
    assert poisoned.said == clean.said, script
    late = [
        (number, spent) for number, spent in enumerate(poisoned.seconds) if spent > max(clean.seconds) + LATER_SECONDS
    ]
    assert not late, f"{script}: {accepted} objects accepted; steps (number, seconds) {late}, without {clean.seconds}"


def test_every_pill_can_be_made_and_comes_in_a_row_of_seeds() -> None:
    assert {Script.of(seed).pill for seed in range(len(PILLS))} == set(PILLS)
    assert all(make() for make in PILLS.values())


def test_what_is_compared_is_all_but_moments() -> None:
    assert timeless({"status": {"phase": "Running", "startTime": "now"}}) == {"status": {"phase": "Running"}}
