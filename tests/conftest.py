"""Which API server tests run on (``--server emulator``, the default, ``real`` or ``node``), and where a real one is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from binaries import REQUIRED, Binaries, NotToBeHad, find, find_or_build, tell_on_stderr
from hypothesis import HealthCheck, settings
from repository import DATA

from cotide_core.kernels.compiled import compiles

BUILT = find()
if BUILT is not None and shutil.which("kubectl") is None:
    # The one that was built with the control plane, so that no test is skipped for want of it.
    os.environ["PATH"] = f"{os.environ['PATH']}:{BUILT.kubectl.parent}"

compiles()  # loads numba here, and not within the first test that calls a kernel

# How long an example takes, or its drawing, says how busy the machine is: laws hold or fail by what they find. What
# decides about a change draws the same examples each time; `make search` draws new ones, and a find becomes a test.
settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=("emulator", "real", "node"),
        default="emulator",
        help="what the end-to-end tests run on: the embedded API server, kube-apiserver, or that with real kubelets",
    )


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The programs of a real control plane."""
    try:
        return find_or_build(tell_on_stderr)
    except NotToBeHad as reason:
        if os.environ.get(REQUIRED) == "required":
            raise
        pytest.skip(f"no real API server: {reason}")


@pytest.fixture(scope="session")
def colocation() -> Path:
    """The directory of the measured co-location tables."""
    directory = DATA / "colocation"
    if not directory.is_dir():
        pytest.skip(f"no measured tables in {DATA}: set COTIDE_DATA to a directory that holds colocation/")
    return directory
