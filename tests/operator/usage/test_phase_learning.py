"""Phases learned live: pods that succeed teach their type, within their tenant, over restarts, and never a stranger."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hand_clock import HandClock

from cotide_core.errors import InputError
from cotide_core.phases.progress import Usage
from cotide_kube import turns
from cotide_kube.objects import NamespaceObject, PodObject
from cotide_operator.apis.types import JobSpec, read_job
from cotide_operator.cache.object_cache import CustomObject, ObjectCache
from cotide_operator.config.phase_settings import PhaseSettings
from cotide_operator.config.settings import parse_settings
from cotide_operator.models.learned_store import PHASES, StoreSilent
from cotide_operator.observability.metrics import Metrics
from cotide_operator.translation.pod_phases import Phases, learned_for, written
from cotide_operator.usage import phase_learning
from cotide_operator.usage.phase_learning import PhaseLearning

RUN_SECONDS, EVERY_SECONDS = 600, 10
SPEC = {
    "type": "sort",
    "template": {
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}],
        }
    },
}
HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"


class Store:
    """Keeps files in memory, or fails."""

    most_samples = None

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], dict[str, bytes]] = {}
        self.fails = False

    async def learners(self) -> list[str]:
        return []

    async def load(self, part: str, learner: str) -> dict[str, bytes] | None:
        self._check()
        return self.files.get((part, learner))

    async def save(self, part: str, learner: str, files: Any) -> None:
        self._check()
        self.files[part, learner] = dict(files)

    async def delete(self, learner: str) -> None:
        self._check()
        self.files = {name: file for name, file in self.files.items() if name[1] != learner}

    def _check(self) -> None:
        if self.fails:
            raise StoreSilent("it does not answer")


class Scene:
    """Jobs of one type in some namespaces; time is what the test says."""

    def __init__(self, store: Store | None = None, *, listed: bool = True, **settings: Any) -> None:
        self.cache, self.metrics, self.store = ObjectCache(), Metrics(), store or Store()
        if listed:
            self.cache.mark_synced("namespaces")
        self.clock, self.millicores, self.runs = HandClock(1000.0), 0.0, 0
        self.learning = PhaseLearning(
            PhaseSettings(learn=True, keep_seconds=1e-9, **settings),
            self.cache,
            clock=self.clock,
            metrics=self.metrics,
            kept=self.store,
        )

    def usage_of(self, key: str) -> Usage | None:
        del key
        return Usage(self.millicores, 2.0**30, self.clock.now())

    def job(self, namespace: str, **more: Any) -> CustomObject:
        self.cache.apply("namespaces", "ADDED", msgspec.convert({"metadata": {"name": namespace}}, NamespaceObject))
        metadata = {"namespace": namespace, "name": "j", "uid": f"u-{namespace}"}
        found = msgspec.convert({"metadata": metadata, "spec": {**SPEC, **more}}, CustomObject)
        self.cache.apply("jobs", "ADDED", found)
        return found

    def see(self, namespace: str, phase: str) -> None:
        owner = {
            "apiVersion": "cotide.dev/v1alpha1", "kind": "Job", "name": "j", "uid": f"u-{namespace}", "controller": True
        }  # fmt: skip
        pod = {
            "metadata": {
                "namespace": namespace,
                "name": f"j-{self.runs}",
                "uid": str(self.runs),
                "ownerReferences": [owner],
            },
            "spec": {"containers": SPEC["template"]["spec"]["containers"]},
            "status": {"phase": phase},
        }
        self.cache.apply("pods", "MODIFIED", msgspec.convert(pod, PodObject))

    async def run(self, namespace: str, *, end: str = "Succeeded", low: float = 200.0, high: float = 1500.0) -> None:
        """Run a pod: little cpu for two thirds of its time, then much."""
        self.runs += 1
        self.see(namespace, "Running")
        for second in range(0, RUN_SECONDS, EVERY_SECONDS):
            self.millicores = low if second < 2 * RUN_SECONDS / 3 else high
            self.clock.wall += EVERY_SECONDS
            await self.learning.look(self.usage_of)
        self.see(namespace, end)

    def phases(self, namespace: str, **more: Any) -> Phases:
        return self.learning.phases_for(self.cache.jobs[f"{namespace}/j"], spec_of(**more))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cotide_{name}", labels)


def spec_of(**more: Any) -> JobSpec:
    return read_job({"metadata": {"name": "j"}, "spec": {**SPEC, **more}})


async def taught(scene: Scene, namespace: str = "a", runs: int = 6) -> Scene:
    scene.job(namespace)
    for _ in range(runs):
        await scene.run(namespace)
    return scene


async def test_the_pods_of_a_type_get_the_phases_that_earlier_runs_had() -> None:
    scene = await taught(Scene())
    first, second = scene.phases("a")
    # 200 and 1,500 with a margin of .15; two thirds of 600 s and the rest.
    assert (first.millicores, second.millicores) == (pytest.approx(230, abs=3), pytest.approx(1725, abs=20))
    assert (first.seconds, second.seconds) == (pytest.approx(400, abs=30), pytest.approx(200, abs=30))
    read = learned_for(pod_with(written((first, second))))
    assert [one.millicores for one in read] == [first.millicores, second.millicores]
    assert [one.seconds for one in read] == pytest.approx([first.seconds, second.seconds], abs=0.1)


def pod_with(text: str) -> PodObject:
    return msgspec.convert({"metadata": {"name": "p", "annotations": {"cotide.dev/learned-phases": text}}}, PodObject)


@pytest.mark.parametrize(
    "text",
    [
        "", "no", "{}", "[1]", "[" * 5000, '[{"name": "a", "millicores": -1, "memoryBytes": 0, "seconds": 1}]',
        '[{"name": "a", "millicores": 1e9, "memoryBytes": 0, "seconds": 1}]', " " * 9000,
    ],
)  # fmt: skip
def test_learned_phases_that_can_not_be_read_are_none(text: str) -> None:
    assert learned_for(pod_with(text)) == ()


async def test_they_are_scored_beside_one_level_and_the_maximum() -> None:
    scene = await taught(Scene())
    learned, mean = (scene.metric("phase_forecast_share", rule=rule, what="under") for rule in ("learned", "mean"))
    assert learned == 0.0
    assert mean == pytest.approx(1 / 3, abs=0.05)
    assert scene.metric("phase_forecast_share", rule="maximum", what="held") == 1.0
    assert scene.metric("phase_types", state="trusted") == 1
    assert scene.metric("phase_runs_total", outcome="taught") == 6


async def test_too_few_runs_and_runs_that_failed_teach_nothing_that_is_used() -> None:
    scene = await taught(Scene(), runs=3)
    for _ in range(5):
        await scene.run("a", end="Failed")
    assert scene.phases("a") == ()


async def test_a_tenant_learns_from_its_own_runs_alone_unless_it_is_pooled() -> None:
    alone = await taught(Scene())
    alone.job("b")
    assert alone.phases("b") == ()
    pooled = await taught(Scene(pooled_namespaces=("a", "b")))
    pooled.job("b")
    assert len(pooled.phases("b")) == 2
    pooled.job("c")
    assert pooled.phases("c") == ()


async def test_stated_phases_another_size_and_several_containers_get_none() -> None:
    scene = await taught(Scene())
    assert scene.phases("a", phases=[{"name": "x", "resources": {"cpu": 1}}]) == ()
    both = {"spec": {"containers": [{"name": name, "image": "i"} for name in "ab"]}}
    assert scene.phases("a", template=both) == ()
    larger = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "3", "memory": "4Gi"}}}
    assert scene.phases("a", template={"spec": {"containers": [larger]}}) == ()


async def test_what_was_learned_outlives_the_process() -> None:
    before = await taught(Scene())
    await before.learning.keep()
    after = Scene(before.store)
    after.job("a")
    await after.learning.look(after.usage_of)
    assert len(after.phases("a")) == 2


async def test_a_store_that_does_not_answer_is_asked_again_and_not_written_over() -> None:
    before = await taught(Scene())
    await before.learning.keep()
    kept = dict(before.store.files)
    after = Scene(before.store)
    after.store.fails = True
    after.job("a")
    await after.run("a")
    after.store.fails = False
    await after.learning.keep()
    assert after.store.files == kept
    await after.learning.look(after.usage_of)
    assert len(after.phases("a")) == 2


async def test_a_namespace_that_is_gone_takes_its_runs_along() -> None:
    scene = await taught(Scene())
    await scene.learning.keep()
    scene.cache.apply("namespaces", "DELETED", scene.cache.namespaces["a"])
    await scene.learning.look(scene.usage_of)
    assert scene.phases("a") == ()
    assert scene.store.files == {}


async def test_a_namespace_that_goes_before_its_types_were_read_leaves_nothing_to_the_next_of_its_name() -> None:
    before = await taught(Scene())
    await before.learning.keep()
    after = Scene(before.store)
    after.store.fails = True
    after.job("a")
    await after.learning.look(after.usage_of)
    after.store.fails = False
    after.cache.apply("namespaces", "DELETED", after.cache.namespaces["a"])
    after.cache.apply("jobs", "DELETED", after.cache.jobs["a/j"])
    await after.learning.look(after.usage_of)
    assert after.store.files == {}
    assert after.learning._restored == {}


async def test_before_the_namespaces_are_listed_none_is_gone() -> None:
    before = await taught(Scene())
    await before.learning.keep()
    after = Scene(before.store, listed=False)
    after.job("a")
    after.cache.apply("namespaces", "DELETED", after.cache.namespaces["a"])  # its list has not come yet
    await after.learning.look(after.usage_of)
    assert len(after.phases("a")) == 2
    assert after.store.files


async def test_a_tenant_with_many_types_pushes_out_its_own() -> None:
    scene = Scene(types_most=7)
    await taught(scene, "b")
    for number in range(10):
        scene.job("a", type=f"t{number}")
        await scene.run("a")
    assert len(scene.phases("b")) == 2
    assert [name for learner, name in scene.learning._profiles if learner == "a"] == [f"t{n}" for n in range(4, 10)]


async def test_types_are_bounded() -> None:
    scene = Scene(types_most=2)
    for name in ("one", "two", "three"):
        scene.job("a", type=name)
        await scene.run("a")
    assert sum(scene.metric("phase_types", state=state) or 0 for state in ("learning", "trusted", "fallen back")) == 2


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("phases: {learn: true}", "phases.learn"),
        ("phases: {learn: true, store: directory}\nmetricsSource: {kubernetes: {}}", "phases.store"),
        (
            "phases: {learn: true}\nmode: shadow\nledger: {directory: x}\nmetricsSource: {scrape: {url: http://x}}",
            "phases.learn",
        ),
    ],
)
def test_a_configuration_that_can_not_learn_is_refused_by_its_field(text: str, field: str) -> None:
    with pytest.raises(InputError, match=field.replace(".", r"\.")):
        parse_settings(HEAD + text)


async def test_a_run_that_ends_while_others_are_written_is_written_next_time() -> None:
    scene = await taught(Scene())
    save = scene.store.save

    async def slowly(part: str, learner: str, files: Any) -> None:
        await save(part, learner, files)
        if not ended:
            ended.append(True)
            scene.see("a", "Succeeded")

    ended: list[bool] = []
    scene.runs += 1
    scene.see("a", "Running")
    for _ in range(0, RUN_SECONDS, EVERY_SECONDS):
        scene.clock.wall += EVERY_SECONDS
        await scene.learning.look(scene.usage_of)
    scene.store.save = slowly  # type: ignore[method-assign]
    await scene.learning.keep()
    await scene.learning.keep()
    kept = json.loads(scene.store.files[PHASES, "a"]["phases.json"])
    assert len(kept["sort"]["runs"]) == 7


async def test_an_operator_that_ends_while_the_store_is_asked_does_not_overwrite_it() -> None:
    before = await taught(Scene())
    await before.learning.keep()
    kept = dict(before.store.files)
    after, asked = Scene(before.store), asyncio.Event()
    after.store.fails = True
    after.job("a")
    await after.run("a")
    after.store.fails = False

    async def hangs(part: str, learner: str) -> dict[str, bytes] | None:
        del part, learner
        asked.set()
        await asyncio.Event().wait()
        return None

    after.store.load = hangs  # type: ignore[method-assign]
    under_way = asyncio.ensure_future(after.learning.look(after.usage_of))
    await asked.wait()
    await after.learning.keep()
    under_way.cancel()
    assert after.store.files == kept


async def test_runs_that_could_not_be_deleted_are_not_for_the_next_of_the_name() -> None:
    scene = await taught(Scene())
    await scene.learning.keep()
    scene.cache.apply("namespaces", "DELETED", scene.cache.namespaces["a"])
    scene.store.fails = True
    await scene.learning.look(scene.usage_of)
    scene.store.fails = False
    scene.job("a")  # of another tenant
    await scene.learning.look(scene.usage_of)
    assert scene.phases("a") == ()
    await scene.learning.keep()
    after = Scene(scene.store)
    after.job("a")
    await after.learning.look(after.usage_of)
    assert after.phases("a") == ()


async def test_many_jobs_are_gone_through_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 held the deciding loop for 0.08 s, each second."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0.0)
    scene = Scene()
    for namespace in "abc":
        scene.job(namespace)
        scene.see(namespace, "Running")
    seen: list[int] = []
    others = 0

    def usage_of(_: str) -> None:
        seen.append(others)

    under_way = asyncio.ensure_future(scene.learning.look(usage_of))
    while not under_way.done():
        others += 1
        await asyncio.sleep(0)
    assert len(set(seen)) == 3


async def test_a_tenant_with_many_pods_keeps_no_other_from_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phase_learning, "MAX_PODS", 6)
    scene = Scene()
    for namespace, count in (("crowd", 9), ("small", 1), ("other", 5)):
        scene.job(namespace)
        for _ in range(count):
            scene.runs += 1
            scene.see(namespace, "Running")
        await scene.learning.look(scene.usage_of)
    shares = {name: len(keys) for name, keys in scene.learning._by_learner.items()}
    assert shares == {"crowd": 3, "small": 1, "other": 2}
    assert len(scene.learning._followed) == 6
