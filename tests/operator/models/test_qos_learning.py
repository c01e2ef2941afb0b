"""Learning that is left on: it doesn't censor itself, survives a restart, and finds out when it is lied to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from generation_loop import SERVICES, Cluster
from services_pair import DATABASE, measured

from cotide_core.errors import ModelError
from cotide_core.events import ModelsChanged
from cotide_core.forecasting.heuristics import HeuristicQos
from cotide_core.forecasts import QosSamples
from cotide_core.recording.samples import POOL
from cotide_operator.models.learned_store import (
    MODEL,
    SAMPLES,
    DirectoryStore,
    Files,
    StoreSilent,
    TooLarge,
)
from cotide_operator.models.shelf import QOS
from cotide_predictors import serialisation
from cotide_predictors.learning import kept_state
from cotide_predictors.learning.renewal import Renewal
from cotide_predictors.qos.qos_model import train_qos

TRUST_SLOTS = 80
"""More than the 48 records that trust takes: where the heuristic refuses all of a slot's candidates there is none."""


async def learned(directory: Path, **settings: object) -> Cluster:
    """A cluster that measured a campaign and lets its model decide."""
    cluster = Cluster(directory, kept=DirectoryStore(directory / ".learned"), **settings)
    await cluster.learning.restore()
    cluster.campaign()
    await cluster.learning.renew()
    cluster.generation(TRUST_SLOTS)
    return cluster


def counted(cluster: Cluster, name: str, **labels: str) -> float:
    return cluster.metrics.registry.get_sample_value(f"cotide_{name}", labels) or 0.0


async def test_over_ten_generations_little_breaks_and_refusals_do_not_grow(tmp_path: Path) -> None:
    cluster = await learned(tmp_path)
    generations = []
    for _ in range(10):
        generations.append(cluster.generation())
        await cluster.learning.look()
        try:
            await cluster.learning.renew()
        except ModelError as error:  # a challenger may lose
            cluster.outcomes.append(str(error))
    assert max(generation.broken_share for generation in generations) < 0.01
    refused = [generation.refused_share for generation in generations]
    assert np.mean(refused[5:]) < np.mean(refused[:5]) + 0.02  # the law itself has 7 % to refuse
    assert max(refused) < 0.15


