"""The mixture density network as an estimator: scaling, Adam, refits that continue from the last weights.

Called by `rolling` here. Target: log seconds, since runs of the same kind differ by ratios. Inputs are taken as they
come; a missing one (nan) becomes the window's mean with a mark. Training uses minibatches and Adam (Kingma and Ba 2015)
with clipped gradients, in numpy: the operator needs no other library to learn. Invariant: the same rows, order and seed
give the same weights; `fit` starts from new weights, `refit` continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_lab.predictors.run_time.mixture_density.network import (
    Parameters,
    forward,
    initial_parameters,
    loss_and_gradient,
)
from cotide_predictors.estimator import Estimator
from cotide_predictors.one_thread import on_one_thread
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures

DECAY: Final = (0.9, 0.999)
"""Of Adam's two means (Kingma and Ba 2015)."""
LARGEST_GRADIENT: Final = 5.0
"""Longest gradient; a longer one is cut (Naghshnejad 2019, Table 7.3, for its other network)."""
FARTHEST: Final = 6.0
"""Scaled inputs and targets are held within it (chosen: an odd row must not move all weights)."""


class DensityNetwork(Estimator):
    """Run-time distributions from inputs.

    Parameters
    ----------
    hidden : units of each layer; one layer is the thesis's, more its "deep" network.
    components : K Gaussians.
    rate : of Adam. batch : rows a step. epochs, more_epochs : passes of a `fit`, and of a `refit`.

    Attributes
    ----------
    parameters_ : of the network. centre_, scale_ : (d,) of the inputs. target_ : centre and scale of log seconds.
    """

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (64,),
        components: int = 5,
        rate: float = 2e-3,
        batch: int = 256,
        epochs: int = 20,
        more_epochs: int = 2,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.components = components
        self.rate = rate
        self.batch = batch
        self.epochs = epochs
        self.more_epochs = more_epochs
        self.random_state = random_state

    def fit(self, inputs: Floats, run_seconds: Floats) -> Self:
        """Learn from n >= 1 completed jobs, from new weights."""
        with np.errstate(invalid="ignore"):
            known = np.isfinite(inputs)
            count = np.maximum(known.sum(axis=0), 1)
            filled = np.where(known, inputs, 0.0)
            self.centre_ = filled.sum(axis=0) / count
            spread = np.sqrt((np.where(known, inputs - self.centre_, 0.0) ** 2).sum(axis=0) / count)
        self.scale_ = np.where(spread > 1e-9, spread, 1.0)
        logs = np.log(run_seconds)
        self.target_ = np.array([logs.mean(), max(float(logs.std()), 1e-3)])
        generator = np.random.default_rng(self.random_state)
        sizes = [2 * inputs.shape[1], *self.hidden]
        self.parameters_ = initial_parameters(sizes, self.components, generator)
        self._moments: list[Parameters] = [[np.zeros_like(array) for array in self.parameters_] for _ in range(2)]
        self._steps = 0
        self._train(inputs, run_seconds, self.epochs, generator)
        return self

    def refit(self, inputs: Floats, run_seconds: Floats) -> Self:
        """Go on learning from a later window, with the scaling of the first."""
        generator = np.random.default_rng((self.random_state, self._steps))
        self._train(inputs, run_seconds, self.more_epochs, generator)
        return self

    @on_one_thread
    def predict(self, inputs: Floats) -> GaussianMixtures:
        """Return the mixtures of n jobs over log seconds."""
        _, log_weights, means, deviations = forward(self.parameters_, self._scaled(inputs))
        centre, scale = self.target_
        return GaussianMixtures(np.exp(log_weights), centre + scale * means, scale * deviations)

    def _scaled(self, inputs: Floats) -> Floats:
        known = np.isfinite(inputs)
        scaled = np.where(known, (np.where(known, inputs, 0.0) - self.centre_) / self.scale_, 0.0)
        return np.concatenate([np.clip(scaled, -FARTHEST, FARTHEST), known], axis=1, dtype=np.float64)

    @on_one_thread
    def _train(self, inputs: Floats, run_seconds: Floats, epochs: int, generator: np.random.Generator) -> None:
        rows = self._scaled(inputs)
        target = np.clip((np.log(run_seconds) - self.target_[0]) / self.target_[1], -FARTHEST, FARTHEST)
        for _ in range(epochs):
            order = generator.permutation(len(target))
            for begin in range(0, len(order), self.batch):
                chosen = order[begin : begin + self.batch]
                _, gradient = loss_and_gradient(self.parameters_, rows[chosen], target[chosen])
                self._step(gradient)

    def _step(self, gradient: Parameters) -> None:
        self._steps += 1
        length = np.sqrt(sum(float((array**2).sum()) for array in gradient))
        cut = min(1.0, LARGEST_GRADIENT / max(length, 1e-12))
        first, second = self._moments
        near, far = (1.0 - decay**self._steps for decay in DECAY)
        for index, array in enumerate(gradient):
            moved = cut * array
            first[index] += (1 - DECAY[0]) * (moved - first[index])
            second[index] += (1 - DECAY[1]) * (moved**2 - second[index])
            self.parameters_[index] -= self.rate * (first[index] / near) / (np.sqrt(second[index] / far) + 1e-8)
