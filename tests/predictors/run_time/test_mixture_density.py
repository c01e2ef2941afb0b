"""The mixture density network: its gradient, what it learns, and that it can't see ahead."""

from __future__ import annotations

import numpy as np
import pytest
from run_logs import small_log, with_longer_run
from scipy.stats import norm

from cotide_lab.predictors.run_time.mixture_density.density_network import DensityNetwork
from cotide_lab.predictors.run_time.mixture_density.network import initial_parameters, loss_and_gradient
from cotide_lab.predictors.run_time.mixture_density.rolling_density import past_inputs, rolling_mixtures
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures


@pytest.mark.parametrize("hidden", [(5,), (5, 4)])
def test_the_gradient_is_that_of_the_likelihood(hidden: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    parameters = initial_parameters([3, *hidden], 2, generator)
    inputs, target = generator.normal(size=(7, 3)), generator.normal(size=7)
    _, gradient = loss_and_gradient(parameters, inputs, target)
    for index, parameter in enumerate(parameters):
        for at in np.ndindex(parameter.shape):
            kept, losses = parameter[at], []
            for step in (1e-6, -1e-6):
                parameter[at] = kept + step
                losses.append(loss_and_gradient(parameters, inputs, target)[0])
            parameter[at] = kept
            assert gradient[index][at] == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-6)


def test_two_modes_are_learned_as_two_modes() -> None:
    """Half of the jobs end within a minute, half run for hours: a mean would be right for none."""
    generator = np.random.default_rng(1)
    long = generator.random(3000) < 0.5
    run = np.exp(np.where(long, 9.0, 3.0) + generator.normal(0.0, 0.3, 3000))
    inputs = generator.normal(size=(3000, 2))
    inputs[::7, 1] = np.nan
    found = DensityNetwork(hidden=(16,), components=2, epochs=15).fit(inputs, run).predict(inputs[:50])
    np.testing.assert_allclose(np.sort(found.means, axis=1), np.tile([3.0, 9.0], (50, 1)), atol=0.3)
    np.testing.assert_allclose(found.weights, 0.5, atol=0.12)


def test_the_same_seed_gives_the_same_weights() -> None:
    generator = np.random.default_rng(2)
    inputs, run = generator.normal(size=(300, 3)), np.exp(generator.normal(5.0, 1.0, 300))
    one, two = (DensityNetwork(hidden=(8,), epochs=2).fit(inputs, run).refit(inputs, run) for _ in range(2))
    for left, right in zip(one.parameters_, two.parameters_, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_refit_sees_only_what_was_over_before_it() -> None:
    log = small_log()
    changed, unmoved = with_longer_run(log, 20)
    before, after = (
        rolling_mixtures(one, past_inputs(one), model=DensityNetwork(hidden=(8,), epochs=2, more_epochs=1))
        for one in (log, changed)
    )
    np.testing.assert_array_equal(before.means[unmoved], after.means[unmoved])
    assert np.any(before.means[~unmoved] != after.means[~unmoved])


def test_a_mixture_in_bins_keeps_its_mass_and_ends_at_the_request() -> None:
    mixtures = GaussianMixtures(np.array([[0.25, 0.75]]), np.array([[2.0, 6.0]]), np.array([[0.5, 1.0]]))
    edges = np.linspace(0.0, 14.0, 57)
    free = mixtures.binned(edges, np.array([np.nan]))
    assert free.masses.sum() == pytest.approx(1.0)
    assert free.quantile(0.25 * norm.cdf(8.0) + 0.375) == pytest.approx(np.exp(6.0), rel=0.01)
    held = mixtures.binned(edges, np.array([np.exp(6.1)]))
    assert held.masses.sum() == pytest.approx(1.0)
    assert held.masses[0, edges[:-1] > 6.1].sum() == 0.0


def test_the_highest_centre_is_of_the_largest_weight_by_deviation() -> None:
    mixtures = GaussianMixtures(np.array([[0.4, 0.6]]), np.array([[2.0, 6.0]]), np.array([[0.1, 1.0]]))
    assert mixtures.highest_centre() == pytest.approx(np.exp([2.0]))  # .4 / .1 = 4 > .6 / 1


def test_the_likelihood_is_that_of_the_mixture() -> None:
    mixtures = GaussianMixtures(np.array([[0.4, 0.6]]), np.array([[2.0, 6.0]]), np.array([[0.1, 1.0]]))
    density = 0.4 * norm.pdf(5.0, 2.0, 0.1) + 0.6 * norm.pdf(5.0, 6.0, 1.0)
    assert mixtures.negative_log_likelihood(np.exp([5.0])) == pytest.approx([-np.log(density)])
