"""Trains a path network with JAX and optax, the extra ``cotide[paths]``; the result is plain arrays.

Called by the lab. It takes random windows of random series and the mean squared error of the scaled path (eq. 7.27).
Adam has clipped gradients and a rate that falls from 0.01 to 0.001 (Table 7.3; its 0.1 made Adam diverge). Invariant:
windows lie wholly inside the history given; the same history, variant and seed give the same arrays on one machine.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import numpy as np

from cotide_core.errors import ModelError
from cotide_core.kernels.array_types import Floats, Narrow
from cotide_lab.predictors.usage_path.attention_network import Parameters, Variant, forward, shapes_of
from cotide_lab.predictors.usage_path.inputs import PAST_SLOTS, WINDOW, filled_forward, windows_of
from cotide_lab.predictors.usage_path.path_network import PathNetwork

BATCH: Final = 288
"""Windows a step (Naghshnejad 2019, Table 7.3)."""
LARGEST_GRADIENT: Final = 5.0
"""As above."""
RATES: Final = (1e-2, 1e-3)
STEPS: Final = 800
"""Chosen: the loss on the Azure series falls little after that."""
FARTHEST: Final = 8.0
"""Largest deviation of a target: without it one spike would move all weights (chosen)."""


def trained(history: Floats, variant: Variant, *, seed: int = 0, steps: int = STEPS) -> PathNetwork:
    """Return a network trained on the windows of a history.

    Parameters
    ----------
    history : (n, t) slots, nan where there is no record; t above a day and two hours.

    Raises
    ------
    ModelError
        When JAX is not installed, or the history too short.
    """
    if history.shape[1] < PAST_SLOTS + WINDOW:
        raise ModelError(f"a path network needs {PAST_SLOTS + WINDOW} slots to learn from, not {history.shape[1]}")
    jax, optax = _library("jax"), _library("optax")
    generator = np.random.default_rng(seed)
    parameters = initial_parameters(variant, generator)
    rate = optax.exponential_decay(RATES[0], steps, RATES[1] / RATES[0])
    optimiser = optax.chain(optax.clip_by_global_norm(LARGEST_GRADIENT), optax.adam(rate))

    def loss(now: Parameters, inputs: Any, target: Any) -> Any:
        return ((forward(jax.numpy, now, variant, inputs) - target) ** 2).mean()

    @jax.jit  # type: ignore[untyped-decorator]  # an optional library, found by name
    def step(now: Parameters, state: Any, inputs: Any, target: Any) -> tuple[Parameters, Any]:
        gradient = jax.grad(loss)(now, inputs, target)
        moves, state = optimiser.update(gradient, state, now)
        return optax.apply_updates(now, moves), state

    state = optimiser.init(parameters)
    filled = filled_forward(history)
    for _ in range(steps):
        parameters, state = step(parameters, state, *_batch(filled, generator))
    return PathNetwork(variant, {name: np.asarray(array, dtype=np.float32) for name, array in parameters.items()})


def initial_parameters(variant: Variant, generator: np.random.Generator) -> Parameters:
    """Return random arrays; biases are 0."""
    return {
        name: np.zeros(shape, np.float32)
        if name.endswith("bias")
        else generator.normal(0.0, 1.0 / np.sqrt(shape[0]), shape).astype(np.float32)
        for name, shape in shapes_of(variant).items()
    }


def _batch(filled: Floats, generator: np.random.Generator) -> tuple[Narrow, Narrow]:
    """Return the (b, 12, 9) inputs and (b, 12) scaled targets of random windows."""
    row = generator.integers(0, len(filled), BATCH)
    origin = generator.integers(PAST_SLOTS, filled.shape[1] - WINDOW + 1, BATCH)
    windows = windows_of(filled[row[:, None], origin[:, None] + np.arange(-PAST_SLOTS, 0)], origin)
    ahead = filled[row[:, None], origin[:, None] + np.arange(WINDOW)]
    target = np.clip((ahead - windows.mean) / windows.deviation, -FARTHEST, FARTHEST)
    return windows.inputs, target.astype(np.float32)


def _library(name: str) -> Any:
    """Import an optional library by name."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"training needs {name}, which is not installed: pip install 'cotide[paths]'") from error
