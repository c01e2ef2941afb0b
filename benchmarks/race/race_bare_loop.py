"""The rival without a thought: binds every waiting pod to the next node, as fast as the server takes it.

Started by `real_race` as a process of its own, with our own client: what the server and the client take by themselves.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

import uvloop
from race_course import NODES, PODS, spread

from cotide_kube.client import KubeClient
from cotide_kube.credentials import load_credentials

IN_FLIGHT = 64


async def main(kubeconfig: str) -> None:
    async with KubeClient(load_credentials(kubeconfig), max_connections=IN_FLIGHT) as client:
        nodes = [one["metadata"]["name"] for one in await client.list(NODES)]
        pods = [one["metadata"] for one in await client.list(PODS)]

        async def bind(name: str, uid: str, node: str) -> None:
            answer = await client.bind("race", name, uid, node)
            if not answer.ok:
                raise SystemExit(f"the bare loop got {answer}")

        await spread(
            (
                lambda name=pod["name"], uid=pod["uid"], node=node: bind(name, uid, node)
                for pod, node in zip(pods, itertools.cycle(nodes))
            ),
            IN_FLIGHT,
        )
        await asyncio.Event().wait()  # like the others, it is ended by the race


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(sys.argv[1]))
