"""The record of requests tells what an operator should not have asked for, and nothing else."""

from __future__ import annotations

import json

import pytest
from write_record import Write, WriteRecord

LIMIT_SECONDS = 2.0


class Proxies:
    """Tells a record what came when; connections hold until they are broken."""

    def __init__(self) -> None:
        self.record = WriteRecord()
        self.broken: set[int] = set()

    def binds(self, at: float, sender: str = "a", node: str = "n", uid: str = "u") -> Write:
        number = len(self.record.writes)
        body = json.dumps({"metadata": {"uid": uid}, "target": {"name": node}}).encode()
        path = "/api/v1/namespaces/ns/pods/p/binding"
        return self.record.ask("bind", sender, path, body, at, lambda: number not in self.broken)

    def evicts(self, at: float, sender: str = "a") -> Write:
        path = "/api/v1/namespaces/ns/pods/p/eviction"
        return self.record.ask("evict", sender, path, b'{"metadata": {}}', at, lambda: True)

    def leads(self, at: float, sender: str, holder: str = "somebody", seconds: int = 0) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        self.record.lease_written(sender, json.dumps({"spec": spec}).encode(), at)

    @property
    def breaches(self) -> list[str]:
        return self.record.breaches(LIMIT_SECONDS)


def test_two_bindings_of_a_pod_at_a_time_are_a_breach_and_of_two_pods_are_none() -> None:
    proxies = Proxies()
    proxies.binds(0.0)
    proxies.binds(0.1, uid="other")
    assert proxies.breaches == []
    proxies.binds(0.2)
    assert proxies.breaches == ["a asked to bind ns/p to n while its last binding of that pod was unanswered"]


def test_a_binding_before_the_time_that_a_refusal_named_is_a_breach_and_one_after_it_is_none() -> None:
    proxies = Proxies()
    proxies.binds(0.0).end(0.1, 429)
    proxies.binds(1.1).end(1.2, 429)
    assert proxies.breaches == []
    proxies.binds(1.7)
    assert proxies.breaches == ["a asked to bind ns/p to n before the time that it was told to come back at"]


def test_a_lease_that_was_renewed_a_moment_ago_is_nobodys_to_take() -> None:
    proxies = Proxies()
    for at, sender in ((0.0, "a"), (5.0, "a"), (11.0, "b"), (12.0, "c")):
        proxies.leads(at, sender, seconds=6)
    assert proxies.breaches == ["c took the lease 1.0 s after b had renewed it"]


def test_a_lease_that_was_given_up_may_be_taken_at_once() -> None:
    proxies = Proxies()
    proxies.leads(0.0, "a", seconds=6)
    proxies.leads(0.1, "a", holder="", seconds=6)
    proxies.leads(0.2, "b", seconds=6)
    assert proxies.breaches == []


@pytest.mark.parametrize("status", [409, 503])
def test_a_binding_after_a_refusal_is_none(status: int) -> None:
    proxies = Proxies()
    proxies.binds(0.0).end(0.1, status)
    proxies.binds(0.2, node="m")
    assert proxies.breaches == []


def test_a_binding_after_its_sender_gave_up_the_connection_is_none() -> None:
    proxies = Proxies()
    proxies.binds(0.0)
    proxies.broken.add(0)
    proxies.binds(0.2)
    assert proxies.breaches == []


def test_a_binding_after_201_is_a_breach() -> None:
    proxies = Proxies()
    proxies.binds(0.0).end(0.1, 201)
    proxies.binds(0.2)
    assert proxies.breaches == ["a asked to bind ns/p to n after it was told 201 for n"]


def test_a_201_that_never_left_the_proxy_was_told_to_nobody() -> None:
    proxies = Proxies()
    first = proxies.binds(0.0)
    proxies.broken.add(0)
    first.end(0.1, 201)
    proxies.binds(0.2)
    assert proxies.breaches == []


@pytest.mark.parametrize(("node", "found"), [("n", 0), ("m", 1)])
def test_who_met_its_time_limit_may_ask_for_the_same_node_again_and_for_no_other(node: str, found: int) -> None:
    proxies = Proxies()
    proxies.binds(0.0).end(1.9, 201)
    proxies.binds(2.1, node=node)
    assert len(proxies.breaches) == found


def test_who_is_started_again_knows_nothing_of_what_its_predecessor_was_told() -> None:
    proxies = Proxies()
    proxies.binds(0.0, "a-1").end(0.1, 201)
    proxies.binds(0.2, "a-2")
    assert proxies.breaches == []


def test_a_write_after_another_took_the_lease_is_a_breach() -> None:
    proxies = Proxies()
    proxies.leads(0.0, "a")
    proxies.binds(1.0).end(1.1, 500)
    proxies.leads(6.0, "b")
    proxies.binds(6.5, "b").end(6.6, 201)
    assert proxies.breaches == []
    proxies.binds(7.0)
    proxies.evicts(7.5)
    assert proxies.breaches == [
        "a asked to bind ns/p to n 1.000 s after b had taken the lease",
        "a asked to evict ns/p 1.500 s after b had taken the lease",
    ]


def test_a_lease_that_is_renewed_or_given_up_deposes_nobody() -> None:
    proxies = Proxies()
    proxies.leads(0.0, "a")
    proxies.leads(1.0, "a")
    proxies.leads(2.0, "a", holder="")
    proxies.binds(3.0)
    assert proxies.breaches == []


def test_after_a_backup_was_restored_a_pod_may_be_bound_and_the_lease_be_held_as_if_for_the_first_time() -> None:
    proxies = Proxies()
    proxies.leads(0.0, "a", "a", 6)
    proxies.binds(1.0).end(1.1, 201)
    proxies.leads(8.0, "b", "b", 6)
    proxies.record.begin_anew()
    proxies.binds(9.0).end(9.1, 201)  # its binding, and that b had taken over, never was
    proxies.leads(9.2, "a", "a", 6)
    assert proxies.breaches == []
    proxies.binds(9.3)
    assert len(proxies.breaches) == 1


def test_what_broke_before_a_backup_was_restored_stays_broken() -> None:
    proxies = Proxies()
    proxies.binds(1.0).end(1.1, 201)
    proxies.binds(1.2)
    proxies.record.begin_anew()
    assert ["after it was told 201" in breach for breach in proxies.breaches] == [True]
