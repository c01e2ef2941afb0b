"""One start for every racer: which pod stands where, and which workers stay, by a rule and a seed alone.

Used by `consolidation_race` on the real server. No scheduler runs meanwhile: pods are bound here, in the order of their
applications, each to the node on which least cpu is asked for; of equal ones the first by name. Workers that are to
stay carry the annotation by which a ReplicaSet deletes them last (``controller.kubernetes.io/pod-deletion-cost``).
Pods of one application are alike, so that the start is the same whatever their names are.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from cotide_core.units import CPU, resource_amount
from cotide_kube.client import KubeClient

COST: Final = "controller.kubernetes.io/pod-deletion-cost"
AT_ONCE: Final = 20
NODES: Final = "/api/v1/nodes"
STEP_SECONDS: Final = 0.5
Json = dict[str, Any]


async def put_pods(client: KubeClient, pods: str, count: int, seconds: float) -> None:
    """Wait until so many pods are made, and bind them."""
    deadline = time.monotonic() + seconds
    while len(listed := await client.list(pods)) != count:
        if time.monotonic() > deadline:
            raise SystemExit(f"{len(listed)} of {count} pods were made")
        await asyncio.sleep(STEP_SECONDS)
    nodes = dict.fromkeys(sorted(one["metadata"]["name"] for one in await client.list(NODES)), 0)
    turns = asyncio.Semaphore(AT_ONCE)

    async def bind(pod: Json, node: str) -> None:
        meta = pod["metadata"]
        async with turns:
            await client.bind(meta["namespace"], meta["name"], meta["uid"], node)

    bound = []
    for pod in sorted(listed, key=lambda one: (one["metadata"]["labels"]["app"], one["metadata"]["name"])):
        node = min(nodes, key=lambda name: (nodes[name], name))
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        nodes[node] += resource_amount(CPU, requests["cpu"])
        bound.append(bind(pod, node))
    await asyncio.gather(*bound)


async def keep_some(client: KubeClient, pods: str, left: Mapping[str, int], seed: int) -> None:
    """Mark so many pods of each application as the last to be deleted, chosen by their nodes and the seed."""
    rng = random.Random(seed)
    of_app: dict[str, list[Json]] = defaultdict(list)
    for pod in await client.list(pods):
        of_app[pod["metadata"]["labels"]["app"]].append(pod)
    rank = {name: at for at, name in enumerate(sorted(one["metadata"]["name"] for one in await client.list(NODES)))}
    for app, count in sorted(left.items()):
        there = sorted(of_app[app], key=lambda one: rank[one["spec"]["nodeName"]])
        for pod in rng.sample(there, count):
            body = {"metadata": {"annotations": {COST: "100"}}}
            await client.patch(f"{pods}/{pod['metadata']['name']}", body)
