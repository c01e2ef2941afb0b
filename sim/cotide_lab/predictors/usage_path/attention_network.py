"""The encoder-decoder LSTM with input attention, temporal attention and consistency bias, and the plain network.

Called by `path_network` with numpy and by `training` with JAX: the same code over either library's arrays, so training
and use agree. Naghshnejad 2019, eqs. 7.3-7.24 after Qin and others (2017):

- input attention (7.12-7.14): each step's inputs are weighted by how well each series of the window answers the state;
- temporal attention (7.16-7.18): the decoder reads a weighted sum of all encoder states, else the last one alone;
- temporal and consistency bias (7.22-7.24): weights by unit of psi and phi, added inside the tanh, as in Cohn and
  others (2016), the text's model. Printed is a sum outside the tanh. There each term that is equal for all source
  positions leaves the softmax unchanged: four of the six weights would have no effect.

Table 7.3's four layers of 12, 10, 10 and 1 nodes leave open which are recurrent; one layer of `HIDDEN` each replaces
encoder and decoder. Invariant: pure; a variant reads only parameters that it has.
"""

from __future__ import annotations

from math import log1p
from typing import Any, Final, Literal

from cotide_lab.predictors.usage_path.inputs import INPUTS, WINDOW

Variant = Literal["ann", "lstm", "lstm-inp", "lstm-tp", "lstm-inp-tp", "lstm-inp-tp-bias"]
VARIANTS: Final[tuple[Variant, ...]] = ("ann", "lstm", "lstm-inp", "lstm-tp", "lstm-inp-tp", "lstm-inp-tp-bias")
"""The rows of Table 7.4, in its order, and temporal attention alone, which its text names and its table leaves out."""
HIDDEN: Final = 32
"""Units of encoder, decoder and the plain network's layer (chosen)."""
SCORED: Final = 16
"""Units of an attention's score (chosen)."""

Parameters = dict[str, Any]


def shapes_of(variant: Variant) -> dict[str, tuple[int, ...]]:
    """Return each parameter's shape by name; names that end in ``bias`` start at 0."""
    wide = len(INPUTS)
    if variant == "ann":
        return {
            "in": (WINDOW * wide, HIDDEN), "in_bias": (HIDDEN,),
            "between": (HIDDEN, HIDDEN), "between_bias": (HIDDEN,),
            "out": (HIDDEN, WINDOW), "out_bias": (WINDOW,),
        }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "encoder": (wide + HIDDEN, 4 * HIDDEN), "encoder_bias": (4 * HIDDEN,),
        "decoder": (1 + HIDDEN, 4 * HIDDEN), "decoder_bias": (4 * HIDDEN,),
        "context": (1 + HIDDEN, 1), "context_bias": (1,),
        "out": (2 * HIDDEN, 1), "out_bias": (1,),
    }  # fmt: skip
    if "inp" in variant:
        shapes |= {"input_state": (2 * HIDDEN, SCORED), "input_series": (WINDOW, SCORED), "input_score": (SCORED,)}
    if "tp" in variant:
        shapes |= {"time_state": (2 * HIDDEN, SCORED), "time_encoded": (HIDDEN, SCORED), "time_score": (SCORED,)}
    if "bias" in variant:
        shapes |= {"place_bias": (3, SCORED), "consistency_bias": (3, SCORED)}
    return shapes


def forward(xp: Any, parameters: Parameters, variant: Variant, inputs: Any) -> Any:
    """Return (b, 12) the next slots, scaled as the inputs' values are.

    Parameters
    ----------
    xp : numpy or jax.numpy. inputs : (b, 12, 9).
    """
    if variant == "ann":
        hidden = xp.maximum(inputs.reshape(len(inputs), -1) @ parameters["in"] + parameters["in_bias"], 0.0)
        hidden = xp.maximum(hidden @ parameters["between"] + parameters["between_bias"], 0.0)
        return hidden @ parameters["out"] + parameters["out_bias"]
    encoded, hidden, cell = _encoded(xp, parameters, "inp" in variant, inputs)
    return _decoded(xp, parameters, variant, inputs[:, :, 0], encoded, hidden, cell)


