"""Old objects are left out of full passes of the garbage collector, and looked at again when nothing is to be done."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from cotide_operator.scheduling import garbage_passes


class Circle:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.collect()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.collect()


def test_what_lived_through_a_full_pass_is_not_looked_at_again() -> None:
    garbage_passes.settle()
    circle = Circle()
    gone = weakref.ref(circle)
    gc.collect()  # it lives: from now on it is left out
    frozen = gc.get_freeze_count()
    del circle
    gc.collect()
    assert gone() is not None
    assert gc.get_freeze_count() >= frozen


def test_a_circle_that_is_given_up_young_is_freed_as_ever() -> None:
    garbage_passes.settle()
    gone = weakref.ref(Circle())
    gc.collect()
    assert gone() is None


def collections() -> int:
    """Full ones so far."""
    return int(gc.get_stats()[2]["collections"])


async def test_a_full_pass_has_a_turn_of_the_loop_for_itself() -> None:
    garbage_passes.settle()
    passes = asyncio.create_task(garbage_passes.full_passes())
    try:
        await asyncio.sleep(0)
        gc.collect()
        before = collections()
        lasting = [[number] for number in range(2 * garbage_passes.FULL_OBJECTS)]
        assert collections() == before  # in the midst of this nothing is collected in full
        async with asyncio.timeout(10):
            while collections() == before:
                await asyncio.sleep(0)
        assert lasting
    finally:
        passes.cancel()


async def test_what_dies_young_brings_no_full_pass_however_much_it_is() -> None:
    garbage_passes.settle()
    passes = asyncio.create_task(garbage_passes.full_passes())
    try:
        await asyncio.sleep(0)
        gc.collect()
        before = collections()
        for _ in range(5):
            young = [[number] for number in range(garbage_passes.FULL_OBJECTS // 2)]
            del young
            await asyncio.sleep(0)
        assert collections() == before
    finally:
        passes.cancel()


async def test_a_thorough_pass_frees_old_circles_at_a_calm_moment_only() -> None:
    garbage_passes.settle()
    circle = Circle()
    gone = weakref.ref(circle)
    gc.collect()
    del circle
    calm, asked = False, asyncio.Event()

    def is_calm() -> bool:
        asked.set()
        return calm

    passes = asyncio.create_task(garbage_passes.thorough_passes(is_calm, every_seconds=0.0))
    try:
        await asyncio.wait_for(asked.wait(), 10)
        assert gone() is not None
        calm = True
        async with asyncio.timeout(10):
            while gone() is not None:
                await asyncio.sleep(0)
    finally:
        passes.cancel()


def test_settling_twice_notes_the_passes_once() -> None:
    garbage_passes.settle()
    known = len(gc.callbacks)
    garbage_passes.settle()
    assert len(gc.callbacks) == known


async def test_counting_holds_no_reference_to_what_another_thread_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple that is built from a generator cannot be resized while somebody else refers to it."""
    monkeypatch.setattr(gc, "get_objects", lambda generation=None: pytest.fail("refers to all objects"))
    garbage_passes.settle()
    passes = asyncio.create_task(garbage_passes.full_passes())
    try:
        await asyncio.sleep(0)
        gc.collect()
        before = collections()
        lasting = [[number] for number in range(4 * garbage_passes.FULL_OBJECTS)]
        async with asyncio.timeout(10):
            while collections() == before:
                await asyncio.sleep(0)
        assert lasting
    finally:
        passes.cancel()


async def test_what_replaces_old_objects_is_looked_at_without_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_passes, "FULL_BLOCKS", 1 << 60)
    garbage_passes.settle()
    passes = asyncio.create_task(garbage_passes.full_passes())
    try:
        await asyncio.sleep(0)
        gc.collect()
        before = collections()
        lasting = [[number] for number in range(garbage_passes.MAX_FULL + garbage_passes.THRESHOLDS[0])]
        async with asyncio.timeout(10):
            while collections() == before:
                await asyncio.sleep(0)
        assert lasting
    finally:
        passes.cancel()
