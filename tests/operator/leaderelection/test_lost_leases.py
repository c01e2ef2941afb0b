"""How long a leader may act on a lease, and what becomes of a lease that it could not renew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lease_scene import LEASES, Scene

from cotide_operator.config.settings import LeaderElectionSettings
from cotide_operator.leaderelection.lease import LeadershipLost
from cotide_sim.apiserver.http.faults import Fault


async def test_a_leader_whose_lease_was_taken_stops(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    await one.acquire()
    await scene.client.patch(f"{LEASES}/cotide-operator", {"spec": {"holderIdentity": "two"}})
    with pytest.raises(LeadershipLost, match="taken by two"):
        await one.hold()
    assert not one.leading


async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(scene: Scene) -> None:
    one, time = scene.candidate("one")
    await one.acquire()
    scene.server.faults.add(Fault(status=403, path="/leases/", count=-1))
    with pytest.raises(LeadershipLost, match="could not be renewed for 10 s"):
        await one.hold()
    assert time.now <= 15.0  # the lease itself lasts 15 s: nobody else leads yet


async def test_a_leader_that_cannot_renew_for_a_moment_leads_on(scene: Scene) -> None:
    one, time = scene.candidate("one")
    await one.acquire()
    scene.server.faults.add(Fault(status=403, path="/leases/", count=2))
    holding = asyncio.create_task(one.hold())
    while time.now < 30.0 and not holding.done():
        await asyncio.sleep(0)
    assert not holding.done()
    holding.cancel()


async def test_by_default_a_leader_outlasts_an_answer_of_3_s_and_then_5_s_of_refusals(scene: Scene) -> None:
    """client-go does, whose deadline is 10 s."""
    one, time = scene.candidate("one", LeaderElectionSettings(namespace="default"))
    await one.acquire()
    ask = one._renew

    async def slow() -> bool:
        one._renew = ask  # type: ignore[method-assign]  # this once
        held = await ask()
        time.now += 3.0
        scene.server.faults.add(Fault(status=403, path="/leases/", count=5))
        return held

    one._renew = slow  # type: ignore[method-assign]  # an answer that takes three seconds
    holding = asyncio.create_task(one.hold())
    while time.now < 20.0 and not holding.done():
        await asyncio.sleep(0)
    assert not holding.done()
    holding.cancel()


async def test_a_leader_that_could_not_renew_gives_the_lease_up_when_the_server_is_back(scene: Scene) -> None:
    """The process that starts in its place has another name, and would wait for a whole lease."""
    one, _ = scene.candidate("one")
    two, time = scene.candidate("two")
    await one.acquire()
    scene.server.faults.add(Fault(status=403, path="/leases/", count=-1))
    with pytest.raises(LeadershipLost, match="could not be renewed"):
        await one.hold()
    scene.server.faults.clear()
    with pytest.raises(LeadershipLost):
        one.permit()  # it holds the lease to give it up, and for nothing else
    await one.release("17")
    await two.acquire()
    assert (time.now, two.inherited) == (0.0, "17")


async def test_a_leader_that_could_not_renew_leaves_the_lease_of_its_successor_alone(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    two, _ = scene.candidate("two")
    await one.acquire()
    scene.server.faults.add(Fault(status=403, path="/leases/", count=-1))
    with pytest.raises(LeadershipLost, match="could not be renewed"):
        await one.hold()
    scene.server.faults.clear()
    await two.acquire()
    await one.release("17")
    assert (await scene.lease())["holderIdentity"] == "two"


async def test_a_leader_may_act_until_its_deadline_and_not_when_it_slept_through_it(scene: Scene) -> None:
    one, time = scene.candidate("one")
    with pytest.raises(LeadershipLost):
        one.permit()  # not yet
    await one.acquire()
    time.now = 9.9
    one.permit()
    time.now = 10.0
    with pytest.raises(LeadershipLost, match="another replica may hold the lease"):
        one.permit()
    await one._renew()
    one.permit()
    await one.release()
    with pytest.raises(LeadershipLost):
        one.permit()


async def test_a_renewal_that_was_paused_beyond_the_deadline_is_not_sent(scene: Scene) -> None:
    one, time = scene.candidate("one")
    scene.client.fence = one.guard
    await one.acquire()
    before = await scene.whole()
    time.now = 10.0
    assert not await one._renew()
    assert await scene.whole() == before
    time.now = 9.9
    assert await one._renew()


async def test_a_lease_counts_from_before_the_request_that_renewed_it(scene: Scene) -> None:
    """The server may have written it at once and answered late: others count from the writing."""
    one, time = scene.candidate("one")
    await one.acquire()
    ask = one._renew

    async def slow() -> bool:
        held = await ask()
        time.now += 9.0
        return held

    one._renew = slow  # type: ignore[method-assign]  # an answer that takes nine seconds
    await one._renew()
    time.now = 9.9
    one.permit()
    time.now = 10.0
    with pytest.raises(LeadershipLost):
        one.permit()


async def test_a_lease_counts_from_before_the_write_and_not_from_a_read_before_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is ours by a read, and nothing is another's before the write's time is over."""
    one, time = scene.candidate("one")
    await one.acquire()
    await scene.client.patch(f"{LEASES}/cotide-operator", {"metadata": {"annotations": {"a.b/c": "theirs"}}})
    assert not await one._renew()  # another wrote: it reads first now
    get = scene.client.get

    async def slow(path: str, params: Any = None) -> dict[str, Any]:
        time.now += 3.0
        return await get(path, params)

    monkeypatch.setattr(scene.client, "get", slow)
    assert await one._renew()
    time.now = 12.9
    one.permit()
    time.now = 13.0
    with pytest.raises(LeadershipLost):
        one.permit()
