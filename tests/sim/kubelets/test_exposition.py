import asyncio
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cotide_core.classes import WorkloadClass
from cotide_core.errors import InputError
from cotide_kube.client import KubeClient
from cotide_kube.credentials import Credentials
from cotide_sim.apiserver.server import ApiServer
from cotide_sim.cluster.machine import MachinePark, NodeUsage, PodLoad, PodUsage, ServiceSample
from cotide_sim.interference.generated import GeneratedInterference
from cotide_sim.kubelets.exposition import MetricsPage, metrics_text, serve
from cotide_sim.kubelets.fleet import Fleet, FleetSettings


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


async def test_no_node_is_registered_where_the_port_of_the_metrics_is_in_use():
    async with ApiServer() as server, KubeClient(Credentials(server.url)) as client:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            settings = FleetSettings(GeneratedInterference(), count=2, metrics_port=taken.getsockname()[1])
            with pytest.raises(InputError, match="is in use"):
                await Fleet(client, settings).run(asyncio.Event())
        assert await client.list("/api/v1/nodes") == []


def test_a_pods_use_is_told_under_our_name_and_a_kubelets():
    # 30 simulated core-seconds at 20 times the wall's pace are 1.5 s of a core by the wall.
    usage = PodUsage("shop/web-1", "fake-0", "serve", 750.0, 2**30, 30.0)
    pod = (("namespace", "shop"), ("node", "fake-0"), ("pod", "web-1"))
    container = (("container", "serve"), *pod)
    assert parsed(metrics_text([], [], [], [usage], speed=20.0)) == {
        ("cotide_sim_pod_cpu_usage_millicores", pod): 750.0,
        ("cotide_sim_pod_memory_usage_bytes", pod): 2.0**30,
        ("container_cpu_usage_seconds_total", container): 1.5,
        ("container_memory_working_set_bytes", container): 2.0**30,
    }


def test_the_rate_of_the_cpu_counter_is_the_number_of_cores_in_use():
    # A service of 500 of 1000 requests/s a core beside a job that asks for 1500 of 2000 millicores: .5 and 1.5 cores.
    machines = MachinePark(GeneratedInterference())
    machines.add_node("fake-0", 2000, 2**33)
    machines.start_pod("fake-0", PodLoad("shop/web", WorkloadClass.ONLINE, 1000, 2**30, rates=(91_500.0,)), 0.0)
    machines.start_pod("fake-0", PodLoad("shop/job", WorkloadClass.BATCH, 1500, 2**30, isolated_seconds=1e6), 0.0)
    clock = iter((40.0, 100.0))
    counted = []
    for now in clock:
        text = metrics_text([], [], [], machines.pod_usage(now), speed=20.0)
        counted.append(
            {dict(labels)["pod"]: value for (name, labels), value in parsed(text).items() if name.endswith("_total")}
        )
    wall_seconds = (100.0 - 40.0) / 20.0
    rates = {pod: (counted[1][pod] - counted[0][pod]) / wall_seconds for pod in counted[0]}
    assert rates == pytest.approx({"web": 0.5, "job": 1.5})
