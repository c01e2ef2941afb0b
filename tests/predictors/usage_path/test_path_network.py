"""The path network: numpy gives what JAX gave, arrays survive a file, training learns, and no JAX is needed to run."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from cotide_core.errors import ModelError
from cotide_lab.predictors.usage_path.attention_network import HIDDEN, VARIANTS, Variant, forward, shapes_of
from cotide_lab.predictors.usage_path.inputs import PAST_SLOTS, WINDOW, filled_forward, windows_of
from cotide_lab.predictors.usage_path.path_network import PathNetwork
from cotide_lab.predictors.usage_path.training import initial_parameters, trained


def network(variant: Variant = "lstm-inp-tp-bias", seed: int = 0) -> PathNetwork:
    found = PathNetwork(variant, initial_parameters(variant, np.random.default_rng(seed)))
    for name, array in found.parameters.items():  # biases, which start at 0, take part too
        found.parameters[name] = (array + 0.1 if name.endswith("bias") else array).astype(np.float32)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_numpy_gives_what_jax_gives(variant: Variant) -> None:
    jax = pytest.importorskip("jax", reason="the extra cotide[paths] is not installed")
    inputs = np.random.default_rng(1).normal(size=(40, 12, 9)).astype(np.float32)
    parameters = network(variant).parameters
    by_jax = np.asarray(forward(jax.numpy, parameters, variant, inputs))
    np.testing.assert_allclose(forward(np, parameters, variant, inputs), by_jax, atol=1e-5)


def test_a_network_comes_back_from_its_bytes() -> None:
    history = np.random.default_rng(2).random((3, 400))
    one = network()
    np.testing.assert_array_equal(PathNetwork.from_bytes(one.to_bytes()).forecast(history), one.forecast(history))


@pytest.mark.parametrize("broken", ["cut", "variant", "array", "nan"])
def test_a_file_of_something_else_is_refused(broken: str) -> None:
    one = network("ann")
    if broken == "variant":
        one = PathNetwork("lstm", one.parameters)
    elif broken == "array":
        one.parameters["out"] = one.parameters["out"][:, 1:]
    elif broken == "nan":
        one.parameters["out"] = np.full_like(one.parameters["out"], np.nan)
    data = one.to_bytes()
    with pytest.raises(ModelError):
        PathNetwork.from_bytes(data[:-400] if broken == "cut" else data)


def test_training_learns_a_daily_wave() -> None:
    pytest.importorskip("jax", reason="the extra cotide[paths] is not installed")
    pytest.importorskip("optax", reason="the extra cotide[paths] is not installed")
    slots = np.arange(1200)
    wave = 0.5 + 0.3 * np.sin(2 * np.pi * slots / 288 + np.arange(5)[:, None])
    found = trained(wave[:, :900], "ann", steps=250).forecast(wave[:, :1000])
    last = np.abs(wave[:, 999:1000] - wave[:, 1000:1012]).mean()
    assert np.abs(found - wave[:, 1000:1012]).mean() < 0.4 * last


def test_training_needs_a_day_of_slots() -> None:
    with pytest.raises(ModelError, match="needs 312 slots"):
        trained(np.zeros((2, 311)), "ann")


def test_a_forecast_imports_no_jax() -> None:
    program = (
        "import sys, numpy as np; from cotide_lab.predictors.usage_path.path_network import PathNetwork;"
        "from cotide_lab.predictors.usage_path.attention_network import shapes_of;"
        "arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes_of('lstm-inp-tp').items()};"
        "PathNetwork('lstm-inp-tp', arrays).forecast(np.ones((2, 50)));"
        "sys.exit(int('jax' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_nothing_known_says_as_it_is() -> None:
    """With all parameters 0 the decoder adds nothing to the last value."""
    zero = PathNetwork("lstm", {name: np.zeros_like(array) for name, array in network("lstm").parameters.items()})
    history = np.random.default_rng(3).random((4, 600))
    np.testing.assert_allclose(zero.forecast(history), np.repeat(history[:, -1:], 12, axis=1), atol=1e-6)


def test_the_day_before_is_that_of_the_slot_to_come() -> None:
    """Slot t has value t: the window's last place answers for slot origin + 11, a day before is origin + 11 - 288."""
    past = np.arange(PAST_SLOTS, dtype=np.float64)[None, :]
    windows = windows_of(past, np.array([PAST_SLOTS]))
    back = windows.mean + windows.deviation * windows.inputs[:, :, 8]
    expected = PAST_SLOTS + np.arange(WINDOW) - 288
    np.testing.assert_allclose(back[0], expected, rtol=1e-4)


