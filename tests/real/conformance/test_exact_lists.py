"""Lists as of past versions: the emulator answers as a real server does, since a reflector stands on it."""

from __future__ import annotations

from api_calls import Caller
from control_plane import ControlPlane
from exact_lists import AS_OF_EACH_WRITE, TO_COME, as_of_each_write, of_a_version_to_come
from real_cluster import RealCluster


async def test_a_real_server_lists_as_of_each_version(plane: ControlPlane, cluster: RealCluster) -> None:
    caller = Caller(plane.url, cluster.namespace, plane.admin.ssl_context())
    assert as_of_each_write(caller) == AS_OF_EACH_WRITE
    assert of_a_version_to_come(caller) == TO_COME
