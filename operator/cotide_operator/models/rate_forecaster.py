"""Forecasts of request rates in the live operator: passed to the engine once per slot, and scored.

The loop calls it before each call of the engine; `cotide_predictors.request_rates` makes the forecasts, as in virtual
time. Invariants: forecasts depend on the events of the loop alone, so that a ledger replays them. Without a configured
quantile the engine gets none, and the forecasts are still scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from cotide_core.events import Event
from cotide_core.forecasts import CompletionForecaster
from cotide_core.instructions import Instruction
from cotide_operator.observability.metrics import Metrics

HORIZONS_SLOTS: Final = (1, 3, 12, 36)
"""The coming slot, and those of the host-load forecasts: with slots of five minutes up to three hours."""
SHADOW_LEVEL: Final = 0.5
"""The quantile that is scored when the engine gets none (chosen)."""
LEAST_PEAKS: Final = 48.0
"""Peaks that a score needs before it is shown (chosen: four hours of one service)."""


class RateForecaster:
    """Follows the rates of one engine's services.

    Parameters
    ----------
    slot_seconds : of the operator's clock. quantile : of the forecasts for the engine; None passes nothing. now : the
        operator's clock.
    """

    def __init__(self, slot_seconds: float, quantile: float | None, metrics: Metrics, now: Callable[[], float]) -> None:
        from cotide_predictors.request_rates.service_rates import ServiceRates  # loads kernels

        self._rates = ServiceRates(slot_seconds, HORIZONS_SLOTS, quantile)
        self._level = SHADOW_LEVEL if quantile is None else quantile
        self._slot_seconds = slot_seconds
        self._metrics = metrics
        self._now = now
        self._shown: int | None = None

    def ahead(self, events: Sequence[Event], forecaster: CompletionForecaster) -> list[Event]:
        """Return the events that follow the events of a cycle."""
        del forecaster
        now = self._now()
        forecast = self._rates.take(events, now)
        slot = int(now // self._slot_seconds)
        if slot != self._shown:
            self._shown = slot
            self._show()
        return [] if forecast is None else [forecast]

    def decided(self, instructions: Sequence[Instruction]) -> None:
        """Ignore the instructions of a cycle."""

    def begin_anew(self) -> None:
        """Do nothing: a new engine gets forecasts at the end of the slot, and uses measured rates until then."""

    def _show(self) -> None:
        for slots, score in zip(self._rates.horizons_slots, self._rates.scores(self._level), strict=True):
            if score.peaks < LEAST_PEAKS:
                continue
            losses, horizon = self._metrics.rate_loss, f"{slots}-slots"
            losses.labels("forecast", horizon).set(score.loss)
            losses.labels("last-value", horizon).set(score.last_value_loss)
            name = f"request-rate-{slots}-slots"
            self._metrics.forecast_coverage.labels(name, f"{self._level:g}").set(score.coverage)
        trusted = self._rates.trusted_share(self._level)
        if math.isfinite(trusted):
            self._metrics.rate_trusted.set(trusted)