def test_a_missing_slot_is_as_the_one_before() -> None:
    history = np.array([[np.nan, 1.0, np.nan, 3.0], [np.nan] * 4])
    np.testing.assert_array_equal(filled_forward(history), [[1.0, 1.0, 1.0, 3.0], [0.0] * 4])


def attention_by_hand(ordered: list[float], close: list[float]) -> list[float]:
    """Return 12 outputs of a network of one hidden unit that counts, with all but a few weights 0.

    The encoder's state at step i is h_i: the cell gains half of tanh(x_i) and forgets half, and half of its tanh shows.
    The decoder's state stays 0, so that the next output is the last one plus the context, and the context is the
    mean of h weighted by the softmax of tanh(W1 psi + W2 phi) (eqs. 7.17, 7.18 and 7.24).
    """
    window = [0.5, -1.0, 2.0, 0.0, 1.5, -0.5, 1.0, 0.3, -2.0, 0.7, 1.2, -0.4]
    cell, states = 0.0, []
    for value in window:
        cell = 0.5 * cell + 0.5 * math.tanh(value)
        states.append(0.5 * math.tanh(cell))
    apart = [sum(abs(one - other) for other in window) / 12 for one in window]
    said = [window[-1]]
    for step in range(12):
        own = sum(abs(one - said[-1]) for one in said) / len(said)
        psi = [[math.log(1 + step), math.log(1 + source), math.log(13)] for source in range(12)]
        phi = [[own, apart[source], step / 12] for source in range(12)]
        inside = [
            sum(w * x for w, x in zip([*ordered, *close], [*psi[source], *phi[source]], strict=True))
            for source in range(12)
        ]
        grown = [math.exp(math.tanh(one)) for one in inside]
        said.append(said[-1] + sum(one * h for one, h in zip(grown, states, strict=True)) / sum(grown))
    return said[1:]


def attention_in_code(ordered: list[float], close: list[float]) -> np.ndarray:
    """Return the same of the real network."""
    parameters = {name: np.zeros(shape) for name, shape in shapes_of("lstm-tp-bias").items()}
    parameters["encoder"][0, 3 * HIDDEN] = 1.0  # the first unit's candidate is tanh of the value
    parameters["out"][HIDDEN, 0] = 1.0  # the output moves by the context's first unit
    parameters["time_score"][0] = 1.0
    parameters["place_bias"][:, 0] = ordered
    parameters["consistency_bias"][:, 0] = close
    inputs = np.zeros((1, 12, 9))
    inputs[0, :, 0] = [0.5, -1.0, 2.0, 0.0, 1.5, -0.5, 1.0, 0.3, -2.0, 0.7, 1.2, -0.4]
    return forward(np, parameters, "lstm-tp-bias", inputs)[0]  # type: ignore[arg-type,no-any-return]  # by its parts


@pytest.mark.parametrize("weight", range(6))
def test_each_weight_of_the_bias_changes_the_output_as_by_hand(weight: int) -> None:
    weights = [0.2, -0.1, 0.3, 0.1, 0.4, -0.2]
    before = attention_in_code(weights[:3], weights[3:])
    np.testing.assert_allclose(before, attention_by_hand(weights[:3], weights[3:]), rtol=1e-12)
    weights[weight] += 0.5
    after = attention_in_code(weights[:3], weights[3:])
    np.testing.assert_allclose(after, attention_by_hand(weights[:3], weights[3:]), rtol=1e-12)
    assert np.abs(after - before).max() > 1e-4