def _encoded(xp: Any, parameters: Parameters, attends: bool, inputs: Any) -> tuple[Any, Any, Any]:
    """Return the (b, 12, h) encoder states, and the last state and cell."""
    hidden = xp.zeros((len(inputs), HIDDEN), dtype=inputs.dtype)
    cell, states = hidden, []
    # U_e x^k of eq. 7.12 is the same at every step.
    series = xp.swapaxes(inputs, 1, 2) @ parameters["input_series"] if attends else None
    for step in range(WINDOW):
        read = inputs[:, step]
        if attends:
            state = xp.concatenate([hidden, cell], axis=1) @ parameters["input_state"]
            read = read * _softmax(xp, xp.tanh(state[:, None, :] + series) @ parameters["input_score"])
        hidden, cell = _step(xp, parameters["encoder"], parameters["encoder_bias"], read, hidden, cell)
        states.append(hidden)
    return xp.stack(states, axis=1), hidden, cell


def _decoded(
    xp: Any, parameters: Parameters, variant: Variant, values: Any, encoded: Any, hidden: Any, cell: Any
) -> Any:
    """Return (b, 12) outputs; each step reads the value before it, its own from the second step on."""
    attends, biased = "tp" in variant, "bias" in variant
    keys = encoded @ parameters["time_encoded"] if attends else None
    # The distance of each value of the window from the others: the source's half of eq. 7.23.
    apart = xp.abs(values[:, :, None] - values[:, None, :]).mean(axis=2) if biased else None
    context, outputs = encoded[:, -1], [values[:, -1:]]
    for step in range(WINDOW):
        if attends:
            state = xp.concatenate([hidden, cell], axis=1) @ parameters["time_state"]
            answered = state[:, None, :] + keys
            if biased:
                answered = answered + _bias(xp, parameters, step, outputs, apart)
            scores = xp.tanh(answered) @ parameters["time_score"]
            context = (_softmax(xp, scores)[:, :, None] * encoded).sum(axis=1)
        before = xp.concatenate([outputs[-1], context], axis=1)
        read = before @ parameters["context"] + parameters["context_bias"]
        hidden, cell = _step(xp, parameters["decoder"], parameters["decoder_bias"], read, hidden, cell)
        moved = xp.concatenate([hidden, context], axis=1) @ parameters["out"] + parameters["out_bias"]
        # The output is a change of the value before: an untrained network repeats that value.
        outputs.append(outputs[-1] + moved)
    return xp.concatenate(outputs[1:], axis=1)


def _bias(xp: Any, parameters: Parameters, step: int, outputs: list[Any], apart: Any) -> Any:
    """Return (b, 12, u) addends of eq. 7.24 to each unit of the score: W1 psi (temporal) and W2 phi (consistency).

    Parameters
    ----------
    step : of the decoder, from 0. outputs : (b, 1) each, the last known value and the steps before. apart : (b, 12).
    """
    sources = xp.log1p(xp.arange(WINDOW, dtype=apart.dtype))
    ordered = parameters["place_bias"]
    temporal = log1p(step) * ordered[0] + sources[:, None] * ordered[1] + log1p(WINDOW) * ordered[2]
    target = xp.concatenate(outputs, axis=1)
    own = xp.abs(target - target[:, -1:]).mean(axis=1)
    close = parameters["consistency_bias"]
    consistency = own[:, None, None] * close[0] + apart[:, :, None] * close[1] + (step / WINDOW) * close[2]
    return temporal[None, :, :] + consistency


def _step(xp: Any, weights: Any, bias: Any, read: Any, hidden: Any, cell: Any) -> tuple[Any, Any]:
    """Return an LSTM's next state and cell (eqs. 7.3-7.7)."""
    gates = xp.concatenate([read, hidden], axis=1) @ weights + bias
    # sigmoid(x) = (1 + tanh(x / 2)) / 2, which overflows nowhere.
    opened = 0.5 + 0.5 * xp.tanh(0.5 * gates[:, : 3 * HIDDEN])
    forget, take, show = (opened[:, at * HIDDEN : (at + 1) * HIDDEN] for at in range(3))
    cell = forget * cell + take * xp.tanh(gates[:, 3 * HIDDEN :])
    return show * xp.tanh(cell), cell


def _softmax(xp: Any, scores: Any) -> Any:
    grown = xp.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)
