"""Who owns whom, in the emulator and on a real server with its garbage collector: what is left in the end is the same.

The real collector works in its own time, so that after each step both are given time to agree; the emulator, which
collects at once, must not change any more. More sequences: ``COTIDE_CONFORMANCE=2000``.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from api_calls import Caller
from binaries import Binaries
from call_tables import owner
from control_plane import control_plane
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from cotide_sim.apiserver.testing import server_in_thread

SEQUENCES: Final = int(os.environ.get("COTIDE_CONFORMANCE", "150")) // 5
AGREE_SECONDS: Final = 60.0
"""Chosen: collection takes some milliseconds; a machine that does other things may take its time."""
NOBODY: Final = "22222222-2222-2222-2222-222222222222"


@dataclass(frozen=True)
class Step:
    """One request about ConfigMaps a to d; ``owners`` are letters, ``?`` is nobody who is there."""

    verb: str
    name: str
    owners: str = ""
    blocks: bool = False
    finalized: bool = False
    how: str = ""


NAMES = st.sampled_from("abcd")
OWNERS = st.sampled_from(["", "a", "b", "c", "ab", "bc", "?", "a?"])
STEPS = st.one_of(
    st.builds(Step, st.just("create"), NAMES, OWNERS, st.booleans(), st.sampled_from([False, False, True])),
    st.builds(Step, st.just("own"), NAMES, OWNERS, st.booleans()),
    st.builds(
        Step, st.just("delete"), NAMES, how=st.sampled_from(["", "Background", "Foreground", "Foreground", "Orphan"])
    ),
    st.builds(Step, st.just("free"), NAMES),
)
BEGIN = st.sampled_from(
    [
        [Step("create", "a"), Step("create", "b", "a", blocks=True), Step("create", "c", "b")],
        [Step("create", "a"), Step("create", "b"), Step("create", "c", "ab", blocks=True)],
        [Step("create", "a"), Step("create", "b", "a", blocks=True, finalized=True)],
    ]
)


class Owned:
    """One server's side of it."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._uids: dict[str, str] = {}
        self._path = ""

    def begin(self, space: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
        assert self.caller.send("POST", "/api/v1/namespaces", body)[0] == 201
        self._path = f"/api/v1/namespaces/{space}/configmaps"
        self._uids.clear()

    def take(self, step: Step) -> int:
        """Carry a step out and return the code."""
        merge = "application/merge-patch+json"
        match step.verb:
            case "create":
                metadata: dict[str, Any] = {"name": step.name, "ownerReferences": self._owners(step)}
                if step.finalized:
                    metadata["finalizers"] = ["cotide.dev/test"]
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                code, made = self.caller.send("POST", self._path, body)
                if code == 201:
                    self._uids[step.name] = made["metadata"]["uid"]
                return code
            case "own":
                patch = {"metadata": {"ownerReferences": self._owners(step) or None}}
                return self.caller.send("PATCH", f"{self._path}/{step.name}", patch, merge)[0]
            case "delete":
                options = {"apiVersion": "v1", "kind": "DeleteOptions"}
                options |= {"propagationPolicy": step.how} if step.how else {}
                return self.caller.send("DELETE", f"{self._path}/{step.name}", options)[0]
            case "free":
                patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["cotide.dev/test"]}}
                kind = "application/strategic-merge-patch+json"
                return self.caller.send("PATCH", f"{self._path}/{step.name}", patch, kind)[0]
        raise AssertionError(step.verb)

    def left(self) -> dict[str, Any]:
        """What is there: by name the owners' letters, the finalizers, and whether it is going."""
        letters = {uid: name for name, uid in self._uids.items()}
        found = {}
        for item in self.caller.send("GET", self._path)[1]["items"]:
            metadata = item["metadata"]
            if metadata["name"] == "kube-root-ca.crt":
                continue
            owners = [letters.get(one["uid"], "?") for one in metadata.get("ownerReferences", ())]
            going = "deletionTimestamp" in metadata
            found[metadata["name"]] = (sorted(owners), sorted(metadata.get("finalizers", ())), going)
        return found

    def _owners(self, step: Step) -> list[dict[str, Any]]:
        return [
            owner(letter if letter != "?" else "x", self._uids.get(letter, NOBODY), blockOwnerDeletion=step.blocks)
            for letter in step.owners
        ]


@pytest.fixture(scope="module")
def sides(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Owned, Owned]]:
    with control_plane(binaries, tmp_path_factory.mktemp("garbage")) as plane, server_in_thread() as emulator:
        plane.start_controller_manager({"controllers": "garbage-collector-controller", "concurrent-gc-syncs": "20"})
        yield Owned(Caller(plane.url, "", plane.admin.ssl_context())), Owned(Caller(emulator.url, ""))


COUNT = itertools.count()


@settings(
    max_examples=SEQUENCES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # a step that differs takes a deadline: nothing to do again and again
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(begin=BEGIN, steps=st.lists(STEPS, min_size=2, max_size=8))
@example(begin=[Step("create", "a"), Step("create", "b", "a")], steps=[Step("delete", "a", how="Orphan")])
@example(begin=[Step("create", "a"), Step("create", "b", "a?")], steps=[Step("delete", "a")])
def test_the_same_is_left(sides: tuple[Owned, Owned], begin: list[Step], steps: list[Step]) -> None:
    real, emulated = sides
    space = f"g{next(COUNT)}"
    for side in sides:
        side.begin(space)
    for done, step in enumerate([*begin, *steps]):
        codes = real.take(step), emulated.take(step)
        assert codes[0] == codes[1], f"{step} after {[*begin, *steps][:done]}"
        wanted = emulated.left()
        deadline = time.monotonic() + AGREE_SECONDS
        while (found := real.left()) != wanted:
            assert time.monotonic() < deadline, f"{step} after {[*begin, *steps][:done]}: {found} and not {wanted}"
            time.sleep(0.01)
        assert emulated.left() == wanted
    # What the real collector still had to do it has done once it has done this.
    for side in sides:
        side.take(Step("create", "y"))
        side.take(Step("create", "z", "y"))
        side.take(Step("delete", "y", how="Background"))
    deadline = time.monotonic() + AGREE_SECONDS
    while "z" in real.left():
        assert time.monotonic() < deadline, "nothing is collected any more"
        time.sleep(0.01)
    assert real.left() == emulated.left()
