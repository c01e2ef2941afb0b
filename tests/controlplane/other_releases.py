"""Programs of Kubernetes releases before and after the one that `binaries` builds.

Each release has a folder with its own go.mod and go.sum beside this file; built once, on demand, by the race
(``--kubernetes 1.34``) or here::

    python tests/controlplane/other_releases.py 1.36     # prints the folder; 77 and one line where there is no way

etcd and all other programs are today's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from binaries import (
    KUBERNETES,
    MODULE,
    PACKAGES,
    Binaries,
    NotToBeHad,
    Sources,
    build_once,
    find_or_build,
    print_folder,
    tell_on_stderr,
)

TODAY: Final = KUBERNETES.rpartition(".")[0]
"""The release of `binaries`."""
OTHERS: Final = {"1.33": "1.33.13", "1.34": "1.34.4", "1.36": "1.36.3"}
"""What the go.mod of each pins: of each minor release the newest that the Go module proxy has with all its parts."""
PROGRAMS: Final = ("kube-apiserver", "kube-scheduler")
MORE_PROGRAMS: Final = {"1.36": ("kube-controller-manager",)}
"""1.36: its own makes PodGroups of Jobs."""
RELEASES: Final = tuple(sorted((*OTHERS, TODAY)))


def sources_of(release: str) -> Sources:
    """Return what a release other than today's is built from."""
    names = (*PROGRAMS, *MORE_PROGRAMS.get(release, ()))
    return Sources(MODULE / f"v{release}", OTHERS[release], {name: PACKAGES[name] for name in names})


def is_there(release: str) -> bool:
    """Whether a release other than today's is built."""
    return sources_of(release).complete()


def of_release(release: str, emit: Callable[[str], None]) -> Binaries:
    """Return the programs of a release, such as ``1.34``, built where they are missing.

    Raises `NotToBeHad` for a release that is none of `RELEASES`, and where it can't be built.
    """
    if release not in RELEASES:
        raise NotToBeHad(f"Kubernetes {release} is none of {', '.join(RELEASES)}")
    found = find_or_build(emit)
    return found if release == TODAY else replace(found, **_built(release, emit))


def _built(release: str, emit: Callable[[str], None]) -> dict[str, Path]:
    sources = sources_of(release)
    build_once(sources, emit)
    return {name.replace("-", "_"): sources.cached() / name for name in sources.packages}


def main() -> int:
    """Print the folder of the programs of the release that is named."""
    release = sys.argv[1]

    def folder() -> Path:
        return of_release(release, tell_on_stderr).kube_apiserver.parent

    return print_folder(folder, f"the tests on Kubernetes {release}")


if __name__ == "__main__":
    sys.exit(main())
