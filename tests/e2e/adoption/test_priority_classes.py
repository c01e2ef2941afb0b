"""A cluster with PriorityClasses of its own: the names of the configuration give a class, and values give none."""

from __future__ import annotations

from operator_world import ALONE, PODS, World

from cotide_kube.answers import ApiError

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TEXT = f"policy: fifo\nclasses: {{byPriorityClass: {{nightly: batch}}}}\n{ALONE}"


async def labels(world: World) -> dict[str, str]:
    """Class label by pod."""
    pods = await world.client.list(PODS)
    return {pod["metadata"]["name"]: (pod["metadata"].get("labels") or {}).get("cotide.dev/class", "") for pod in pods}


async def without(world: World, *names: str) -> None:
    """Take PriorityClasses away: a real server keeps those of tests before."""
    for name in names:
        try:
            await world.client.delete(f"{CLASSES}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise


async def test_a_pod_gets_its_class_by_the_name_of_its_priority_class_and_keeps_it(world: World) -> None:
    await world.nodes(2, cpu="8")
    for name, value in (("nightly", 2500), ("important", 1000)):
        await world.client.create(CLASSES, {"metadata": {"name": name}, "value": value})
    expected = {"nightly0": "batch", "important0": "online", "shipped0": "gratis", "plain0": "online"}
    async with world.operator(TEXT):
        await world.pods(1, prefix="nightly", priorityClassName="nightly")
        await world.pods(1, prefix="important", priorityClassName="important")
        await world.pods(1, prefix="shipped", priorityClassName="cotide-gratis")
        await world.pods(1, prefix="plain")

        async def labelled() -> bool:
            return await labels(world) == expected

        await world.until("each pod carries its class", labelled)
    async with world.operator(TEXT.replace("nightly: batch", "important: gratis")) as operator:
        await world.until("the pods are known", lambda: len(operator.event_source.pods) == 4)
        found = {key.partition("/")[2]: str(pod.workload_class) for key, pod in operator.event_source.pods.items()}
    assert found == await labels(world) == expected
    await without(world, "nightly", "important")


async def test_a_priority_class_of_another_value_stays_and_gives_its_class(world: World) -> None:
    await world.nodes(1)
    await without(world, "cotide-batch", "cotide-gratis")
    older = {"metadata": {"name": "cotide-batch"}, "value": 1500, "preemptionPolicy": "Never"}
    await world.client.create(CLASSES, older)
    async with world.operator(TEXT) as operator:
        await world.pods(1, priorityClassName="cotide-batch")
        await world.until_placed(1)
        pod = operator.event_source.pods["default/p0"]
        assert (str(pod.workload_class), pod.priority, pod.preempts) == ("batch", 1500, False)
    kept = await world.client.get(f"{CLASSES}/cotide-batch")
    assert (kept["value"], kept["preemptionPolicy"]) == (1500, "Never")
    made = await world.client.get(f"{CLASSES}/cotide-gratis")
    assert made["value"] == 0
    await without(world, "cotide-batch")
