"""Model files come in checked, whole, and without a restart; a broken one changes nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from cotide_core.errors import ModelError
from cotide_core.events import Event, ModelsChanged
from cotide_core.forecasts import CompletionSamples
from cotide_operator.models import shelf
from cotide_operator.models.shelf import COMPLETION, Loaded, Shelf
from cotide_operator.models.store import ModelStore
from cotide_operator.observability.ledger_file import write_files
from cotide_operator.observability.metrics import Metrics
from cotide_predictors import serialisation
from cotide_predictors.completion.completion_model import train_completion


def trained(seed: int) -> dict[str, bytes]:
    """A small completion model: run time grows with size, two types."""
    count = 40
    sizes = np.linspace(1e9, 8e9, count)
    samples = CompletionSamples(
        types=tuple(("sort", "grep")[i % 2] for i in range(count)),
        input_bytes=sizes,
        requests_per_second=np.zeros(count),
        cpu_pressure=np.full(count, 0.1),
        seconds=sizes / 1e8 + seed,
    )
    return serialisation.to_files(train_completion(samples, random_state=seed))


@pytest.fixture(scope="module")
def models() -> list[dict[str, bytes]]:
    return [trained(0), trained(1)]


class Scene:
    def __init__(self, directory: Path | None) -> None:
        self.published: list[Event] = []
        self.kept: list[str] = []
        self.metrics = Metrics()
        self.store = ModelStore(directory, emit=self.published.append, metrics=self.metrics, keep=self.keep)

    def keep(self, model_id: str, files: Mapping[str, bytes]) -> None:
        self.kept.append(model_id)

    def reloads(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("cotide_model_reload_total", {"result": result})


def put(directory: Path, name: str, files: Mapping[str, bytes], age_seconds: float = 0.0) -> Path:
    target = directory / name
    write_files(target, files)
    for file in target.iterdir():
        os.utime(file, (2e9 - age_seconds, 2e9 - age_seconds))
    return target


async def test_a_model_that_the_disk_did_not_give_is_asked_for_again_and_that_is_said_once(
    tmp_path: Path, models: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, target = Scene(tmp_path), put(tmp_path, "one", models[0])

    def fails(_: Path) -> Loaded:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as failing:
        failing.setattr(shelf, "_load", fails)
        for _ in range(3):
            await scene.store.look()
        assert scene.reloads("refused") == 1
    await scene.store.look()
    assert scene.reloads("taken") == 1
    (target / "manifest.json").write_bytes(b"{")
    await scene.store.look()
    assert scene.reloads("refused") == 2, "what is wrong with the files themselves is said, too"


async def test_without_files_the_heuristic_is_in_force(tmp_path: Path) -> None:
    for directory in (None, tmp_path):
        scene = Scene(directory)
        await scene.store.look()
        assert scene.published == []
        assert (scene.store.qos("").model_id, scene.store.completion("").model_id) == ("heuristic", "heuristic")


async def test_a_model_is_in_the_catalogue_before_the_engine_hears_of_it(
    tmp_path: Path, models: list[dict[str, bytes]]
) -> None:
    put(tmp_path, "first", models[0])
    scene = Scene(tmp_path)
    await scene.store.look()
    name = serialisation.model_id(models[0])
    assert scene.published == [ModelsChanged(qos="", completion=name)]
    assert scene.store.completion(name).model_id == name
    assert scene.kept == [name]
    await scene.store.look()
    assert len(scene.published) == 1  # nothing changed, nothing is told


async def test_a_newer_model_replaces_the_older_which_stays_at_hand(
    tmp_path: Path, models: list[dict[str, bytes]]
) -> None:
    put(tmp_path, "first", models[0], age_seconds=100)
    scene = Scene(tmp_path)
    await scene.store.look()
    put(tmp_path, "second", models[1])
    await scene.store.look()
    first, second = (serialisation.model_id(files) for files in models)
    assert scene.published[-1] == ModelsChanged(completion=second)
    assert scene.store.completion(first).model_id == first


@pytest.mark.parametrize("fault", ["payload", "manifest", "missing"])
async def test_a_broken_model_changes_nothing_but_a_line_and_a_metric(
    tmp_path: Path, models: list[dict[str, bytes]], fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "first", models[0], age_seconds=100)
    scene = Scene(tmp_path)
    await scene.store.look()
    broken = dict(models[1])
    payload = next(name for name in broken if name != "manifest.json")
    if fault == "payload":
        broken[payload] = bytes([broken[payload][0] ^ 1]) + broken[payload][1:]
    elif fault == "manifest":
        broken["manifest.json"] = b"{"
    else:
        del broken[payload]
    put(tmp_path, "second", broken)
    for _ in range(3):
        await scene.store.look()
    assert len(scene.published) == 1
    assert scene.reloads("refused") == 1  # said once, not at every look
    (line,) = [record.getMessage() for record in caplog.records if "not loaded" in record.getMessage()]
    assert "second" in line
    assert scene.store.current["completion"].model_id == serialisation.model_id(models[0])
    put(tmp_path, "third", models[0], age_seconds=200)  # something else changes: the old fault is no news
    await scene.store.look()
    assert scene.reloads("refused") == 1


async def test_half_written_and_hidden_directories_are_not_looked_at(
    tmp_path: Path, models: list[dict[str, bytes]]
) -> None:
    put(tmp_path, ".first.incoming", models[0])
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    scene = Scene(tmp_path)
    await scene.store.look()
    assert scene.published == []
    assert scene.reloads("refused") is None


async def test_the_directory_may_be_the_model_itself(tmp_path: Path, models: list[dict[str, bytes]]) -> None:
    directory = put(tmp_path, "only", models[0])
    scene = Scene(directory)
    await scene.store.look()
    assert len(scene.published) == 1


async def test_a_directory_that_does_not_exist_yet_is_no_fault_and_is_looked_for_again(
    tmp_path: Path, models: list[dict[str, bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="cotide_operator.models")
    scene = Scene(tmp_path / "later")
    for _ in range(3):
        await scene.store.look()
    assert ["no directory" in record.getMessage() for record in caplog.records] == [True]
    put(tmp_path / "later", "first", models[0])
    await scene.store.look()
    assert len(scene.published) == 1


async def test_what_was_saved_is_taken_up_by_the_next_look(tmp_path: Path, models: list[dict[str, bytes]]) -> None:
    scene = Scene(tmp_path)
    scene.store.save(models[0])
    scene.store.save(models[0])  # the same bytes again are the same model
    await scene.store.look()
    assert scene.published == [ModelsChanged(completion=serialisation.model_id(models[0]))]
    with pytest.raises(ModelError, match="no models directory"):
        Scene(None).store.save(models[0])


@pytest.mark.parametrize("kept", [2, 3])
async def test_old_models_that_we_saved_are_deleted_and_nothing_else(tmp_path: Path, kept: int) -> None:
    foreign = put(tmp_path, "by-hand", trained(99), age_seconds=10**6)
    linked = tmp_path / ("f" * 64)
    linked.symlink_to(foreign, target_is_directory=True)
    store = ModelStore(tmp_path, emit=lambda event: None, metrics=Metrics(), kept_models=kept)
    ids = []
    for seed in range(5):
        files = trained(seed)
        ids.append(serialisation.model_id(files))
        put(tmp_path, ids[-1], files, age_seconds=100 - seed)
        await store.look()
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {"by-hand", linked.name, *ids[-kept:]}
    assert store.current["completion"].model_id == ids[-1]


async def test_the_model_in_use_and_the_one_before_stay_however_old(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, emit=lambda event: None, metrics=Metrics(), kept_models=2)
    ids = [serialisation.model_id(trained(seed)) for seed in range(4)]
    for seed in (0, 1):
        put(tmp_path, ids[seed], trained(seed), age_seconds=1000 - seed)
        await store.look()
    for seed in (2, 3):  # newer, and unusable
        broken = dict(trained(seed))
        del broken[next(name for name in broken if name != "manifest.json")]
        put(tmp_path, ids[seed], broken, age_seconds=10 - seed)
    os.utime(tmp_path / ids[1] / "manifest.json", (2e9 - 999, 2e9 - 999))
    await store.look()
    assert {ids[0], ids[1]} <= {path.name for path in tmp_path.iterdir()}


async def test_without_a_limit_no_model_is_deleted(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, emit=lambda event: None, metrics=Metrics())
    for seed in range(4):
        files = trained(seed)
        put(tmp_path, serialisation.model_id(files), files, age_seconds=100 - seed)
        await store.look()
    assert len(list(tmp_path.iterdir())) == 4


async def test_a_look_while_another_reads_ends_with_what_is_there_in_use(
    tmp_path: Path, models: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, reading, rest = Scene(tmp_path), threading.Event(), threading.Event()
    load = shelf._load

    def slowly(folder: Path) -> Loaded:
        reading.set()
        assert rest.wait(20.0)
        return load(folder)

    monkeypatch.setattr(shelf, "_load", slowly)
    scene.store.save(models[0])
    watching = asyncio.ensure_future(scene.store.look())
    assert await asyncio.to_thread(reading.wait, 20.0)
    # Whoever saved a model looks, and goes by what is in use then.
    own = asyncio.ensure_future(scene.store.look())
    done, _ = await asyncio.wait({own}, timeout=0.2)
    rest.set()
    await asyncio.gather(watching, own)
    assert not done
    assert scene.store.current[COMPLETION].model_id == serialisation.model_id(models[0])


async def test_a_manifest_that_is_nested_too_deep_is_refused_like_any_other(
    tmp_path: Path, models: list[dict[str, bytes]]
) -> None:
    scene = Scene(tmp_path)
    put(tmp_path, "first", models[0], age_seconds=100)
    put(tmp_path, "second", {"manifest.json": b"[" * 100_000})
    await scene.store.look()
    assert (scene.reloads("taken"), scene.reloads("refused")) == (1, 1)


async def test_folders_of_namespaces_are_found_aside_and_taken_up_between_two_steps_of_the_loop(tmp_path: Path) -> None:
    """Whoever goes through them in the loop meanwhile must not find them changed half-way."""
    scene = Scene(tmp_path)
    (tmp_path / "namespaces" / "team-a").mkdir(parents=True)
    loop = threading.get_ident()

    class Watched(dict[str, Shelf]):
        def setdefault(self, name: str, shelf: Shelf) -> Shelf:  # type: ignore[override]
            assert threading.get_ident() == loop
            return super().setdefault(name, shelf)

    scene.store._shelves = Watched(scene.store._shelves)
    await scene.store.look()
    assert scene.store.own_namespaces() == ["team-a"]
