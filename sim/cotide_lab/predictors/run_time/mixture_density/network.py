"""A network with a mixture of Gaussians as its output, and the gradient of its negative log-likelihood.

Called by `density_network`. One or more ReLU layers (Naghshnejad 2019, eq. 6.4), then weights by softmax (6.5), linear
means (6.6) and positive deviations. Eq. 6.7 prints a linear layer, which may be negative; this one is a softplus. Pure
functions of a flat list of arrays. Invariant: deviations are at least `LEAST_DEVIATION`, so that no component gains
unlimited density around one run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats

LEAST_DEVIATION: Final = 0.02
"""Of the scaled log run time, some 5 % of a run (chosen)."""

Parameters = list[Floats]
"""Matrix and bias of each layer in turn; the last layer has 3 K outputs: weights, means, deviations."""


def initial_parameters(sizes: Sequence[int], components: int, generator: np.random.Generator) -> Parameters:
    """Return parameters of layers of these sizes, inputs first (He initialisation), with means spread evenly."""
    found: Parameters = []
    for inputs, outputs in zip(sizes, [*sizes[1:], 3 * components], strict=True):
        found += [generator.normal(0.0, np.sqrt(2.0 / inputs), (inputs, outputs)), np.zeros(outputs)]
    found[-2] *= 0.1
    found[-1][components : 2 * components] = np.linspace(-1.5, 1.5, components)
    return found


def forward(parameters: Parameters, inputs: Floats) -> tuple[list[Floats], Floats, Floats, Floats]:
    """Return each layer's inputs, then (n, K) log weights, means and deviations of the scaled target."""
    layers = [inputs]
    for index in range(0, len(parameters) - 2, 2):
        layers.append(np.maximum(layers[-1] @ parameters[index] + parameters[index + 1], 0.0))
    raw = layers[-1] @ parameters[-2] + parameters[-1]
    scores, means, spreads = np.split(raw, 3, axis=1)
    log_weights = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    return layers, log_weights, means, np.logaddexp(0.0, spreads) + LEAST_DEVIATION


def loss_and_gradient(parameters: Parameters, inputs: Floats, target: Floats) -> tuple[float, Parameters]:
    """Return the mean negative log-likelihood of (n,) targets, and its gradient by parameter."""
    layers, log_weights, means, deviations = forward(parameters, inputs)
    away = (target[:, None] - means) / deviations
    parts = log_weights - 0.5 * away**2 - np.log(deviations) - 0.5 * np.log(2 * np.pi)
    total = np.logaddexp.reduce(parts, axis=1)
    share = np.exp(parts - total[:, None])
    # d softplus(x) / dx = sigmoid(x) = 1 - exp(-softplus(x)).
    slope = -np.expm1(-(deviations - LEAST_DEVIATION))
    by_raw = np.concatenate(
        [np.exp(log_weights) - share, -share * away / deviations, share * (1.0 - away**2) / deviations * slope], axis=1
    ) / len(target)
    gradient: Parameters = []
    for index in range(len(parameters) - 2, -1, -2):
        gradient = [layers[index // 2].T @ by_raw, by_raw.sum(axis=0), *gradient]
        if index:
            by_raw = (by_raw @ parameters[index].T) * (layers[index // 2] > 0)
    return -float(total.mean()), gradient
