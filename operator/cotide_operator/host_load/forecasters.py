"""The four forecasters of every node, their scores, and the records for fits.

Called by `live`, in a thread, one call at a time: ten thousand nodes take some 100 ms a slot, which is too long for the
event loop. The configured predictor forecasts the usage of online pods, with a challenger in shadow where one is
configured (`contenders`). The load of batch and gratis pods follows from placements: its forecast is the present load
plus its mean rise. Cpu and memory each have a pool of their own. Loads are shares of the node. Invariants: a forecast
is scored once, against its own slot, before that slot is learnt from. A row without any record has no forecast and no
score. History that is learnt after a restart counts in no total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotide_core.forecasts import HostLoadForecast
from cotide_core.kernels.array_types import Floats
from cotide_operator.host_load.contenders import DEFAULT, Contenders, Contest, Predictor
from cotide_predictors.host_load.arma import ArmaParameters
from cotide_predictors.host_load.forecaster import ALLOCATED, HostLoadModel
from cotide_predictors.host_load.peak_rule import PeakRule
from cotide_predictors.host_load.scoring import LoadScorer, LoadScores, Trust
from cotide_predictors.host_load.slot_ring import DAY_SLOTS, Records, SlotRing
from cotide_predictors.learning.peak_challenge import PeakVerdict

NAMES: Final = ("online-cpu", "online-memory", "batch-cpu", "batch-memory")
ONLINE: Final = slice(0, 2)
BATCH: Final = slice(2, 4)
KEPT_SLOTS: Final = 576
"""Records kept of each online forecaster for its fits: two days of five minutes in 2.3 KiB (chosen)."""
GAP_SLOTS: Final = 3
"""Slots without a record after which a node has no forecast (chosen: a quarter of an hour)."""
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class SlotScore:
    """Scores of the forecasts of one slot.

    Attributes
    ----------
    measured : (4, n) shares. known : (4, n) whether there was a forecast and a record. forecasts : of each forecaster.
    """

    measured: Floats
    known: Flags
    forecasts: tuple[HostLoadForecast, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Forecasts of the open slot and of longer horizons.

    Attributes
    ----------
    slot : of each forecaster.
    ahead : of cpu and memory of online pods, by the number of slots that their peak covers, the nearest first.
    """

    slot: tuple[HostLoadForecast, ...]
    ahead: tuple[tuple[int, HostLoadForecast, HostLoadForecast], ...] = ()


