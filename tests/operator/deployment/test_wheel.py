"""The wheel holds what the source tree holds, and runs without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from repository import ROOT

PACKAGES = ("operator", "predictors", "sim")
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")
ALONE = """
import sys
sys.path += sys.argv[1:3]  # no folder of this environment's own installation
sys.argv[0:3] = ["cotide"]
from cotide_cli.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``make wheel`` builds it."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def built(source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = target.glob("cotide-*.whl")
    return found


def unpacked(wheel: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)


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
    unpacked(wheel, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    where = "import cotide_cli, cotide_core, cotide_lab; print(cotide_cli.__file__, cotide_core.__file__)"
    for program in ([sys.executable, "-c", where], [str(tmp_path / "bin" / "cotide"), "version"]):
        done = subprocess.run(program, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert str(tmp_path) in done.stdout or program[-1] == "version"


def test_the_image_s_wheel_is_the_product_alone_and_names_the_extra_of_other_commands(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "installed"
    for folder in ("operator", "predictors"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, source / name)
    unpacked(built(source, tmp_path), target)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-c", ALONE, str(target), sysconfig.get_path("purelib"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    shown = run("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "operator" in shown.stdout
    assert "Research" not in shown.stdout
    assert run("operator", "--help").returncode == 0
    for name, package, extra in (("demo", "cotide_sim", "sim"), ("simulate", "cotide_lab", "lab")):
        refused = run(name)
        message = f"cotide: {name} needs the package {package}, which is not installed: pip install 'cotide[{extra}]'\n"
        assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", message)
