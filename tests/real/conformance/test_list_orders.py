"""Strategic merge patches leave lists in the order that the emulator's table has."""

from __future__ import annotations

from api_calls import Caller
from control_plane import ControlPlane
from list_orders import ORDERS
from real_cluster import RealCluster


async def test_a_real_server_leaves_lists_in_the_order_of_the_table(plane: ControlPlane, cluster: RealCluster) -> None:
    caller = Caller(plane.url, cluster.namespace, plane.admin.ssl_context())
    found, wanted = {}, {}
    for number, (shown, order) in enumerate(ORDERS.items()):
        path, name = f"/api/v1/namespaces/{cluster.namespace}/{order.kind}", f"order-{number}"
        body = {**order.before, "metadata": {**order.before.get("metadata", {}), "name": name}}
        code, made = caller.send("POST", path, body)
        assert code == 201, made
        code, patched = caller.send("PATCH", f"{path}/{name}", order.patch, "application/strategic-merge-patch+json")
        assert code == 200, f"{shown}: {patched}"
        found[shown], wanted[shown] = order.found(patched), order.after
        caller.send("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    assert found == wanted
