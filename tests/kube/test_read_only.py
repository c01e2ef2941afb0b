"""A client that only reads refuses every write before it is sent, and so does each copy of it."""

from __future__ import annotations

import pytest

from cotide_core.errors import ClusterError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.http.faults import Fault
from cotide_sim.apiserver.testing import running_server

NODES = "/api/v1/nodes"


@pytest.mark.parametrize("unfenced", [False, True])
async def test_nothing_is_written(unfenced: bool) -> None:
    async with running_server() as server:
        client = KubeClient(Credentials(server.url), read_only=True)
        async with client:
            tried = client.unfenced() if unfenced else client
            asked = server.faults.add(Fault(count=-1))
            for attempt in (
                tried.create(NODES, {"metadata": {"name": "n"}}),
                tried.patch(f"{NODES}/n", {}),
                tried.delete(f"{NODES}/n"),
            ):
                with pytest.raises(ClusterError, match="only reads"):
                    await attempt
            assert not (await tried.bind("d", "p", "u", "n")).ok
            assert await tried.list(NODES) == []
            assert asked.met == 1  # the list
