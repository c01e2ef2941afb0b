"""When the predictors are trained anew: on unseen types, on many new samples, and never in the loop's way."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from pathlib import Path

import latency_scene
import numpy as np
import pytest
from engine_objects import pod, running_pod

from cotide_core.classes import WorkloadClass
from cotide_core.errors import ModelError
from cotide_core.events import (
    Event,
    ModelsChanged,
    Node,
    NodeUpserted,
    Pod,
    PodPhase,
    PodUpserted,
    ServiceSampled,
    Workload,
    WorkloadUpserted,
)
from cotide_core.forecasts import CompletionSamples, QosSamples
from cotide_core.recording.samples import MeasuredMix
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.config.settings import RetrainingSettings
from cotide_operator.models.learned_store import SAMPLES, DirectoryStore, LearnedStore
from cotide_operator.models.qos_learning import QosLearning
from cotide_operator.models.retraining import Retraining
from cotide_operator.models.shelf import COMPLETION
from cotide_operator.models.store import ModelStore
from cotide_operator.models.training_process import Files, train, train_apart
from cotide_operator.observability.metrics import Metrics
from cotide_predictors import serialisation
from cotide_predictors.learning import kept_state

SETTINGS = RetrainingSettings(
    enabled=True, minimum_samples=20, new_samples=40, unseen_type_samples=5, pooled_namespaces=("*",)
)


class Scene:
    """A node on which jobs run one after the other, and a trainer that the test watches."""

    def __init__(
        self, directory: Path, settings: RetrainingSettings = SETTINGS, kept: LearnedStore | None = None
    ) -> None:
        self.kept = kept
        self.published: list[Event] = []
        self.metrics = Metrics()
        self.store = ModelStore(directory, emit=self.published.append, metrics=self.metrics)
        self.trained: list[CompletionSamples | QosSamples] = []
        self.fault: Exception | None = None
        self.hold: threading.Event | None = None
        # A thread instead of a process: the same interface, and the test can look inside.
        self.settings = settings
        self.retraining = Retraining(
            settings,
            self.store,
            seed=0,
            metrics=self.metrics,
            learn=self.learn,
            kept=kept,
            train_with=self.train_in_thread,
        )
        self.state = ClusterState()
        self.now = 0.0
        self.jobs = 0
        self.feed(NodeUpserted(Node("n", (("cpu", 8000), ("memory", 2**35), ("pods", 110)))))

    def learn(self, learner: str) -> QosLearning:
        return QosLearning(
            self.settings,
            self.store,
            learner,
            threshold=0.1,
            slot_seconds=300.0,
            seed=0,
            metrics=self.metrics,
            kept=self.kept,
        )

    async def train_in_thread(self, samples: QosSamples | CompletionSamples, seed: int) -> Files:
        return await asyncio.to_thread(self.train, samples, seed)

    def train(self, samples: QosSamples | CompletionSamples, seed: int) -> Files:
        if self.hold is not None:
            self.hold.wait(10)
        if self.fault is not None:
            raise self.fault
        self.trained.append(samples)
        return train(samples, seed)

    def feed(self, *events: Event) -> None:
        for event in events:
            self.state.apply(event)
        self.retraining.feed(self.state, events, self.now)

    def run_jobs(self, count: int, job_type: str, namespace: str = "ns") -> None:
        for _ in range(count):
            self.jobs += 1
            seconds = 10.0 + self.jobs % 4
            job = {
                "key": f"{namespace}/j{self.jobs}",
                "uid": str(self.jobs),
                "workload_class": WorkloadClass.BATCH,
                "type": job_type,
            }
            body = {**job, "requests": (("cpu", 1000),), "created_seconds": self.now, "node": "n", "input_bytes": 10**9}
            started = self.now
            self.feed(PodUpserted(Pod(**body, phase=PodPhase.RUNNING, started_seconds=started)))
            self.now += seconds
            ended = {"started_seconds": started, "finished_seconds": self.now}
            self.feed(PodUpserted(Pod(**body, phase=PodPhase.SUCCEEDED, **ended)))

    def count(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "cotide_model_trainings_total", {"kind": COMPLETION, "result": result}
        )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_the_first_model_comes_with_enough_samples_and_is_in_use_at_once(scene: Scene) -> None:
    scene.run_jobs(19, "sort")
    await scene.retraining.look()
    assert scene.trained == []
    scene.run_jobs(1, "sort")
    await scene.retraining.look()
    assert len(scene.trained) == 1
    (event,) = scene.published
    assert isinstance(event, ModelsChanged)
    assert scene.store.completion(event.completion).knows("sort")


async def test_an_unseen_type_retrains_and_is_known_afterwards(scene: Scene) -> None:
    scene.run_jobs(20, "sort")
    await scene.retraining.look()
    scene.run_jobs(4, "grep")
    await scene.retraining.look()
    assert len(scene.trained) == 1  # four runs of a type are too few
    scene.run_jobs(1, "grep")
    await scene.retraining.look()
    assert len(scene.trained) == 2
    event = scene.published[-1]
    assert isinstance(event, ModelsChanged)
    assert scene.store.completion(event.completion).knows("grep")


async def test_known_types_retrain_only_with_many_new_samples(scene: Scene) -> None:
    scene.run_jobs(20, "sort")
    await scene.retraining.look()
    scene.run_jobs(39, "sort")
    await scene.retraining.look()
    assert len(scene.trained) == 1
    scene.run_jobs(1, "sort")
    await scene.retraining.look()
    assert len(scene.trained) == 2


async def test_a_failed_training_is_told_and_not_repeated_on_the_same_samples(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.fault = ModelError("one class only")
    scene.run_jobs(20, "sort")
    for _ in range(3):
        await scene.retraining.look()
    assert scene.count("failed") == 1
    assert scene.published == []
    assert any("was not renewed: one class only" in record.getMessage() for record in caplog.records)


async def test_the_loop_goes_on_while_a_training_runs(scene: Scene) -> None:
    scene.hold = threading.Event()
    scene.run_jobs(20, "sort")
    polling = asyncio.create_task(scene.retraining.look())
    for _ in range(50):
        await asyncio.sleep(0)  # the event loop turns: nothing waits for the trainer
        scene.run_jobs(1, "sort")
    assert not polling.done()
    scene.hold.set()
    await asyncio.wait_for(polling, 30)
    assert scene.count("done") == 1


def finished_jobs(count: int) -> CompletionSamples:
    sizes = np.linspace(1e9, 8e9, count)
    idle = np.zeros(count)
    return CompletionSamples(("sort",) * count, sizes, idle, idle + 0.1, sizes / 1e8)


async def test_a_training_in_a_process_of_its_own_gives_the_same_model_as_one_here() -> None:
    samples = finished_jobs(40)
    assert serialisation.model_id(await train_apart(samples, 3)) == serialisation.model_id(train(samples, 3))


async def test_samples_that_do_not_suffice_are_a_sentence_and_no_traceback() -> None:
    with pytest.raises(ModelError) as caught:
        await train_apart(finished_jobs(0), 0)
    assert "\n" not in str(caught.value)


async def test_a_training_that_nobody_waits_for_any_more_is_ended() -> None:
    training = asyncio.create_task(train_apart(finished_jobs(40), 0))
    async with asyncio.timeout(20):
        while not any(child.name == "training" for child in multiprocessing.active_children()):
            await asyncio.sleep(0.01)
    training.cancel()
    await asyncio.gather(training, return_exceptions=True)
    assert not any(child.name == "training" for child in multiprocessing.active_children())


async def test_where_no_namespace_learns_for_itself_one_that_is_not_pooled_teaches_nobody(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SETTINGS.model_copy(update={"pooled_namespaces": ("trusted",), "own_models_most": 0}))
    scene.run_jobs(100, "sort")
    await scene.retraining.look()
    assert scene.trained == []
    assert scene.retraining.collector.completion().types == ()


async def test_a_namespace_that_is_not_pooled_teaches_the_forecasts_of_its_own_and_of_nobody_else(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, SETTINGS.model_copy(update={"pooled_namespaces": ("trusted",)}))
    scene.run_jobs(20, "sort", "team")
    scene.run_jobs(20, "grep", "trusted")
    await scene.retraining.look()
    event = scene.published[-1]
    assert isinstance(event, ModelsChanged)
    (own,) = event.own
    assert own.namespace == "team"
    ours, pooled = scene.store.completion(own.completion), scene.store.completion(event.completion)
    assert (ours.knows("sort"), ours.knows("grep")) == (True, False)
    assert (pooled.knows("sort"), pooled.knows("grep")) == (False, True)


def test_whoever_learns_of_a_service_is_told_when_pods_are_kept_away_from_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: list[tuple[str, list[str], float]] = []
    monkeypatch.setattr(
        QosLearning, "refused", lambda self, services, now: refusals.append((self._learner, sorted(services), now))
    )
    world = latency_scene.Scene("qpsm")
    world.handle(1.0, ServiceSampled("d/web", 500.0, latency_scene.HELD))
    waits = world.scheduler.handle([PodUpserted(pod("loud", type="loud", requested_seconds=60.0))], 2.0)  # p = .4
    scene.retraining.decided(waits, 2.0)
    assert refusals == [], "nobody learns of it yet"
    web = running_pod("web", "n", cls=WorkloadClass.ONLINE, workload="d/web", ours=False)
    scene.feed(WorkloadUpserted(Workload("d/web", 10.0)), PodUpserted(web), ServiceSampled(web.key, 500.0, 5.0))
    scene.retraining.decided(waits, 2.0)
    assert refusals == [("", ["d/web"], 2.0)]


async def test_what_a_namespace_taught_goes_with_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, SETTINGS.model_copy(update={"pooled_namespaces": ()}))
    scene.run_jobs(20, "sort", "team")
    await scene.retraining.look()
    assert scene.store.own_namespaces() == ["team"]
    scene.retraining._is_there = lambda name: name != "team"
    await scene.retraining.look()
    assert scene.published[-1] == ModelsChanged()
    assert scene.retraining.collector.learners() == []
    assert not (tmp_path / "namespaces" / "team").exists(), "another tenant may get the name"


class Undeletable(DirectoryStore):
    """A store that can't be written for a while."""

    stuck = True

    async def delete(self, learner: str) -> None:
        if self.stuck:
            raise ModelError("it can't be deleted")
        await super().delete(learner)


