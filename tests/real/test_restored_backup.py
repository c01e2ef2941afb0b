"""A backup of etcd that is put back while somebody follows the server and sees nothing of it."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from binaries import Binaries
from control_plane import ControlPlane, control_plane
from manifests import node_manifest

from cotide_kube.backoff import Backoff
from cotide_kube.client import KubeClient
from cotide_kube.objects import NodeObject
from cotide_kube.reflector import BackupRestored, Reflector

NODES = "/api/v1/nodes"


@pytest.fixture(scope="module")
def ours(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server of this file's own: its data go back."""
    with control_plane(binaries, tmp_path_factory.mktemp("restored-plane")) as plane:
        yield plane


def with_data(plane: ControlPlane, source: Path, target: Path) -> None:
    """Copy etcd's data from one folder to another while the server is away."""
    plane.api_server.end()
    plane.etcd.end()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    plane.start_etcd()
    plane.start_api_server()
    plane.wait_until_ready()


async def to_its_end(following: AsyncIterator[Any]) -> None:
    async with asyncio.timeout(60.0):
        async for _ in following:
            pass


async def newest(client: KubeClient) -> int:
    return int((await client.get(f"{NODES}?limit=1"))["metadata"]["resourceVersion"])


async def test_it_is_noticed_where_the_server_is_at_a_later_version_than_was_seen(ours: ControlPlane) -> None:
    data, backup = ours.folder / "etcd", ours.folder / "backup"
    async with KubeClient(ours.admin, backoff=Backoff(initial_seconds=0.05, cap_seconds=0.5)) as client:
        await client.create(NODES, node_manifest("a"))
        await asyncio.to_thread(with_data, ours, data, backup)
        following = Reflector(client, NODES, NodeObject, ends_when_restored=True, rng=random.Random(1)).batches()
        while (await anext(following))[-1].kind != "SYNCED":
            pass
        await client.patch(f"{NODES}/a", {"metadata": {"labels": {"since": "the-backup"}}})
        seen = (await anext(following))[-1].object
        assert seen is not None
        assert seen.metadata.labels["since"] == "the-backup"
        # It reads no further until the other history has more versions than it saw.
        await asyncio.to_thread(with_data, ours, backup, data)
        number = 0
        while await newest(client) <= int(seen.metadata.resource_version):
            await client.create(NODES, node_manifest(f"b{number}"))
            number += 1
        with pytest.raises(BackupRestored, match="had no a at version"):
            await to_its_end(following)
