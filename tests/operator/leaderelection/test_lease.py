"""One leader at a time, judged by our own clock; against the embedded server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lease_scene import LEASES, Scene

from cotide_core.errors import ClusterError
from cotide_operator.leaderelection.lease import LeadershipLost
from cotide_sim.apiserver.http.faults import Fault


async def test_the_first_candidate_makes_the_lease(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    await one.acquire()
    lease = await scene.lease()
    assert (one.leading, lease["holderIdentity"], lease["leaseDurationSeconds"]) == (True, "one", 15)


async def test_a_standby_waits_out_the_lease_by_its_own_clock(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    two, time = scene.candidate("two")
    await one.acquire()
    await two.acquire()
    # First seen at 0 s, looked at every 2 s: at 16 s it has not changed for its 15 s.
    assert time.now == 16.0
    lease = await scene.lease()
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("two", 1)


async def test_a_renewed_lease_is_not_taken(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    two, time = scene.candidate("two")
    await one.acquire()
    waiting = asyncio.create_task(two.acquire())
    while time.now < 40.0:  # far beyond the duration
        await one._renew()
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    assert (await scene.lease())["holderIdentity"] == "one"


async def test_a_released_lease_is_free_at_once(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    two, time = scene.candidate("two")
    await one.acquire()
    await one.release()
    assert not one.leading
    assert (await scene.lease())["leaseDurationSeconds"] == 1, "for those that do not look at the holder"
    await two.acquire()
    assert time.now == 0.0


async def test_a_release_waits_for_the_renewal_in_flight_and_none_comes_after_it(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two", "three", "four", "five"):
        leader, time = scene.candidate(name)
        await leader.acquire()
        assert time.now == 0.0  # the one before has given it up
        holding = asyncio.create_task(leader.hold())
        while time.naps < 3:  # it renews all the time
            await asyncio.sleep(0)
        await leader.release()
        naps = time.naps
        while time.naps < naps + 20:
            await asyncio.sleep(0)
        assert (await scene.lease())["holderIdentity"] == ""
        holding.cancel()
    assert "could not be released" not in caplog.text


async def test_of_two_candidates_that_see_a_free_lease_one_wins(scene: Scene) -> None:
    zero, _ = scene.candidate("zero")
    await zero.acquire()
    await zero.release()
    candidates = [scene.candidate(name)[0] for name in ("one", "two", "three")]
    won = await asyncio.gather(*(candidate._renew() for candidate in candidates))
    assert won.count(True) == 1


async def test_a_standby_takes_the_lease_at_the_moment_that_it_ends(scene: Scene) -> None:
    """Not one retry later: a lease of 15 s that was seen at 0 s is free at 15 s."""
    one, _ = scene.candidate("one")
    two, time = scene.candidate("two")
    await one.acquire()
    assert not await two._renew()
    time.now = 15.0
    assert await two._renew()


async def test_a_standby_logs_the_leader_once_and_no_conflict(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A conflict is another replica that was faster: the next try has its name."""
    caplog.set_level("INFO")
    one, _ = scene.candidate("one")
    two, _ = scene.candidate("two")
    await one.acquire()
    assert [await two._renew() for _ in range(3)] == [False] * 3
    assert caplog.messages.count("standing by: one leads") == 1
    await one.release()
    caplog.clear()
    scene.server.faults.add(Fault(status=409, method="PUT", path="/leases/"))
    assert not await two._renew()
    assert [line for line in caplog.messages if "lease" in line] == []
    scene.server.faults.add(Fault(status=403, method="PUT", path="/leases/"))
    assert not await two._renew()
    assert [line for line in caplog.messages if line.startswith("the lease can't be taken: ")] != []


async def test_a_released_lease_says_what_was_bound_until_it_is_taken(scene: Scene) -> None:
    one, two, three = (scene.candidate(name)[0] for name in ("one", "two", "three"))
    await one.acquire()
    assert one.inherited == ""
    await one.release("17")
    assert (await scene.whole())["metadata"]["annotations"] == {"cotide.dev/bound-up-to": "17"}
    await two.acquire()
    assert two.inherited == "17"
    assert (await scene.whole())["metadata"].get("annotations", {}) == {}
    two.inherited = ""  # it was seen
    await two.release()
    assert (await scene.whole())["metadata"].get("annotations", {}) == {}
    await three.acquire()
    assert three.inherited == ""


async def test_what_was_not_seen_yet_is_handed_on(scene: Scene) -> None:
    one, two, three = (scene.candidate(name)[0] for name in ("one", "two", "three"))
    await one.acquire()
    await one.release("17")
    await two.acquire()
    await two.release()  # at once: it bound nothing, and saw nothing
    await three.acquire()
    assert three.inherited == "17"


async def test_what_was_inherited_outlasts_the_loss_of_the_answer(scene: Scene) -> None:
    one, _ = scene.candidate("one")
    two, _ = scene.candidate("two")
    await one.acquire()
    await one.release("17")
    replace = scene.client.replace

    async def unanswered(path: str, body: dict[str, Any], params: Any = None) -> dict[str, Any]:
        await replace(path, body, params)
        scene.client.replace = replace  # type: ignore[method-assign]  # this once
        raise ClusterError("the answer is lost")

    scene.client.replace = unanswered  # type: ignore[method-assign]  # carried out, and nobody hears of it
    await two.acquire()
    assert two.inherited == "17"
    await two._renew()
    assert two.inherited == "17"


