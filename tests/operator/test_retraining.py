"""When the predictors are trained anew: on unseen types, on many new samples, and never in the loop's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cotide_core.classes import WorkloadClass
from cotide_core.events import Event, ModelsChanged, Node, NodeUpserted, Pod, PodPhase, PodUpserted
from cotide_core.forecasts import CompletionSamples, QosSamples
from cotide_core.state import ClusterState
from cotide_operator.model_store import COMPLETION, Files, ModelStore
from cotide_operator.retraining import Retraining, train
from cotide_operator.settings import RetrainingSettings
from cotide_operator.telemetry import Telemetry

SETTINGS = RetrainingSettings(enabled=True, minimum_samples=20, new_samples=40, unseen_type_samples=5)


class Scene:
    """A node on which jobs run one after the other, and a trainer that the test watches."""

    def __init__(self, directory: Path) -> None:
        self.told: list[Event] = []
        self.telemetry = Telemetry()
        self.store = ModelStore(directory, tell=self.told.append, telemetry=self.telemetry)
        self.trained: list[CompletionSamples | QosSamples] = []
        self.fault: Exception | None = None
        self.hold: threading.Event | None = None
        # A thread instead of the worker process: the same interface, and the test can look inside.
        self.executor = ThreadPoolExecutor(1)
        self.retraining = Retraining(
            SETTINGS, self.store, seed=0, telemetry=self.telemetry, executor=self.executor, train_with=self.train
        )
        self.state = ClusterState()
        self.now = 0.0
        self.jobs = 0
        self.feed(NodeUpserted(Node("n", (("cpu", 8000), ("memory", 2**35), ("pods", 110)))))

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

    def run_jobs(self, count: int, job_type: str) -> None:
        for _ in range(count):
            self.jobs += 1
            seconds = 10.0 + self.jobs % 4
            job = {
                "key": f"ns/j{self.jobs}",
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
        return self.telemetry.registry.get_sample_value(
            "cotide_model_trainings_total", {"kind": COMPLETION, "result": result}
        )


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.executor.shutdown()


async def test_the_first_model_comes_with_enough_samples_and_is_in_use_at_once(scene: Scene) -> None:
    scene.run_jobs(19, "sort")
    await scene.retraining.look()
    assert scene.trained == []
    scene.run_jobs(1, "sort")
    await scene.retraining.look()
    assert len(scene.trained) == 1
    (event,) = scene.told
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
    event = scene.told[-1]
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
    scene.fault = ValueError("one class only")
    scene.run_jobs(20, "sort")
    for _ in range(3):
        await scene.retraining.look()
    assert scene.count("failed") == 1
    assert scene.told == []
    assert any("was not renewed: one class only" in record.getMessage() for record in caplog.records)


async def test_the_loop_goes_on_while_a_training_runs(scene: Scene) -> None:
    scene.hold = threading.Event()
    scene.run_jobs(20, "sort")
    looking = asyncio.create_task(scene.retraining.look())
    for _ in range(50):
        await asyncio.sleep(0)  # the event loop turns: nothing waits for the trainer
        scene.run_jobs(1, "sort")
    assert not looking.done()
    scene.hold.set()
    await asyncio.wait_for(looking, 30)
    assert scene.count("done") == 1
