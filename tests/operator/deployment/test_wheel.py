"""The wheel holds what the source tree holds, and runs without it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from repository import ROOT

PACKAGES = ("operator", "predictors", "sim")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``make wheel`` builds it."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = target.glob("cotide-*.whl")
    return found


def test_it_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = {
        path.relative_to(ROOT / folder).as_posix()
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert found == source


def test_unpacked_elsewhere_it_runs_from_there(wheel: Path, tmp_path: Path) -> None:
    # Its dependencies are those of this environment: a fresh one with all of them is what `make test-image` builds.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(wheel)]
    subprocess.run(command, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    where = "import cotide_cli, cotide_core, cotide_sim; print(cotide_cli.__file__, cotide_core.__file__)"
    for program in ([sys.executable, "-c", where], [str(tmp_path / "bin" / "cotide"), "version"]):
        done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert str(tmp_path) in done.stdout or program[-1] == "version"