class Forecasters:
    """Forecasters of n rows.

    Parameters
    ----------
    rows : number of nodes that have room.
    predictor, challenger : of the usage of online pods; a challenger forecasts in shadow.
    quantile : 0.5, 0.9 or 0.99: used for plans, and for the judgement of a challenge.
    ahead_slots : longer horizons of online pods; the mixture forecasts them while it is champion.
    day_slots : slots of a day; None: no memory of days.
    """

    def __init__(
        self,
        rows: int,
        *,
        predictor: Predictor = DEFAULT,
        challenger: Predictor | None = None,
        quantile: float = 0.9,
        ahead_slots: tuple[int, ...] = (),
        day_slots: int | None = DAY_SLOTS,
    ) -> None:
        self.rows = rows
        self._online = Contenders(rows, predictor, challenger, quantile, ahead_slots, day_slots)
        self._batch_models = [HostLoadModel(rows, centre=ALLOCATED, day_slots=day_slots) for _ in NAMES[BATCH]]
        self._batch_scorers = [LoadScorer(rows) for _ in NAMES[BATCH]]
        self._records = np.zeros((4, rows), np.intp)
        self._newest = np.zeros(rows, np.intp)
        """Slot of the newest record of online pods, as `_slots` counts."""
        self._kept = SlotRing(KEPT_SLOTS)
        self._slots = 0
        self._tenants = np.zeros(rows, np.intp)
        """Rises with every reset of a row: a fit that began before the reset does not apply to the new node of the
        row."""

    def grow(self, rows: int) -> None:
        """Make room for more nodes."""
        more = rows - self.rows
        if more <= 0:
            return
        self._online.grow(rows)
        for index, (model, scorer) in enumerate(zip(self._batch_models, self._batch_scorers, strict=True)):
            self._batch_models[index], self._batch_scorers[index] = model.grown(rows), scorer.grown(rows)
        self._records = np.pad(self._records, ((0, 0), (0, more)))
        self._newest = np.pad(self._newest, (0, more))
        self._kept = self._kept.grown(rows)
        self._tenants = np.pad(self._tenants, (0, more))
        self.rows = rows

    def reset(self, rows: Sequence[int]) -> None:
        """Forget the nodes of these rows."""
        if not rows:
            return
        chosen = np.asarray(rows, np.intp)
        self._online.reset(chosen)
        for model, scorer in zip(self._batch_models, self._batch_scorers, strict=True):
            model.reset(chosen.tolist())
            scorer.reset(chosen)
        self._records[:, chosen] = 0
        self._kept.forget(chosen)
        self._tenants[chosen] += 1

    def record(self, values: Floats, *, batch: bool = True) -> SlotScore:
        """Score the forecasts of a slot, then learn from it.

        Parameters
        ----------
        values : (4, n) highest shares in the slot, nan where unknown.
        batch : False: the load of batch pods in this slot is unknown.
        """
        capped = np.minimum(values, 1.0)  # the models' ceiling: a higher load also counts as full
        forecasts = tuple(model.forecast() for model in self._in_force())
        known = np.isfinite(capped) & (self._records > 0)
        taught = slice(0, 4) if batch else ONLINE
        known[taught.stop :] = False
        self._online.record(capped[ONLINE], known[ONLINE])
        if batch:
            parts = zip(self._batch_models, self._batch_scorers, forecasts[BATCH], range(2, 4), strict=True)
            for model, scorer, forecast, resource in parts:
                scorer.score(forecast, np.where(known[resource], capped[resource], np.nan))
                model.record(capped[resource])
        self._records[taught] += np.isfinite(capped[taught])
        self._kept.add(capped[ONLINE])
        self._slots += 1
        self._newest[np.logical_and.reduce(np.isfinite(capped[ONLINE]))] = self._slots
        return SlotScore(capped, known, forecasts)

    def revise(self, rows: NDArray[np.intp], held: Floats) -> None:
        """Set the present load of batch and gratis pods (2, k) as the start of the slot's forecast."""
        known = np.isfinite(held).all(axis=0) & (self._records[BATCH, rows] > 0).all(axis=0)
        if known.any():
            for model, values in zip(self._batch_models, np.minimum(held[:, known], 1.0), strict=True):
                model.revise(rows[known].tolist(), values)

    def forecasts(self) -> tuple[tuple[HostLoadForecast, ...], Flags]:
        """Return each forecast of the open slot, and (n,) whether a node has enough records for it.

        After a long gap the node waits for its first new record: a load of hours ago is no forecast.
        """
        known: Flags = np.logical_and.reduce(self._records[ONLINE] > 0)
        known &= self._slots - self._newest < GAP_SLOTS
        if not known.any():  # as at the start: unusable forecasts need not wait for loading kernels
            nothing = HostLoadForecast(*(np.full(self.rows, np.nan) for _ in range(4)))
            return (nothing,) * len(NAMES), known
        return tuple(model.forecast() for model in self._in_force()), known

    def made(self) -> tuple[Made, Flags]:
        """Return the same with the forecasts beyond the open slot."""
        slot, known = self.forecasts()
        return Made(slot, self._online.ahead() if known.any() else ()), known

    def fallen_back(self) -> Flags:
        """Return (n,) whether the forecasts of a node's online pods are unusable for now."""
        found: Flags = np.any([scorer.trust == Trust.FALLEN_BACK for scorer in self._online.scorers], axis=0)
        return found

    def scores(self) -> tuple[LoadScores, ...]:
        """Return the scores of each forecaster over its recent slots."""
        return tuple(scorer.scores() for scorer in self._scorers())

    def ahead_scores(self) -> dict[str, LoadScores]:
        """Return the scores of the longer horizons, by a name such as ``online-cpu-36-slots``."""
        return {f"{NAMES[index]}-{slots}-slots": score for (index, slots), score in self._online.ahead_scores().items()}

    def trusts(self) -> Flags:
        """Return (4, n) whether each forecaster is trusted."""
        return np.array([scorer.trust == Trust.TRUSTED for scorer in self._scorers()])

    def histories(self) -> tuple[Records, NDArray[np.intp]]:
        """Return (2, n, m) kept records of the online forecasters, oldest first, and the tenant of each row. They are
        in single precision, as stored: those of ten thousand nodes are 46 MB, and most callers want a part.
        """
        if not self._slots:
            return np.empty((2, self.rows, 0), np.float32), self._tenants.copy()
        return self._kept.oldest_first(), self._tenants.copy()

    def refit(self, index: int, fitted: ArmaParameters, rows: NDArray[np.intp], tenants: NDArray[np.intp]) -> None:
        """Apply fitted parameters of some rows; a row that has another node by now keeps the defaults.

        Parameters
        ----------
        index : of an online forecaster. fitted : of ``rows``. tenants : the tenant of each row when the records were
            taken.
        """
        stays = self._tenants[rows] == tenants[rows]
        chosen = rows[stays]
        default = ArmaParameters.default(self.rows)
        ar = np.zeros((self.rows, fitted.ar.shape[1]))
        ma = np.zeros((self.rows, fitted.ma.shape[1]))
        ar[:, 0], ma[:, 0] = default.ar[:, 0], default.ma[:, 0]
        ar[chosen], ma[chosen] = fitted.ar[stays], fitted.ma[stays]
        self._online.refit(index, ArmaParameters(ar, ma, default.mean))

    def contest(self) -> Contest:
        """Return the standing of champion and challenger."""
        return self._online.contest()

    def take_verdicts(self) -> list[tuple[Predictor, PeakVerdict]]:
        """Return the challengers that were judged since the last call, with the verdicts."""
        return self._online.take_verdicts()

    def _in_force(self) -> list[HostLoadModel | PeakRule]:
        """Return the models that forecast, in the order of `NAMES`."""
        return [*self._online.models, *self._batch_models]

    def _scorers(self) -> list[LoadScorer]:
        return [*self._online.scorers, *self._batch_scorers]
