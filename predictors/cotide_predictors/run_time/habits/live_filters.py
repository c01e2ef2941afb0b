"""The Kalman filters (Naghshnejad 2019, sections 5.3.3 and 5.3.4) for pods that are unknown beforehand.

Called by `live_catalogue`. The owner takes the place of the user. The namespace's filters take the place of all users',
since one tenant's runs must not move another's forecasts. For the same reason the noise is not chosen but stays at its
first variances. The completion model's forecast replaces the request, and bounds nothing. Recursions are those of
`kalman`. Invariant: as of `live_forecaster`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.habits.keyed_states import (
    MOST_NAMESPACES_KEPT,
    MOST_OWNERS,
    KeyedStates,
    OwnersAndNamespaces,
)
from cotide_predictors.run_time.habits.likeness import Likeness
from cotide_predictors.run_time.habits.live_mixture import whole
from cotide_predictors.run_time.jobs import JobTable
from cotide_predictors.run_time.kalman import fixed_multiple, multi_layer
from cotide_predictors.run_time.kalman.fixed_multiple import FmkfState, mixtures_of
from cotide_predictors.run_time.kalman.forecasts import Kind
from cotide_predictors.run_time.kalman.multi_layer import MlkfState
from cotide_predictors.run_time.kalman.regressors import REGRESSORS, regressors_of
from cotide_predictors.run_time.sequential.forecaster import answers_of

HOUR_SECONDS: Final = 3600.0
LARGEST: Final = 1e4
"""Of any number of a filter (chosen: log seconds, and variances of tens)."""
_UNBOUNDED: Final = np.array([np.nan])
_ONE: Final = np.zeros(1, np.int64)
State = FmkfState | MlkfState


@dataclass(frozen=True, slots=True)
class FilterForecast:
    """One forecast, the filters that its outcome moves, and their inputs for the pod."""

    seconds: int
    upper: int
    alike: int
    owner: bytes
    namespace: bytes
    regressors: Floats


class LiveFilters(OwnersAndNamespaces):
    """Filters of owners and of namespaces.

    Parameters
    ----------
    kind : ``fmkf`` or ``mlkf``.
    """

    def __init__(
        self, kind: Kind, *, most_owners: int = MOST_OWNERS, most_namespaces: int = MOST_NAMESPACES_KEPT
    ) -> None:
        self._kind: Kind = kind
        width = len(_packed(self._begun(), 0))
        low, high = np.full(width, -LARGEST), np.full(width, LARGEST)
        owners = KeyedStates(low, high, most_owners)
        namespaces = KeyedStates(low, high, most_namespaces)
        super().__init__(owners, namespaces)

    def forecast(
        self, likeness: Likeness, reference_seconds: float, *, cores: float = 1.0, hour: int = 0
    ) -> FilterForecast:
        """Forecast a run: the points of the filters' mixture, of highest expected accuracy and its p90."""
        _, owner, _, namespace = likeness
        row = regressors_of(one_job(reference_seconds, cores, hour))
        state, known = self._filters(owner, namespace)
        out = np.empty((1, 6))
        self._walk(_ONE, row, np.zeros(1), state, out)
        if not known or not np.isfinite(out).all():
            seconds = whole(reference_seconds)
            return FilterForecast(seconds, whole(2.0 * seconds), 0, owner, namespace, row)
        found = answers_of(mixtures_of(out), _UNBOUNDED)
        seconds = whole(float(found.point[0]))
        return FilterForecast(seconds, max(seconds, whole(float(found.upper[0]))), 1, owner, namespace, row)

    def learn(self, made: FilterForecast, run_seconds: float) -> None:
        """Move the filters of the owner and of the namespace."""
        state, _ = self._filters(made.owner, made.namespace)
        logs = np.log([float(whole(run_seconds))])
        self._walk(~_ONE, made.regressors, logs, state, np.empty((1, 6)))
        self._owners.put(made.owner, _packed(state, 0))
        self._namespaces.put(made.namespace, _packed(state, 1))

    def _begun(self) -> State:
        of = fixed_multiple.state_of if self._kind == "fmkf" else multi_layer.state_of
        return of(1, len(REGRESSORS))

    def _filters(self, owner: bytes, namespace: bytes) -> tuple[State, bool]:
        """Return the filters of an owner and, in the place of all users', of its namespace; and whether any has
        learned.
        """
        state = self._begun()
        own, all_of_it = self._owners.get(owner), self._namespaces.get(namespace)
        if all_of_it is not None:
            _unpack(all_of_it, state, 1)
        if own is not None:
            _unpack(own, state, 0)
            state.known[0] = 1
        return state, own is not None or all_of_it is not None

    def _walk(self, events: np.ndarray, regressors: Floats, logs: Floats, state: State, out: Floats) -> None:
        if isinstance(state, FmkfState):
            noise = np.array(fixed_multiple.DEFAULT_NOISE)
            fixed_multiple.walk_fixed_multiple(events, _ONE, regressors, logs, noise, state, out)
        else:
            noise = np.array(multi_layer.DEFAULT_NOISE)
            multi_layer.walk_multi_layer(events, _ONE, regressors, logs, noise, state, out)


def one_job(requested_seconds: float, cores: float, hour: int) -> JobTable:
    """Return the table of one job that comes in the middle of an hour of the epoch."""
    unknown = np.zeros(1, np.int64)
    return JobTable(
        submit_seconds=np.array([(hour + 0.5) * HOUR_SECONDS]),
        requested_seconds=np.array([requested_seconds]),
        processors=np.array([max(cores, 1e-3)]),
        user=unknown,
        group=unknown,
        executable=unknown,
        queue=unknown,
    )


def _packed(state: State, part: int) -> Floats:
    """Return the filters of a row as one row of numbers, without the flags of known ones."""
    found: Floats = np.concatenate([array[part].ravel() for array in state[:-1]])
    return found


def _unpack(row: Floats, state: State, part: int) -> None:
    begin = 0
    for array in state[:-1]:
        size = array[part].size
        array[part] = row[begin : begin + size].reshape(array[part].shape)
        begin += size
