"""Workloads on the embedded API server, over real HTTP: they run, replace, scale, adopt and cap."""

from __future__ import annotations

from controllers_world import (
    JOBS,
    PODS,
    TEMPLATE,
    WORKLOADS,
    condition,
    job,
    workload,
    world,
)

from cotide_operator.usage.service_readings import ServiceReading


async def test_a_workload_runs_replaces_and_scales_its_pods() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE, replicas=2))
        pods = await one.until_pods("web-0", "web-1")
        assert pods["web-0"]["metadata"]["labels"] == {
            "team": "data",
            "cotide.dev/class": "online",
            "cotide.dev/workload": "web",
            "cotide.dev/index": "0",
        }
        for name in pods:
            await one.run_pod(name)
        one.readings.by_key["default/web"] = ServiceReading(1234.56, 7.891, 3)
        # A look may come between the second pod's start and the reading, or before either is seen.
        both = {"ready": "2/2", "rps": 1234.6}
        status = await one.until_status(f"{WORKLOADS}/web", lambda status: both.items() <= status.items())
        assert status["nodes"] == ["node-a"]
        assert (status["latencyP95Milliseconds"], status["violations"]) == (7.89, 3)
        assert condition(status, "Ready")["status"] == "True"
        first = pods["web-1"]["metadata"]["uid"]
        await one.set_status("web-1", phase="Failed", reason="OutOfcpu")

        async def replaced() -> bool:
            pod = (await one.pods()).get("web-1")
            return pod is not None and pod["metadata"]["uid"] != first

        await one.until(replaced)
        await one.client.patch(f"{WORKLOADS}/web", {"spec": {"replicas": 1}})

        async def scaled() -> bool:
            return all(
                name == "web-0" or "deletionTimestamp" in pod["metadata"] for name, pod in (await one.pods()).items()
            )

        await one.until(scaled)
        await one.until_status(f"{WORKLOADS}/web", lambda status: status.get("ready") == "1/1")


async def test_violations_of_an_earlier_run_are_kept() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE))
        await one.until_pods("web-0")
        one.readings.by_key["default/web"] = ServiceReading(violations=3)
        await one.until_status(f"{WORKLOADS}/web", lambda status: status.get("violations") == 3)
        await one.kill()
        one.readings.by_key["default/web"] = ServiceReading(violations=0)
        one.start()
        one.readings.by_key["default/web"] = ServiceReading(violations=2)
        await one.until_status(f"{WORKLOADS}/web", lambda status: status.get("violations") == 5)


async def test_a_workload_adopts_the_pods_it_selects() -> None:
    async with world() as one:
        labels = {"web-x": {"app": "web"}, "web-y": {"app": "web", "cotide.dev/class": "batch"}, "other": {"app": "db"}}
        for name, own in labels.items():
            body = {"metadata": {"name": name, "labels": own}, "spec": TEMPLATE["spec"]}
            await one.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body})
        await one.client.create(WORKLOADS, workload(selector={"matchLabels": {"app": "web"}}))

        async def labelled() -> bool:
            pods = await one.pods()
            return all("cotide.dev/workload" in pods[name]["metadata"]["labels"] for name in ("web-x", "web-y"))

        await one.until(labelled)
        pods = await one.pods()
        assert pods["web-x"]["metadata"]["labels"]["cotide.dev/class"] == "online"
        assert pods["web-y"]["metadata"]["labels"]["cotide.dev/class"] == "batch"  # said by the user: it stays
        assert pods["other"]["metadata"]["labels"] == {"app": "db"}
        status = await one.until_status(f"{WORKLOADS}/web", lambda status: status.get("ready") == "0/2")
        assert condition(status, "Ready")["reason"] == "PodsNotReady"


async def test_a_workload_that_turns_to_adopting_gives_its_own_pods_up() -> None:
    async with world() as one:
        await one.client.create(WORKLOADS, workload(template=TEMPLATE))
        await one.until_pods("web-0")
        patch = {"spec": {"template": None, "selector": {"matchLabels": {"app": "web"}}}}
        await one.client.patch(f"{WORKLOADS}/web", patch)

        async def gone() -> bool:
            return not await one.pods()

        await one.until(gone)


async def test_a_namespace_caps_the_class_of_children() -> None:
    async with world() as one:
        patch = {"metadata": {"labels": {"cotide.dev/max-class": "gratis"}}}
        await one.client.patch("/api/v1/namespaces/default", patch)
        assert one.controllers is not None

        async def known() -> bool:
            found = one.cache.namespaces.get("default")
            return found is not None and bool(found.metadata.labels.get("cotide.dev/max-class"))

        await one.until(known)
        await one.client.create(JOBS, job(**{"class": "batch"}))
        pods = await one.until_pods("count-0")
        assert pods["count-0"]["metadata"]["labels"]["cotide.dev/class"] == "gratis"
