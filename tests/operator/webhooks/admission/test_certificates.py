"""The webhook's certificates: made, renewed in time, shared by replicas."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import pytest
from admission_scene import (
    DAY,
    NAMES,
    NOW,
    SECRET,
    Clock,
    cluster,
    shared,
    trusts,
)
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import ClusterError
from cotide_operator.webhooks.serving.certificates import (
    AUTHORITY_LIFE,
    SERVING_LIFE,
    begins,
    due,
    expires,
    make_authority,
    make_serving,
    names_in,
    read_certificates,
    signed_by,
)
from cotide_operator.webhooks.serving.shared_certificate import FIELDS, Lives, StoredCertificate, renewed
from cotide_operator.webhooks.serving.tls import ServingContext
from cotide_sim.apiserver.http.faults import Fault


def test_a_fresh_pair_is_good_for_the_service_and_signed_by_its_authority() -> None:
    kept = renewed(None, NAMES, datetime.now(UTC))
    assert names_in(kept.certificate_pem) == {
        "cotide-admission.cotide-system.svc",
        "cotide-admission.cotide-system",
        "cotide-admission.cotide-system.svc.cluster.local",
        "localhost",
        "127.0.0.1",
        "::1",
    }
    assert signed_by(kept.certificate_pem, kept.bundle_pem)
    assert trusts(kept.bundle_pem, kept.serving)
    assert not trusts(kept.bundle_pem, kept.serving, "another.cotide-system.svc")
    stranger = make_authority(datetime.now(UTC))
    assert not signed_by(kept.certificate_pem, stranger.certificate_pem)
    assert not trusts(stranger.certificate_pem, kept.serving)


def test_a_certificate_is_due_at_two_thirds_of_its_life() -> None:
    # Valid from NOW - 5 min (an API server's clock may lag) to NOW + 90 d: due at -5 min + 2/3 x (90 d + 5 min).
    pair = make_serving(make_authority(NOW), NAMES, NOW)
    turn = NOW + 60 * DAY - timedelta(minutes=5) / 3
    assert expires(pair.certificate_pem) == NOW + SERVING_LIFE
    assert not due(pair.certificate_pem, turn - timedelta(seconds=1))
    assert due(pair.certificate_pem, turn + timedelta(seconds=1))


def test_nothing_is_renewed_before_it_is_due() -> None:
    kept = renewed(None, NAMES, NOW)
    assert renewed(kept, NAMES, NOW + 59 * DAY) is kept


def test_what_a_clock_that_ran_ahead_made_is_made_anew_once_it_is_right() -> None:
    """The API server would take it for a year for not yet valid, and nobody would be told."""
    kept = renewed(None, NAMES, NOW + 365 * DAY)
    after = renewed(kept, NAMES, NOW)
    assert not signed_by(after.certificate_pem, kept.bundle_pem)
    assert begins(after.bundle_pem) < NOW < expires(after.certificate_pem)
    ahead = renewed(renewed(None, NAMES, NOW), NAMES, NOW + 60 * DAY)
    back = renewed(ahead, NAMES, NOW)
    assert back.bundle_pem == ahead.bundle_pem
    assert begins(back.certificate_pem) < NOW


def test_the_certificate_is_renewed_by_the_same_authority() -> None:
    kept = renewed(None, NAMES, NOW)
    after = renewed(kept, NAMES, NOW + 60 * DAY)
    assert (after.bundle_pem, after.authority_key_pem) == (kept.bundle_pem, kept.authority_key_pem)
    assert after.serving != kept.serving
    assert expires(after.certificate_pem) == NOW + 150 * DAY
    assert signed_by(after.certificate_pem, kept.bundle_pem)  # whoever trusted the old one trusts the new one


def test_a_new_authority_is_told_of_before_it_signs_what_is_served() -> None:
    lives = Lives(authority=300 * DAY, serving=90 * DAY)
    kept = renewed(None, NAMES, NOW, lives)
    authorities_due, late = NOW + 200 * DAY, NOW + 260 * DAY
    kept = renewed(kept, NAMES, authorities_due - 10 * DAY, lives)  # serving, renewed on day 190: due again on day 250
    first = renewed(kept, NAMES, authorities_due, lives)
    assert len(read_certificates(first.bundle_pem)) == 2
    assert first.serving == kept.serving  # nobody need trust the new authority yet
    second = renewed(first, NAMES, late, lives)
    assert second.bundle_pem == first.bundle_pem
    assert signed_by(second.certificate_pem, second.authority.certificate_pem)
    newest = read_certificates(second.bundle_pem)[0].public_bytes(serialization.Encoding.PEM)
    assert signed_by(second.certificate_pem, newest)


def test_an_authority_that_ended_is_dropped_from_the_bundle() -> None:
    lives = Lives(authority=300 * DAY, serving=90 * DAY)
    kept = renewed(None, NAMES, NOW, lives)
    for day in range(0, 700, 5):
        kept = renewed(kept, NAMES, NOW + day * DAY, lives)
    assert len(read_certificates(kept.bundle_pem)) == 2


@given(days=st.lists(st.integers(1, 29), min_size=1, max_size=60))
def test_looked_at_often_enough_what_is_served_is_always_valid_and_was_trusted_one_look_earlier(
    days: list[int],
) -> None:
    # At most 29 days between looks, a third of 90 days less one: nothing can end between two of them.
    lives, now = Lives(authority=300 * DAY, serving=90 * DAY), NOW
    before = renewed(None, NAMES, now, lives)
    for step in days:
        now += step * DAY
        after = renewed(before, NAMES, now, lives)
        assert expires(after.certificate_pem) > now
        assert expires(after.bundle_pem) > now
        assert signed_by(after.certificate_pem, before.bundle_pem)
        before = after


@pytest.mark.parametrize("late", [91 * DAY, 250 * DAY, 4000 * DAY])
def test_what_nobody_renewed_in_time_is_made_anew_at_once(late: timedelta) -> None:
    after = renewed(renewed(None, NAMES, NOW), NAMES, NOW + late)
    assert expires(after.certificate_pem) == NOW + late + SERVING_LIFE
    assert signed_by(after.certificate_pem, after.bundle_pem)


def test_other_names_call_for_another_certificate() -> None:
    kept = renewed(None, ["old.cotide-system.svc"], NOW)
    after = renewed(kept, NAMES, NOW)
    assert set(NAMES) <= names_in(after.certificate_pem)
    assert after.bundle_pem == kept.bundle_pem


def test_an_authority_outlives_what_it_signed() -> None:
    # Renewed at 2/3 of its life, the last third must cover a whole serving certificate.
    assert AUTHORITY_LIFE / 3 > SERVING_LIFE


async def test_the_first_replica_makes_the_secret_and_the_others_take_it() -> None:
    async with cluster() as (_, client):
        first = await shared(client, Clock()).look()
        assert await shared(client, Clock()).look() == first
        secret = await client.get(SECRET)
        assert secret["type"] == "kubernetes.io/tls"
        assert secret["data"].keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        assert base64.b64decode(secret["data"]["tls.crt"]) == first.certificate_pem


async def test_replicas_that_race_agree_on_what_one_of_them_wrote() -> None:
    async with cluster() as (_, client):
        clock = Clock()
        replicas = [shared(client, clock) for _ in range(4)]
        found = await asyncio.gather(*(replica.look() for replica in replicas))
        assert len(set(found)) == 1
        clock.now += 61 * DAY
        again = await asyncio.gather(*(replica.look() for replica in replicas))
        assert len(set(again)) == 1
        assert again[0].serving != found[0].serving


async def test_a_replica_that_always_loses_gives_up_until_its_next_look() -> None:
    async with cluster() as (server, client):
        server.faults.add(Fault(status=409, method="POST", path="secrets", count=-1))
        with pytest.raises(ClusterError, match="changed by others 5 times in a row"):
            await shared(client, Clock()).look()


@pytest.mark.parametrize("broken", ["", "bm90aGluZw==", "!"])
@pytest.mark.parametrize("field", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
async def test_a_secret_that_cant_be_used_is_made_anew(field: str, broken: str) -> None:
    async with cluster() as (_, client):
        keeper = shared(client, Clock())
        first = await keeper.look()
        await client.patch(SECRET, {"data": {field: broken}})
        second = await keeper.look()
        assert second != first
        assert signed_by(second.certificate_pem, second.bundle_pem)
        assert await keeper.look() == second


def test_what_is_kept_reads_back_as_it_was_written() -> None:
    kept = renewed(None, NAMES, NOW)
    assert StoredCertificate(kept.bundle_pem, kept.authority_key_pem, kept.certificate_pem, kept.key_pem) == kept


@pytest.mark.parametrize("field", ["authority_key_pem", "key_pem"])
async def test_a_secret_with_the_key_of_another_is_made_anew_once(field: str) -> None:
    """A half that somebody restored from a backup: each half can be read, and nobody could use both."""
    async with cluster() as (_, client):
        clock = Clock()
        keeper = shared(client, clock)
        first = await keeper.look()
        other = base64.b64encode(getattr(renewed(None, NAMES, NOW), field)).decode()
        await client.patch(SECRET, {"data": {FIELDS[field]: other}})
        for _ in range(2):
            second = await keeper.look()
            assert second != first
            assert signed_by(second.certificate_pem, second.bundle_pem)
            assert ServingContext().use(second.serving, clock.now)
            assert await keeper.look() == second
            clock.now += 61 * DAY  # what its authority signs then is trusted, too
