"""What was learned outlives the pod: in a directory, or in ConfigMaps that hold no more than they may."""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from cotide_core.errors import ClusterError, ModelError
from cotide_core.recording.samples import POOL
from cotide_kube.answers import ApiError
from cotide_operator.models.learned_store import (
    MODEL,
    SAMPLES,
    ConfigMapStore,
    DirectoryStore,
    LearnedStore,
    StoreSilent,
)

FILES = {"manifest.json": b"{}", "learned.npz": bytes(range(256)) * 40}


class Api:
    """ConfigMaps of one namespace, as a server keeps them."""

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}

    def _known(self, path: str) -> str:
        name = path.rpartition("/")[2]
        if name not in self.there:
            raise ApiError(404, "NotFound", "not found")
        return name

    async def get(self, path: str) -> dict[str, Any]:
        return self.there[self._known(path)]

    async def list(self, path: str, params: dict[str, str]) -> list[dict[str, Any]]:
        del path, params
        return list(self.there.values())

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.there[self._known(path)] = body
        return body

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        del path
        self.there[body["metadata"]["name"]] = body
        return body

    async def delete(self, path: str) -> dict[str, Any]:
        return self.there.pop(self._known(path))


@pytest.fixture(params=["directory", "configMaps"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LearnedStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "learned")
    return ConfigMapStore(Api(), "cotide-system")  # type: ignore[arg-type]  # as much of a client as it uses


async def test_what_is_kept_is_found_again_by_learner(store: LearnedStore) -> None:
    assert await store.learners() == []
    assert await store.load(SAMPLES, POOL) is None
    await store.save(SAMPLES, POOL, {"old": b"x"})
    await store.save(SAMPLES, POOL, FILES)
    await store.save(SAMPLES, "shop", {"manifest.json": b"[]"})
    await store.save(MODEL, "shop", FILES)
    assert await store.learners() == [POOL, "shop"]
    assert await store.load(SAMPLES, POOL) == FILES
    assert await store.load(MODEL, "shop") == FILES
    await store.delete("shop")
    assert await store.learners() == [POOL]


async def test_a_config_map_takes_no_more_than_its_server_would() -> None:
    store = ConfigMapStore(Api(), "cotide-system")  # type: ignore[arg-type]  # as much of a client as it uses
    with pytest.raises(ModelError, match="mount a volume"):
        await store.save(MODEL, POOL, {"big": os.urandom(1_000_000)})


@pytest.mark.parametrize("text", ["no base64!", base64.b64encode(b"no zlib").decode(), 7])
async def test_what_somebody_else_wrote_is_refused_in_a_sentence(text: object) -> None:
    api = Api()
    store = ConfigMapStore(api, "cotide-system")  # type: ignore[arg-type]  # as much of a client as it uses
    await store.save(SAMPLES, POOL, FILES)
    api.there["cotide-learned-samples"]["binaryData"]["learned.npz"] = text
    with pytest.raises(ModelError, match="does not hold valid data"):
        await store.load(SAMPLES, POOL)


async def test_a_write_that_was_cut_short_leaves_what_was_there_before(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.save(SAMPLES, POOL, FILES)
    (tmp_path / SAMPLES).rename(tmp_path / f".{SAMPLES}.before")  # killed between two renames
    assert await store.load(SAMPLES, POOL) == FILES


async def test_a_learner_whose_write_was_cut_short_is_named_and_deleted_like_any_other(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    await store.save(SAMPLES, "shop", FILES)
    (tmp_path / f"{SAMPLES}.shop").rename(tmp_path / f".{SAMPLES}.shop.before")  # killed between two renames
    assert await store.learners() == ["shop"]
    await store.delete("shop")
    assert await store.load(SAMPLES, "shop") is None  # another tenant may get the name
    assert await store.learners() == []


async def test_what_can_not_be_deleted_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path)
    await store.save(SAMPLES, "shop", FILES)

    def read_only(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "unlink", read_only)
    with pytest.raises(ModelError, match=r"samples\.shop can't be deleted: Read-only file system"):
        await store.delete("shop")


async def test_a_server_that_does_not_answer_is_told_from_what_can_not_be_used(tmp_path: Path) -> None:
    class Away(Api):
        async def get(self, path: str) -> dict[str, Any]:
            raise ClusterError(f"{path} does not answer")

    with pytest.raises(StoreSilent, match="can't be read"):
        await ConfigMapStore(Away(), "cotide-system").load(SAMPLES, POOL)  # type: ignore[arg-type]  # as above
    (tmp_path / SAMPLES).touch()
    with pytest.raises(StoreSilent, match="can't be read"):
        await DirectoryStore(tmp_path).load(SAMPLES, POOL)


async def test_a_config_map_that_was_cut_is_refused() -> None:
    api = Api()
    store = ConfigMapStore(api, "cotide-system")  # type: ignore[arg-type]  # as much of a client as it uses
    await store.save(SAMPLES, POOL, FILES)
    data = api.there["cotide-learned-samples"]["binaryData"]
    data["learned.npz"] = base64.b64encode(base64.b64decode(data["learned.npz"])[:-9]).decode()
    with pytest.raises(ModelError, match="ends too early"):
        await store.load(SAMPLES, POOL)


async def test_a_disk_that_is_full_for_long_costs_nothing_of_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the second try the first one's failure must not have moved what was there to where it is deleted."""
    store, written = DirectoryStore(tmp_path), Path.write_bytes
    await store.save(SAMPLES, POOL, FILES)

    def full(path: Path, data: bytes) -> int:
        written(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    for _ in range(3):
        with pytest.raises(ModelError, match="No space left on device"):
            await store.save(SAMPLES, POOL, {**FILES, "more": b"news"})
        assert await DirectoryStore(tmp_path).load(SAMPLES, POOL) == FILES
    monkeypatch.setattr(Path, "write_bytes", written)
    await store.save(SAMPLES, POOL, {**FILES, "more": b"news"})
    assert await store.load(SAMPLES, POOL) == {**FILES, "more": b"news"}
    assert [path.name for path in tmp_path.iterdir()] == [SAMPLES]


@pytest.mark.parametrize("before", ["a", "b"])
async def test_what_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """The leader before may write its last while the next one reads: neither nothing nor half of each is there."""
    earlier, store, read = DirectoryStore(tmp_path), DirectoryStore(tmp_path), Path.read_bytes
    await earlier.save(SAMPLES, POOL, {"a": b"old", "b": b"old"})
    replaced: list[str] = []

    def replacing(path: Path) -> bytes:
        if path.name == before and not replaced:
            replaced.append(before)
            earlier._save(SAMPLES, {"a": b"new", "b": b"new"})
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", replacing)
    assert await store.load(SAMPLES, POOL) == {"a": b"new", "b": b"new"}


async def test_of_two_writes_at_once_none_takes_the_other_s_folder_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, written = DirectoryStore(tmp_path), Path.write_bytes
    begun, rest = threading.Event(), threading.Event()

    def slowly(path: Path, data: bytes) -> int:
        if data == b"first":
            begun.set()
            assert rest.wait(20.0)
        return written(path, data)

    monkeypatch.setattr(Path, "write_bytes", slowly)
    first = asyncio.ensure_future(store.save(SAMPLES, POOL, {"a": b"first"}))
    assert await asyncio.to_thread(begun.wait, 20.0)
    second = asyncio.ensure_future(store.save(SAMPLES, POOL, {"a": b"second"}))
    await asyncio.wait({second}, timeout=0.2)  # it could have ended by now, were it not to wait
    rest.set()
    await asyncio.gather(first, second)
    assert await store.load(SAMPLES, POOL) == {"a": b"second"}


async def test_what_replaces_another_is_on_the_disk_before_the_other_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that loses its power must not come back with names and nothing in them."""
    store, done = DirectoryStore(tmp_path), list[str]()
    await store.save(SAMPLES, POOL, FILES)
    fsync, rename = os.fsync, Path.rename

    def syncing(opened: int) -> None:
        done.append(Path(f"/proc/self/fd/{opened}").readlink().name)
        fsync(opened)

    def renaming(path: Path, target: Path) -> Path:
        done.append(f"{path.name} to {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "rename", renaming)
    await store.save(SAMPLES, POOL, FILES)
    first = done.index(f"{SAMPLES} to .{SAMPLES}.before")
    assert set(FILES) <= set(done[:first])