async def test_who_comes_second_inherits_nothing_of_the_first(scene: Scene) -> None:
    one, two, three = (scene.candidate(name)[0] for name in ("one", "two", "three"))
    await one.acquire()
    await one.release("17")
    assert sorted(await asyncio.gather(two._renew(), three._renew())) == [False, True]
    leader = two if (await scene.lease())["holderIdentity"] == "two" else three
    leader.leading = leader.holding = True
    leader.inherited = ""  # it saw it
    await leader.release("23")
    other = three if leader is two else two
    await other.acquire()
    assert other.inherited == "23"


async def test_what_a_leader_knows_of_nodes_outlasts_its_kill_and_its_successors_start(scene: Scene) -> None:
    one, two, three = (scene.candidate(name)[0] for name in ("one", "two", "three"))
    await one.acquire()
    one.backoffs = "[1]"
    await one._renew()
    await two.acquire()  # one is gone without a word: its lease ran out
    assert two.backoffs == "[1]"
    assert (await scene.whole())["metadata"]["annotations"] == {"cotide.dev/node-back-offs": "[1]"}
    await two.release()  # before it learned anything
    await three.acquire()
    assert three.backoffs == "[1]"
    three.backoffs = ""  # all nodes are open again
    await three._renew()
    assert (await scene.whole())["metadata"].get("annotations", {}) == {}


async def test_a_lease_that_is_left_to_expire_is_neither_renewed_nor_given_up(scene: Scene) -> None:
    one, time = scene.candidate("one")
    await one.acquire()
    holding = asyncio.create_task(one.hold())
    one.let_expire()
    before = await scene.lease()
    naps = time.naps
    while time.naps < naps + 20:
        await asyncio.sleep(0)
    await one.release("17")
    assert await scene.lease() == before
    with pytest.raises(LeadershipLost):
        one.permit()
    holding.cancel()


async def test_what_others_wrote_on_the_lease_stays(scene: Scene) -> None:
    one, two = (scene.candidate(name)[0] for name in ("one", "two"))
    await one.acquire()
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b", "cotide.dev/bound-up-to": "5"}}
    await scene.client.patch(f"{LEASES}/cotide-operator", {"metadata": metadata, "spec": {"strategy": "c"}})
    before = (await scene.whole())["metadata"]
    await one._renew()
    assert one.inherited == "", "it leads: nobody else has bound anything"
    await one.release("17")
    await two.acquire()
    lease = await scene.whole()
    assert (lease["metadata"]["labels"], lease["metadata"]["annotations"]) == ({"team": "a"}, {"note": "b"})
    assert (lease["metadata"]["uid"], lease["spec"]["strategy"]) == (before["uid"], "c")
    assert lease["metadata"]["creationTimestamp"] == before["creationTimestamp"]


async def test_who_is_stopped_while_it_takes_the_lease_leaves_it_free(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody decides until the lease of one who is gone runs out."""
    first, _ = scene.candidate("first")
    await first.acquire()
    await first.release("77")
    one, _ = scene.candidate("one")
    replace, taken = scene.client.replace, asyncio.Event()

    async def slow(path: str, body: dict[str, Any], params: Any = None) -> dict[str, Any]:
        answer = await replace(path, body, params)
        taken.set()
        await asyncio.sleep(0.05)  # the answer is on its way
        return answer

    monkeypatch.setattr(scene.client, "replace", slow)
    acquiring = asyncio.create_task(one.acquire())
    await taken.wait()
    monkeypatch.setattr(scene.client, "replace", replace)
    await one.withdraw()
    await acquiring
    two, time = scene.candidate("two")
    await two.acquire()
    assert (one.leading, time.now, two.inherited) == (False, 0.0, "77")


async def test_who_withdraws_leaves_the_lease_of_another_alone(scene: Scene) -> None:
    leader, _ = scene.candidate("leader")
    await leader.acquire()
    standby, time = scene.candidate("standby")
    acquiring = asyncio.create_task(standby.acquire())
    while not time.naps:
        await asyncio.sleep(0)
    await standby.withdraw()
    await acquiring
    assert (standby.leading, (await scene.lease())["holderIdentity"]) == (False, "leader")


async def test_a_leader_renews_in_one_request_until_another_writes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = scene.candidate("one")
    await one.acquire()
    asked: list[str] = []
    request = scene.client.request

    async def noted(method: str, *rest: Any, **how: Any) -> bytes:
        asked.append(method)
        return await request(method, *rest, **how)

    monkeypatch.setattr(scene.client, "request", noted)
    assert await one._renew()
    assert asked == ["PUT"]
    await scene.client.patch(f"{LEASES}/cotide-operator", {"metadata": {"annotations": {"a.b/c": "theirs"}}})
    asked.clear()
    assert not await one._renew()
    assert await one._renew()
    assert asked == ["PUT", "GET", "PUT"]
    stored = await scene.client.get(f"{LEASES}/cotide-operator")
    assert stored["metadata"]["annotations"] == {"a.b/c": "theirs"}
