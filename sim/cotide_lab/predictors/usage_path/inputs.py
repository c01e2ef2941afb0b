"""The nine inputs of each slot of the window (Naghshnejad 2019, Table 7.2), for many series at once.

Called by `path_network` and `training`. The inputs are the value, mean and deviation of the past day, hour of the day,
day of the week, autocorrelations at lags 1, 2 and 12, and the value a day before. The table's last row counts two
lagged values, a day and a week; its text has nine inputs and the day alone. This module has nine. Values are scaled by
mean and deviation of the past day, so that one network serves busy and idle series; forecasts are scaled back.
Invariant: the inputs at an origin are a function of the slots before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats, Integers

WINDOW: Final = 12
"""Slots in and slots out: an hour of five minutes each (Naghshnejad 2019, section 7.5.2)."""
INPUTS: Final = ("value", "mean", "deviation", "hour", "weekday", "lag_1", "lag_2", "lag_12", "day_before")
DAY_SLOTS: Final = 288
PAST_SLOTS: Final = DAY_SLOTS + WINDOW
"""Slots before an origin that its inputs cover."""
LEAST_DEVIATION: Final = 0.005
"""Deviation below which a series counts as constant, in shares of capacity or of the series' own scale (chosen)."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Inputs of b windows.

    Attributes
    ----------
    inputs : (b, 12, 9), of about one in size. mean, deviation : (b, 1) for scaling forecasts back.
    """

    inputs: np.ndarray[tuple[int, int, int], np.dtype[np.float32]]
    mean: Floats
    deviation: Floats


def windows_of(past: Floats, origin_slot: Integers) -> Windows:
    """Return the inputs of b series at their origins.

    Parameters
    ----------
    past : (b, `PAST_SLOTS`) the slots before each origin, none missing.
    origin_slot : (b,) number of the origin's slot, from the series' first midnight.
    """
    day = past[:, -DAY_SLOTS:]
    mean = day.mean(axis=1, keepdims=True)
    deviation = np.maximum(day.std(axis=1, keepdims=True), LEAST_DEVIATION)
    scaled = (day - mean) / deviation
    slots = origin_slot[:, None] + np.arange(-WINDOW, 0)
    shape = (len(past), WINDOW)
    columns = [
        scaled[:, -WINDOW:],
        np.broadcast_to(mean, shape),
        np.broadcast_to(np.log(deviation), shape) / 3.0,
        slots % DAY_SLOTS / DAY_SLOTS - 0.5,
        slots // DAY_SLOTS % 7 / 7.0 - 0.5,
        *(np.broadcast_to(_autocorrelation(scaled, lag), shape) for lag in (1, 2, WINDOW)),
        # The day before the slot of each step of the window.
        (past[:, : 2 * WINDOW][:, WINDOW:] - mean) / deviation,
    ]
    return Windows(np.stack(columns, axis=2).astype(np.float32), mean, deviation)


def _autocorrelation(scaled: Floats, lag: int) -> Floats:
    """Return (b, 1) the mean product of values ``lag`` apart, which are scaled already."""
    found: Floats = (scaled[:, lag:] * scaled[:, :-lag]).mean(axis=1, keepdims=True)
    return found


def filled_forward(history: Floats) -> Floats:
    """Return (n, t) with each missing slot filled: the last record before it, else the first known one, and 0 for a
    series without a record.
    """
    known = np.isfinite(history)
    latest = np.where(known, np.arange(history.shape[1]), 0)
    np.maximum.accumulate(latest, axis=1, out=latest)
    found = np.take_along_axis(history, latest, axis=1)
    first = np.take_along_axis(history, known.argmax(axis=1)[:, None], axis=1)
    return np.nan_to_num(np.where(np.isfinite(found), found, first), nan=0.0)
