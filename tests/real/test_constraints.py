"""The nodes that our engine finds feasible are those that a real kube-scheduler does, for random clusters and pods.

``COTIDE_CONSTRAINT_CLUSTERS=60 pytest tests/real/test_constraints.py`` draws more clusters than a run of all tests
does, ``COTIDE_CONSTRAINT_SEED`` others; ``-s`` shows how many cases each rule had.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from binaries import Binaries
from constraint_cases import RULES, nodes, placed, probes
from control_plane import ControlPlane, control_plane
from reference_scheduler import Json, Reference, key_of, reference
from volume_cases import KINDS as VOLUME_KINDS
from volume_cases import Storage, storage, users, volume_probes

FIRST: Final = int(os.environ.get("COTIDE_CONSTRAINT_SEED", "0"))
CLUSTERS: Final = int(os.environ.get("COTIDE_CONSTRAINT_CLUSTERS", "4"))
PROBES: Final = 20
"""Pods of each kind asked about in one cluster."""


@pytest.fixture(scope="module")
def alone(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server without kube-controller-manager, which would taint nodes that no kubelet speaks for."""
    with control_plane(binaries, tmp_path_factory.mktemp("alone")) as running:
        yield running


@pytest.fixture
async def judge(alone: ControlPlane, tmp_path: Path) -> AsyncIterator[Reference]:
    async with reference(alone, tmp_path) as running:
        yield running


async def test_feasible_nodes_are_those_that_kube_scheduler_finds(judge: Reference) -> None:
    cases = Counter[str]()
    part = Counter[str]()
    for seed in range(FIRST, FIRST + CLUSTERS):
        draw = Random(seed)
        made = nodes(draw)
        await judge.fill(made, placed(draw, [node["metadata"]["name"] for node in made]))
        asked = [pod for kind in RULES for pod in probes(draw, kind, PROBES)]
        stored = await judge.create(asked)
        found, wanted = await judge.ours(stored), await judge.feasible(stored)
        wrong = [pod for pod in stored if found[uid_of(pod)] != wanted[uid_of(pod)]]
        differences = [
            (seed, summary_of(pod), sorted(found[uid_of(pod)]), sorted(wanted[uid_of(pod)])) for pod in wrong
        ]
        assert not differences, "\n".join(map(str, differences[:5]))
        for pod in stored:
            kind = pod["metadata"]["name"].rpartition("-")[0].replace("-", "_")
            cases[kind] += 1
            part[kind] += 0 < len(wanted[uid_of(pod)]) < len(made)
        await judge.clear()
        print(f"\nup to seed {seed}: cases {dict(cases)}\nof them neither all nor no node {dict(part)}", flush=True)
    assert all(cases[kind] == CLUSTERS * PROBES for kind in RULES)


async def test_nodes_that_volumes_leave_are_those_that_kube_scheduler_finds(judge: Reference) -> None:
    cases = Counter[str]()
    part = Counter[str]()
    for seed in range(FIRST, FIRST + CLUSTERS):
        draw = Random(f"volumes {seed}")
        made = nodes(draw)
        stock = storage(draw, seed, [node["metadata"]["name"] for node in made])
        asked = [pod for kind in VOLUME_KINDS for pod in volume_probes(draw, stock, kind, PROBES)]
        await judge.fill(made, users(draw, stock))
        await judge.store(stock)
        stored = await judge.create(asked)
        found, wanted = await judge.ours(stored), await judge.feasible(stored)
        wrong = [pod for pod in stored if found[uid_of(pod)] != wanted[uid_of(pod)]]
        differences = [
            (seed, volumes_of(pod, stock), sorted(found[uid_of(pod)]), sorted(wanted[uid_of(pod)])) for pod in wrong
        ]
        assert not differences, "\n".join(map(str, differences[:5]))
        for pod in stored:
            kind = pod["metadata"]["name"].rpartition("-")[0]
            cases[kind] += 1
            part[kind] += 0 < len(wanted[uid_of(pod)]) < len(made)
        await judge.clear()
        print(f"\nup to seed {seed}: cases {dict(cases)}\nof them neither all nor no node {dict(part)}", flush=True)
    assert all(cases[kind] == CLUSTERS * PROBES for kind in VOLUME_KINDS)


def volumes_of(pod: Json, stock: Storage) -> Json:
    """What matters of a pod with claims."""
    names = [
        one["persistentVolumeClaim"]["claimName"] for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one
    ]
    claims = {name: stock.claims.get(name) for name in names}
    volumes = {name: stock.volumes.get(claim["spec"].get("volumeName", "")) for name, claim in claims.items() if claim}
    return {"key": key_of(pod), "claims": claims, "volumes": volumes}


def summary_of(pod: Json) -> Json:
    """What matters of a pod."""
    rules = {key: pod["spec"].get(key) for key in ("affinity", "topologySpreadConstraints", "nodeSelector")}
    return {"key": key_of(pod), "labels": pod["metadata"]["labels"], **rules}


def uid_of(pod: Json) -> str:
    return str(pod["metadata"]["uid"])