async def test_what_could_not_be_deleted_of_a_namespace_is_not_for_the_next_of_its_name(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"pooled_namespaces": ()})
    store = Undeletable(tmp_path / ".learned")
    mix = MeasuredMix("team/db", 100.0, 0.0, 10.0, 0.5, (), 5.0)
    await store.save(SAMPLES, "team", kept_state.to_files([mix], {}, ""))
    scene = Scene(tmp_path, settings, kept=store)
    await scene.retraining.restore()
    assert len(scene.retraining._learning("team").reservoir) == 1
    scene.retraining._is_there = lambda name: name != "team"
    await scene.retraining.look()
    scene.retraining._is_there = lambda _: True
    scene.run_jobs(1, "sort", "team")
    await scene.retraining.look()
    assert len(scene.retraining._learning("team").reservoir) == 0, "of the tenant before"
    store.stuck = False
    await scene.retraining.keep()
    assert await store.learners() == []


async def test_the_store_of_a_namespace_is_deleted_once_it_can_be(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"pooled_namespaces": ()})
    store = Undeletable(tmp_path / ".learned")
    mix = MeasuredMix("team/db", 100.0, 0.0, 10.0, 0.5, (), 5.0)
    await store.save(SAMPLES, "team", kept_state.to_files([mix], {}, ""))
    scene = Scene(tmp_path, settings, kept=store)
    await scene.retraining.restore()
    scene.retraining._is_there = lambda _: False
    await scene.retraining.look()
    assert await store.learners() == ["team"]
    store.stuck = False
    await scene.retraining.look()
    assert await store.learners() == []