async def test_a_model_is_only_scored_until_it_is_trusted(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.campaign()
    await cluster.learning.renew()
    asked = cluster.candidates(10)
    assert cluster.published[-1] == ModelsChanged(cluster.store.current[QOS].model_id, decides_for=())
    assert (cluster.decider.violation_probability(asked) == HeuristicQos().violation_probability(asked)).all()
    assert cluster.store.applicability(DATABASE, 100.0, 200.0).trust == "Learning"
    cluster.generation(TRUST_SLOTS)
    event = cluster.published[-1]
    assert isinstance(event, ModelsChanged)
    assert event.decides_for == SERVICES
    seen = cluster.store.applicability(DATABASE, 100.0, 200.0)
    assert (seen.decides, seen.trust) == (True, "Trusted")
    assert counted(cluster, "qos_trust", workload=DATABASE, state="Trusted") == 1


async def test_a_model_that_may_never_decide_is_scored_all_the_same(tmp_path: Path) -> None:
    cluster = await learned(tmp_path, promotion="never")
    assert cluster.learning.trust.trusted() == SERVICES
    assert cluster.store.decides_for == ()


async def test_after_a_restart_it_decides_for_whom_it_did(tmp_path: Path) -> None:
    before = await learned(tmp_path)
    await before.learning.keep()
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    await after.store.look()
    await after.learning.restore()
    assert after.store.decides_for == SERVICES
    assert len(after.learning.reservoir) == len(before.learning.reservoir)


async def test_killed_right_after_it_was_trusted_it_still_decides_though_the_disk_of_its_pod_is_gone(
    tmp_path: Path,
) -> None:
    """Nothing is kept at the end, and no interval has passed: the look that found the trust kept it, and the model."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    before = await learned(first)
    await before.learning.look()
    after = Cluster(second, seed=1, kept=DirectoryStore(first / ".learned"))
    await after.store.look()
    await after.learning.restore()
    assert after.store.decides_for == SERVICES
    assert after.store.current[QOS].model_id == before.store.current[QOS].model_id


async def test_another_model_than_the_one_that_earned_it_has_no_trust(tmp_path: Path) -> None:
    before = await learned(tmp_path)
    await before.learning.keep()
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    after.store.save(serialisation.to_files(train_qos(measured(300, 5), random_state=5)))
    await after.store.look()
    await after.learning.restore()
    assert after.store.decides_for == ()


async def test_a_store_with_constant_labels_is_found_out(tmp_path: Path) -> None:
    before = await learned(tmp_path)
    champion = before.store.current[QOS].model_id
    poisoned = [replace(one, latency=1.0) for one in before.learning.reservoir.digest(10_000)] * 4
    await DirectoryStore(tmp_path / ".learned").save(
        SAMPLES, POOL, kept_state.to_files(poisoned, before.learning.trust.windows(48), champion)
    )
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    await after.store.look()
    await after.learning.restore()
    assert len(after.learning.reservoir.older()) == len(poisoned)
    after.campaign()
    try:
        await after.learning.renew()
    except ModelError as error:
        after.outcomes.append(str(error))
    assert after.learning.reservoir.older() == []
    assert counted(after, "learned_store_total", outcome="contradicted") == 1
    assert after.generation(TRUST_SLOTS).broken_share < 0.01


async def test_a_promotion_that_was_wrong_is_rolled_back(tmp_path: Path) -> None:
    cluster = await learned(tmp_path)
    champion = cluster.store.current[QOS].model_id
    bad = measured(300, 7)
    worst = train_qos(QosSamples(bad.mixes, 1.15 * bad.latency_milliseconds[::-1]), random_state=0)

    async def renewed_badly(*_: object) -> Renewal:
        return Renewal(serialisation.to_files(worst))

    cluster.learning._renew_with = renewed_badly  # a trainer that no challenge would let pass
    await cluster.learning.renew()
    assert cluster.store.current[QOS].model_id != champion
    for _ in range(20):
        cluster.generation(1)
        await cluster.learning.look()
    assert cluster.store.current[QOS].model_id == champion
    assert counted(cluster, "model_rollbacks_total", kind=QOS) == 1


async def test_a_store_that_is_broken_is_not_taken_up(tmp_path: Path) -> None:
    directory = tmp_path / ".learned" / SAMPLES
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text('{"schema_version": 2, "files": {"learned.npz": {}}}')
    cluster = Cluster(tmp_path, kept=DirectoryStore(tmp_path / ".learned"))
    await cluster.learning.restore()
    assert counted(cluster, "learned_store_total", outcome="refused") == 1


class Silent(DirectoryStore):
    """A directory whose server does not answer for a while."""

    silent = True

    async def load(self, part: str, learner: str) -> Files | None:
        if self.silent:
            raise StoreSilent("no answer")
        return await super().load(part, learner)


async def test_a_store_that_is_silent_at_the_start_is_asked_again_and_not_overwritten(tmp_path: Path) -> None:
    before = await learned(tmp_path)
    await before.learning.keep()
    store = Silent(tmp_path / ".learned")
    after = Cluster(tmp_path, seed=1, kept=store)
    await after.store.look()
    await after.learning.look()
    after.campaign(1)
    await after.learning.look()
    await after.learning.keep()
    fresh = len(after.learning.reservoir)
    store.silent = False
    await after.learning.look()
    assert len(after.learning.reservoir) == fresh + len(before.learning.reservoir)
    assert after.store.decides_for == SERVICES


async def test_a_model_that_can_not_be_put_back_or_kept_costs_no_samples(tmp_path: Path) -> None:
    class NoModels(DirectoryStore):
        async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
            if part == MODEL:
                raise TooLarge("too large")
            await super().save(part, learner, files)

    before = Cluster(tmp_path, kept=NoModels(tmp_path / ".learned"))
    await before.learning.restore()
    before.campaign()
    await before.learning.renew()
    before.learning.score()
    await before.learning.keep()
    assert counted(before, "learned_store_total", outcome="failed") == 1
    await DirectoryStore(tmp_path / ".learned").save(MODEL, POOL, {"manifest.json": b"{}"})
    blocked = tmp_path / "a file"
    blocked.touch()
    after = Cluster(blocked / "models", seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    await after.learning.restore()
    assert len(after.learning.reservoir) == len(before.learning.reservoir)


async def test_where_all_samples_are_too_large_fewer_are_kept(tmp_path: Path) -> None:
    class Small(DirectoryStore):
        async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
            if part == SAMPLES and len(kept_state.from_files(files)[0]) > 300:
                raise TooLarge("too large")
            await super().save(part, learner, files)

    before = Cluster(tmp_path, kept=Small(tmp_path / ".learned"))
    await before.learning.restore()
    before.campaign()
    before.learning.score()
    assert len(before.learning.reservoir) > 600
    await before.learning.keep()
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    await after.learning.restore()
    assert 100 < len(after.learning.reservoir) <= 300


@pytest.mark.parametrize("gone", [DATABASE])
async def test_a_workload_that_is_deleted_leaves_no_series_behind(tmp_path: Path, gone: str) -> None:
    cluster = await learned(tmp_path)
    cluster.learning.forget(gone)
    assert gone.encode() not in cluster.metrics.text()
    assert gone not in cluster.learning.reservoir.services


async def test_what_waits_to_be_scored_of_a_workload_that_is_deleted_is_dropped_with_it(tmp_path: Path) -> None:
    cluster = await learned(tmp_path)
    cluster.learning.feed(cluster.learning.reservoir.latest()[DATABASE], cluster.now)
    cluster.learning.forget(DATABASE)
    await cluster.learning.look()
    assert DATABASE.encode() not in cluster.metrics.text()
    assert DATABASE not in cluster.learning.reservoir.services


async def test_another_workload_of_the_same_name_is_not_decided_for_also_after_a_restart(tmp_path: Path) -> None:
    cluster = await learned(tmp_path)
    await cluster.learning.keep()
    cluster.learning.forget(DATABASE)
    others = tuple(service for service in SERVICES if service != DATABASE)
    assert cluster.store.decides_for == others
    await cluster.learning.keep()
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    await after.store.look()
    await after.learning.restore()
    assert after.store.decides_for == others


async def test_a_workload_that_is_deleted_while_the_rest_is_kept_does_not_come_back_after_a_restart(
    tmp_path: Path,
) -> None:
    class Slow(DirectoryStore):
        async def save(self, part: str, learner: str, files: Mapping[str, bytes]) -> None:
            await super().save(part, learner, files)
            if part == SAMPLES:
                cluster.learning.forget(DATABASE)

    cluster = await learned(tmp_path)
    cluster.learning._kept = Slow(tmp_path / ".learned")
    await cluster.learning.keep()
    cluster.learning._kept = DirectoryStore(tmp_path / ".learned")
    await cluster.learning.keep()
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    await after.store.look()
    await after.learning.restore()
    assert DATABASE not in after.learning.trust.services()


async def test_a_workload_that_was_deleted_while_nobody_led_does_not_come_back(tmp_path: Path) -> None:
    before = await learned(tmp_path)
    await before.learning.keep()
    after = Cluster(tmp_path, seed=1, kept=DirectoryStore(tmp_path / ".learned"))
    after.learning._is_there = lambda service: service != DATABASE
    await after.store.look()
    await after.learning.restore()
    assert after.store.decides_for == tuple(service for service in SERVICES if service != DATABASE)
    assert {one.service for one in after.learning.reservoir.older()} == set(SERVICES) - {DATABASE}


async def test_a_workload_that_is_deleted_before_the_store_answers_does_not_come_back(tmp_path: Path) -> None:
    before = await learned(tmp_path)
    await before.learning.keep()
    store = Silent(tmp_path / ".learned")
    after = Cluster(tmp_path, seed=1, kept=store)
    await after.store.look()
    await after.learning.look()
    after.learning.forget(DATABASE)
    store.silent = False
    await after.learning.look()
    assert DATABASE not in after.learning.trust.services()


async def test_an_operator_that_ends_while_the_store_is_asked_does_not_overwrite_it(tmp_path: Path) -> None:
    """At the end everything is kept, beside whatever look is under way."""

    class Hanging(DirectoryStore):
        async def load(self, part: str, learner: str) -> Files | None:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    before = await learned(tmp_path)
    await before.learning.keep()
    asked = asyncio.Event()
    after = Cluster(tmp_path, seed=1, kept=Hanging(tmp_path / ".learned"))
    after.campaign(1)
    after.learning.score()
    under_way = asyncio.ensure_future(after.learning.look())
    await asked.wait()
    await after.learning.keep()
    under_way.cancel()
    files = await DirectoryStore(tmp_path / ".learned").load(SAMPLES, POOL)
    assert files is not None
    assert len(kept_state.from_files(files)[0]) == len(before.learning.reservoir)


async def test_a_model_that_was_rolled_back_does_not_come_back_from_the_store(tmp_path: Path) -> None:
    cluster = await learned(tmp_path)
    champion = cluster.store.current[QOS].model_id
    worst = train_qos(measured(300, 7), random_state=0)

    async def renewed_badly(*_: object) -> Renewal:
        return Renewal(serialisation.to_files(worst))

    cluster.learning._renew_with = renewed_badly
    await cluster.learning.renew()
    store = DirectoryStore(tmp_path / ".learned")
    kept = await store.load(MODEL, POOL)
    assert kept is not None
    assert serialisation.model_id(kept) == serialisation.model_id(serialisation.to_files(worst))
    assert cluster.learning._probation is not None
    cluster.learning._probation.why_back = lambda: "live scores are worse"  # type: ignore[method-assign]
    await cluster.learning.look()
    kept = await store.load(MODEL, POOL)
    assert kept is not None
    assert serialisation.model_id(kept) == champion
