"""The Kalman filters' forecasts of a whole log, each made at its job's submission.

Called by the lab. The noise is chosen on completed jobs, by the accuracy of the point that is answered, with the rule
of the filters' baseline (`settings_choice`). Until the first choice the default variances hold. Invariant: a forecast
uses only completions before its submission in the event order, for the filters and for their noise.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_predictors.run_time.gaussian_mixtures import GaussianMixtures
from cotide_predictors.run_time.heuristics import within_request
from cotide_predictors.run_time.jobs import Ints, JobTable, RunLog, codes, event_order
from cotide_predictors.run_time.kalman import fixed_multiple, multi_layer
from cotide_predictors.run_time.kalman.fixed_multiple import FixedMultipleKalman, Noise, mixtures_of
from cotide_predictors.run_time.kalman.multi_layer import MultiLayerKalman
from cotide_predictors.run_time.kalman.regressors import regressors_of
from cotide_predictors.run_time.kalman.settings_choice import SettingsChoice
from cotide_predictors.run_time.kernels.tree_forecasts import edges

Kind = Literal["fmkf", "mlkf"]
Point = Literal["most-accurate", "likelier"]
"""``most-accurate`` : of highest expected accuracy under the mixture. ``likelier`` : the centre of the likelier class
alone, as the thesis prints MLKF (section 5.3.4).
"""
SETTINGS: Final[dict[Kind, tuple[Noise, ...]]] = {
    "fmkf": fixed_multiple.SETTINGS, "mlkf": multi_layer.SETTINGS,
}  # fmt: skip


def kalman_forecasts(
    log: RunLog, kind: Kind, *, keys: Ints | None = None, point: Point = "most-accurate"
) -> GaussianMixtures:
    """Return the mixtures of all jobs of a log.

    Parameters
    ----------
    kind : which filters.
    keys : (n,) numbers from 0; jobs of one number share a filter; default: the user's.
    point : the measure of the noise's choice.
    """
    out = np.empty((len(log), 6))
    events = event_order(log.jobs.submit_seconds, log.finish_seconds)
    Filters(kind, log.jobs, keys=keys, point=point).walk(events, np.log(log.run_seconds), out)
    return mixtures_of(out)


def points_of(found: GaussianMixtures, requested_seconds: Floats, point: Point) -> Floats:
    """Return (n,) seconds within the request."""
    if point == "likelier":
        return within_request(found.likelier_centre(), requested_seconds)
    return within_request(found.binned(edges(), requested_seconds).most_accurate(), requested_seconds)


class Filters:
    """The filters of a log's users, and the moments at which their noise is chosen.

    Parameters
    ----------
    jobs : n jobs. keys : (n,) numbers from 0; jobs of one number share a filter; default: the user's. point : that
        decides.
    """

    def __init__(self, kind: Kind, jobs: JobTable, *, keys: Ints | None = None, point: Point = "most-accurate") -> None:
        self._kind: Kind = kind
        self._keys = codes(jobs.user) if keys is None else keys
        self._regressors = regressors_of(jobs)
        self._requested = jobs.requested_seconds
        self._point: Point = point
        self._choice = SettingsChoice(SETTINGS[kind])
        self._filters = self._begun(self._choice.setting)

    def walk(self, events: Ints, logs: Floats, out: Floats) -> None:
        """Take events in order: write a submission's mixture to its row of ``out``, learn from a completion.

        Parameters
        ----------
        events : as in `event_order`, or any piece of it; pieces give the same result as the whole.
        logs : (n,) log seconds, read for completions only. out : (n, 6), see `FixedMultipleKalman.walk`.
        """
        while len(events):
            if self._choice.is_due():
                self._choice.choose(np.exp(logs), lambda noise, asked: self._trial(noise, asked, logs))
                self._filters.noise = self._choice.setting
            piece = self._choice.piece_of(events)
            self._filters.walk(piece, self._keys, self._regressors, logs, out)
            events = events[len(piece) :]

    def _trial(self, noise: Noise, events: Ints, logs: Floats) -> Floats:
        out = np.empty((len(self._keys), 6))
        self._begun(noise).walk(events, self._keys, self._regressors, logs, out)
        asked = events[events >= 0]
        return points_of(mixtures_of(out[asked]), self._requested[asked], self._point)

    def _begun(self, noise: Noise) -> FixedMultipleKalman | MultiLayerKalman:
        filters = FixedMultipleKalman(noise=noise) if self._kind == "fmkf" else MultiLayerKalman(noise=noise)
        return filters.begin(int(self._keys.max(initial=0)) + 1, self._regressors.shape[1])
