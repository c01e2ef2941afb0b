"""The kubelets of runs with phases live through what the API server tells late."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from environment import Environment
from invariant_checker import CheckedPod, InvariantChecker, PhasedPod
from phased_nodes import PhasedNodes

BOUND = CheckedPod(
    key="ns/p", uid="p", version=1, node="n", phase="Pending", leaving=False, kept=False, cls="batch", job="ns/j",
    owner="", index="0", created="t", requests=(("cpu", 500),), ours=True, seconds=None, service="",
    phased=PhasedPod((("p0", 500),), True, 500, None, "", "", "", ""),
)  # fmt: skip


class Server:
    """Takes every status, and has the checker see what happened meanwhile."""

    def __init__(self) -> None:
        self.patched = asyncio.Event()

    async def patch(self, *_: Any) -> dict[str, Any]:
        self.patched.set()
        return {}


async def test_a_pod_that_the_checker_has_not_seen_running_yet_keeps_its_place_on_its_node() -> None:
    checker, server = InvariantChecker(), Server()
    nodes = PhasedNodes(server, checker, Environment(server, checker, "ns"), 0)  # type: ignore[arg-type]  # as much of a client as is used
    checker.pods["ns/p"] = BOUND  # its kubelet has written that it runs; etcd's watch is a moment behind
    living = asyncio.ensure_future(nodes.live(BOUND))
    await server.patched.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not living.done()
    assert nodes._taken("n") == 500
    checker.pods["ns/p"] = replace(BOUND, phase="Succeeded")
    await living
    assert nodes._put_aside == {}
