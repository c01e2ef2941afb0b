"""Kept samples that say other latencies than now are noticed, also where every limit held and none breaks now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotide_core.recording.samples import MeasuredMix
from cotide_predictors.learning.contradiction import LEAST_CELLS, contradicts
from cotide_predictors.learning.renewal import renew

LIMIT = 100.0


def measured(count: int, seed: int, *, slow: float = 1.0, noise: float = 0.3) -> list[MeasuredMix]:
    """Samples of a service of 5 ms alone, slower by rate and jobs, which never breaks its limit."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        rate, sorts = float(rng.uniform(50.0, 1000.0)), int(rng.integers(0, 5))
        latency = 5.0 * slow * (1 + rate / 1000) * (1 + 0.3 * sorts) * float(rng.lognormal(0.0, noise))
        jobs = (("sort", sorts, sorts << 20),) if sorts else ()
        found.append(MeasuredMix("shop/web", rate, 0.0, LIMIT, 0.1 * sorts, jobs, latency))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_samples_of_one_law_do_not_contradict_each_other(seed: int) -> None:
    assert not contradicts(measured(300, seed), {"shop/web": measured(150, seed + 100)})


@pytest.mark.parametrize("latency", [1e-3, 99.0])
def test_constant_latencies_that_hold_every_limit_do(latency: float) -> None:
    poisoned = [replace(one, latency=latency) for one in measured(300, 0)]
    assert contradicts(poisoned, {"shop/web": measured(150, 1)})


def test_a_service_that_became_three_times_as_fast_does() -> None:
    assert contradicts(measured(300, 0, slow=3.0), {"shop/web": measured(150, 1)})


def test_what_has_few_cells_in_common_says_nothing() -> None:
    poisoned = [replace(one, latency=1e-3) for one in measured(300, 0)]
    few = [one for one in measured(150, 1) if not one.jobs]
    assert LEAST_CELLS > 5
    assert not contradicts(poisoned, {"shop/web": few})
    assert not contradicts(poisoned, {"shop/web": [replace(one, service="shop/b") for one in measured(150, 1)]})


def test_a_renewal_drops_them_though_nothing_broke_since() -> None:
    """No fresh model can be trained where no limit breaks, and none is; the poisoned samples go all the same."""
    poisoned = [replace(one, latency=1e-3) for one in measured(300, 0)]
    found = renew(poisoned, {"shop/web": measured(150, 1)}, None, 0)
    assert found.older_contradict
    assert found.files is None
    assert "0 of" in found.why_not


def test_a_renewal_learns_from_what_was_measured_since() -> None:
    """Of two limits' worth of samples enough break: the model in use is replaced by one without the poisoned ones."""
    poisoned = [replace(one, latency=1e-3, limit=15.0) for one in measured(300, 0)]
    fresh = [replace(one, limit=15.0) for one in measured(400, 1)]
    found = renew(poisoned, {"shop/web": fresh}, None, 0)
    assert found.older_contradict
    assert found.files is not None