async def test_of_many_namespaces_only_so_many_are_held_in_memory_as_may_learn(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"pooled_namespaces": (), "own_models_most": 2})
    store = DirectoryStore(tmp_path / ".learned")
    scene = Scene(tmp_path, settings, kept=store)
    mix = MeasuredMix("team/db", 100.0, 0.0, 10.0, 0.5, (), 5.0)
    for number in range(5):
        await store.save(SAMPLES, f"kept-{number}", kept_state.to_files([mix], {}, ""))
    await scene.retraining.restore()
    assert len(scene.retraining._learnings) == 2
    for number in range(5):
        name = f"team-{number}"
        scene.retraining._learning(name).feed([mix], 0.0)
        scene.run_jobs(1, "sort", name)
    await scene.retraining.look()
    assert sorted(scene.retraining._learnings) == ["team-3", "team-4"], "those that were taught last"
    scene.retraining._is_there = lambda name: name.startswith("team")
    await scene.retraining.look()
    assert await store.learners() == [], "whoever is not held in memory goes with its namespace, too"


async def test_what_a_namespace_taught_is_not_for_another_that_has_its_name_before_anybody_looked(
    tmp_path: Path,
) -> None:
    """Deleted and made anew within half a minute, by another tenant maybe."""
    scene, uids = Scene(tmp_path, SETTINGS.model_copy(update={"pooled_namespaces": ()})), {"team": ""}
    scene.retraining._uid_of = lambda name: uids[name]
    scene.run_jobs(20, "sort", "team")
    for uid in ("", "first", "", "first"):  # not listed yet, or not again
        uids["team"] = uid
        await scene.retraining.look()
    assert scene.store.own_namespaces() == ["team"]
    uids["team"] = "second"
    await scene.retraining.look()
    assert scene.store.own_namespaces() == []
    assert scene.retraining.collector.learners() == []
    scene.run_jobs(20, "grep", "team")
    await scene.retraining.look()
    await scene.retraining.look()
    event = scene.published[-1]
    assert isinstance(event, ModelsChanged)
    (own,) = event.own
    model = scene.store.completion(own.completion)
    assert (model.knows("grep"), model.knows("sort")) == (True, False)
