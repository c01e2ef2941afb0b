import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cotide_core.errors import InputError
from cotide_sim.interference_generated import GeneratedInterference
from cotide_sim.kubelets.exposition import MetricsPage, metrics_text, serve
from cotide_sim.machine import MachinePark, NodeUsage, ServiceSample


def parsed(text):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_page_can_be_read_by_prometheus():
    page = metrics_text(
        [NodeUsage("fake-0", 1500.5, 2**31)],
        [ServiceSample("shop/web-1", "fake-0", 5000.0, 1.25)],
        [("cotide_sim_pods_started_total", "Pods that began to run.", 7)],
    )
    pod = (("namespace", "shop"), ("node", "fake-0"), ("pod", "web-1"))
    assert parsed(page) == {
        ("cotide_sim_node_cpu_usage_millicores", (("node", "fake-0"),)): 1500.5,
        ("cotide_sim_node_memory_usage_bytes", (("node", "fake-0"),)): 2.0**31,
        ("cotide_sim_service_requests_per_second", pod): 5000.0,
        ("cotide_sim_service_latency_p95_milliseconds", pod): 1.25,
        ("cotide_sim_pods_started_total", ()): 7.0,
    }


def test_odd_names_are_escaped():
    page = metrics_text([NodeUsage('a"b\\c\nd', 1.0, 1)], [], [])
    assert ("cotide_sim_node_cpu_usage_millicores", (("node", 'a"b\\c\nd'),)) in parsed(page)


def test_a_fleet_without_pods_has_a_page_too():
    assert parsed(metrics_text([], [], [])) == {}


async def test_a_port_in_use_is_called_so():
    page = MetricsPage(MachinePark(GeneratedInterference()), lambda: 0.0, list)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--metrics-port: port {port} on 127.0.0.1 is in use; choose another"):
            await serve(page, lambda: True, "127.0.0.1", port)
