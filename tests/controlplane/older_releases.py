"""kube-apiserver and kube-scheduler of Kubernetes releases before the one that `binaries` builds.

Each release has a folder with its own go.mod and go.sum beside this file; built once, on demand, by the race
(``--kubernetes 1.34``). etcd and all other programs are today's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from binaries import KUBERNETES, MODULE, PACKAGES, Binaries, NotToBeHad, Sources, build_once, find_or_build

PROGRAMS: Final = ("kube-apiserver", "kube-scheduler")
OLDER: Final = {"1.33": "1.33.13", "1.34": "1.34.4"}
"""What the go.mod of each pins: of each minor release the newest that the Go module proxy has with all its parts."""
RELEASES: Final = (*OLDER, KUBERNETES.rpartition(".")[0])


def of_release(release: str, tell: Callable[[str], None]) -> Binaries:
    """Return the programs of a release, such as ``1.34``, built where they are missing.

    Raises `NotToBeHad` for a release that is none of `RELEASES`, and where it can't be built.
    """
    if release not in RELEASES:
        raise NotToBeHad(f"Kubernetes {release} is none of {', '.join(RELEASES)}")
    found = find_or_build(tell)
    if release not in OLDER:
        return found
    sources = Sources(MODULE / f"v{release}", OLDER[release], {name: PACKAGES[name] for name in PROGRAMS})
    build_once(sources, tell)
    folder = sources.cached()
    return replace(found, kube_apiserver=folder / "kube-apiserver", kube_scheduler=folder / "kube-scheduler")
