"""Options of the chaos runs, the fork_server of operators, and the servers that they are hurt on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from binaries import REQUIRED, NotToBeHad, find_or_build, tell_on_stderr
from chaos_run import Run
from chaos_steps import Plan
from control_plane import ControlPlane, control_plane
from emulated_site import emulated_site
from fork_server import ForkServer, open_fork_server
from invariant_checker import InvariantChecker
from observation import MakeRun, Observe
from poison_run import Sight
from report import Report
from servers import emulated, real

from cotide_kube.client import KubeClient

RunPlan = Callable[[Plan], Report]
SHOWN_LINES = 120
SURELY_SECONDS = 300.0
"""Beyond the time that a run has to settle in, and longer than any step of one: one that hangs fails."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption("--chaos-runs", type=int, default=1, help="seeded runs (default 1)")
    group.addoption("--poison-runs", type=int, default=2, help="runs with a poison pill (default 2)")
    group.addoption("--crowd-runs", type=int, default=2, help="runs beside a crowd of objects (default 2)")
    group.addoption("--chaos-seed", type=int, default=0, help="the first seed (default 0)")
    group.addoption("--chaos-server", choices=["emulated", "real"], default="emulated", help="what is hurt")
    group.addoption("--chaos-every", type=int, default=0, help="kill at every n-th await point (default 0: at one)")
    group.addoption("--chaos-matrix", type=int, default=0, help="1: each verb gets each wrong answer (default 0)")
    group.addoption("--chaos-burst", type=int, default=0, help="pods of the burst (default 0: none)")


def option(config: pytest.Config, name: str, default: int | str) -> int | str:
    """Return an option; where this folder is not named on the command line, pytest does not know ours."""
    found: int | str = config.getoption(f"--chaos-{name}", default)
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and count as deselected, what takes long and was not asked for by its option."""
    long = []
    for item in items:
        asked = item.get_closest_marker("asked_by")
        if asked is not None and not option(config, asked.args[0], 0):
            long.append(item)
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first = int(option(metafunc.config, "seed", 0))
    if "pill_seed" in metafunc.fixturenames:
        runs = int(metafunc.config.getoption("--poison-runs", 2))
        metafunc.parametrize("pill_seed", range(first, first + runs))
    if "crowd_seed" in metafunc.fixturenames:
        runs = int(metafunc.config.getoption("--crowd-runs", 2))
        metafunc.parametrize("crowd_seed", range(first, first + runs))
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(first, first + int(option(metafunc.config, "runs", 1))))


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> str:
    return str(option(pytestconfig, "server", "emulated"))


@pytest.fixture(scope="module")
def real_plane(
    server: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane | None]:
    """Give a control plane whose nodes need no kubelet; None on the emulator."""
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
    """Carry out runs of `poison_run` and `crowd_run` on the chosen server, each with nothing of an earlier one."""
    numbers = count()

    async def carry_out(make: MakeRun) -> tuple[Sight, int]:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        async with contextlib.AsyncExitStack() as stack:
            found = await stack.enter_async_context(emulated(folder) if real_plane is None else real(real_plane))
            client = await stack.enter_async_context(KubeClient(found.credentials))
            run = make(found, client)
            return await run.carry_out(), run.accepted

    return lambda make: asyncio.run(carry_out(make))


@pytest.fixture(scope="session")
def every(pytestconfig: pytest.Config) -> int:
    return int(option(pytestconfig, "every", 0))


@pytest.fixture(scope="session")
def burst(pytestconfig: pytest.Config) -> int:
    return int(option(pytestconfig, "burst", 0))


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with open_fork_server(tmp_path_factory.mktemp("fork_server")) as running:
        yield running


@pytest.fixture(scope="session")
def report_of(server: str, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunPlan]:
    """Carry plans out on the chosen server."""
    with contextlib.ExitStack() as stack:
        if server == "real":
            from real_site import readable_plane, real_site

            try:
                binaries = find_or_build(tell_on_stderr)
            except NotToBeHad as reason:
                if os.environ.get(REQUIRED) == "required":
                    raise
                pytest.skip(f"no real API server: {reason}")
            plane = stack.enter_context(readable_plane(binaries, tmp_path_factory.mktemp("plane")))

        async def carry_out(plan: Plan, folder: Path) -> Report:
            checker = InvariantChecker()
            at = real_site(plane, checker, f"chaos-{plan.seed}") if server == "real" else emulated_site(folder, checker)
            limit = asyncio.timeout(plan.liveness_seconds + SURELY_SECONDS)
            async with limit, at as site, KubeClient(site.credentials()) as client:
                return await Run(plan, site, checker, fork_server, folder, client).carry_out()

        def run(plan: Plan) -> Report:
            folder = Path(tempfile.mkdtemp(prefix=f"{plan.seed}-", dir=tmp_path_factory.getbasetemp()))
            report = asyncio.run(carry_out(plan, folder))
            report.folder = folder
            return report

        yield run


@pytest.fixture(scope="session")
def run_plan(server: str, report_of: RunPlan) -> RunPlan:
    """Carry plans out; one that is not clean fails the test."""

    def run(plan: Plan) -> Report:
        report = report_of(plan)
        if report.violations:
            pytest.fail(failure(plan, report, server), pytrace=False)
        return report

    return run


def failure(plan: Plan, report: Report, server: str) -> str:
    """Say what was planned, what broke, and how to see it again."""
    return "\n".join(
        (
            f"seed {plan.seed} on the {server} server is not clean:",
            *(f"  {line}" for line in report.violations),
            "the plan:",
            plan.words(),
            f"the last {SHOWN_LINES} changes:",
            *(f"  {line}" for line in report.history[-SHOWN_LINES:]),
            f"logs and ledgers: {report.folder}",
            f"again: .venv/bin/python -m pytest tests/chaos/test_seeded_runs.py --chaos-server {server} "
            f"--chaos-seed {plan.seed} --chaos-runs 1",
        )
    )
