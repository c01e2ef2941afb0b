"""Upstream's end-to-end specs of sig-scheduling as one program, and the image program that their pods run.

Found in our cache, or built once from the same Kubernetes as the control plane. The modules are in ``e2e`` beside this
file, one for each release, with one source for all. Called by the exam and, as a program, by ``make test-upstream``::

    PYTHONPATH=tests/controlplane python tests/controlplane/upstream_programs.py 1.36

It prints the folder; exit code 77 and one line where there is no way.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binaries import KUBERNETES, MODULE, NotToBeHad, Sources, build_once, print_folder, tell_on_stderr
from other_releases import OTHERS, TODAY

MODULES: Final = MODULE / "e2e"
PACKAGES: Final = {"e2e": ".", "agnhost": "k8s.io/kubernetes/test/images/agnhost"}
VERSIONS: Final = {TODAY: KUBERNETES, "1.36": OTHERS["1.36"]}
"""Kubernetes by the releases that have a module."""


@dataclass(frozen=True, slots=True)
class UpstreamPrograms:
    """Where the programs are."""

    folder: Path

    @property
    def specs(self) -> Path:
        return self.folder / "e2e"

    @property
    def agnhost(self) -> Path:
        return self.folder / "agnhost"

    def images(self) -> tuple[str, str]:
        """Return the names of the images that the specs' pods have: that which pauses, and agnhost."""
        said = subprocess.run([self.specs, "--images"], capture_output=True, text=True, check=True).stdout
        pause, agnhost = said.split()
        return pause, agnhost


def sources_of(release: str) -> Sources:
    """Return what the programs of a release are built from; raises `NotToBeHad` for a release without a module."""
    if release not in VERSIONS:
        raise NotToBeHad(f"there are no specs of Kubernetes {release}, only of {', '.join(VERSIONS)}")
    return Sources(MODULES / f"v{release}", VERSIONS[release], PACKAGES, own=(MODULES / "e2e.go",))


def find_or_build(release: str, emit: Callable[[str], None]) -> UpstreamPrograms:
    """Return the programs of a release; raises `NotToBeHad` where they are neither there nor can be built."""
    sources = sources_of(release)
    if not sources.complete():
        build_once(sources, emit)
    return UpstreamPrograms(sources.cached())


def main() -> int:
    """Print the folder of the programs of the release that is named."""
    release = sys.argv[1] if len(sys.argv) > 1 else TODAY
    return print_folder(lambda: find_or_build(release, tell_on_stderr).folder, "upstream's specs")


if __name__ == "__main__":
    sys.exit(main())
