"""Writes the scores of the load forecasts into metrics.

Called by `live` after each slot, in the forecasters' thread. Everything is summed over the nodes: a label per node
would make ten series for each node. Invariant: totals count live slots only: a restart forecasts its history again, and
must not count it twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cotide_core.kernels.array_types import Floats
from cotide_core.state.cluster_state import ClusterState
from cotide_operator.host_load.contenders import Contest, Predictor
from cotide_operator.host_load.forecasters import NAMES, SlotScore
from cotide_operator.observability.metrics import Metrics
from cotide_operator.reclaimed.node_outlook import REASONS, NodeOutlook
from cotide_predictors.host_load.scoring import QUANTILES, LoadScores, TrustBand
from cotide_predictors.learning.peak_challenge import RESOURCES, PeakVerdict


def write_slot(metrics: Metrics, score: SlotScore, physical: Floats, level: str) -> None:
    """Count one live slot.

    Parameters
    ----------
    physical : (2, n) millicores and bytes of each row.
    level : name in `HostLoadForecast` of the quantile that plans use.
    """
    for index, name in enumerate(NAMES):
        known = score.known[index]
        measured, point = score.measured[index][known], score.forecasts[index].point[known]
        errors = metrics.forecast_error.labels(name)
        for error in np.abs(point - measured).tolist():
            errors.observe(error)
        metrics.forecast_underestimates.labels(name).inc(int((measured > point).sum()))
    for gauge, resource in ((metrics.online_cpu, 0), (metrics.online_memory, 1)):
        known = score.known[resource]
        if not known.any():
            continue  # an empty sum would look like idleness
        amounts = physical[resource][known]
        gauge.labels("measured").set(float((score.measured[resource][known] * amounts).sum()))
        gauge.labels("forecast").set(float((getattr(score.forecasts[resource], level)[known] * amounts).sum()))


def write_window(metrics: Metrics, scores: Sequence[LoadScores]) -> None:
    """Show the recent window: every scored slot of every node counts alike."""
    for name, score in zip(NAMES, scores, strict=True):
        scored = score.records > 0
        weights = score.records[scored]
        if not len(weights):
            continue
        for index, quantile in enumerate(QUANTILES):
            covered = float(np.average(score.coverage[scored, index], weights=weights))
            metrics.forecast_coverage.labels(name, f"{quantile:g}").set(covered)
        metrics.forecast_bias.labels(name).set(float(np.average(score.bias[scored], weights=weights)))


def write_ahead(metrics: Metrics, scores: Mapping[str, LoadScores]) -> None:
    """Show the scores of the longer horizons, once enough peaks are over."""
    for name, score in scores.items():
        scored = score.records > 0
        weights = score.records[scored]
        if weights.sum() < TrustBand().records_min:
            continue
        for index, quantile in enumerate(QUANTILES):
            covered = float(np.average(score.coverage[scored, index], weights=weights))
            metrics.forecast_coverage.labels(name, f"{quantile:g}").set(covered)


def write_contest(metrics: Metrics, contest: Contest, verdicts: Iterable[tuple[Predictor, PeakVerdict]]) -> None:
    """Show champion, challenger and their scores; count the judged challenges."""
    metrics.peak_predictors.clear()
    metrics.peak_loss.clear()
    for row, (role, name) in enumerate((("champion", contest.champion), ("challenger", contest.challenger))):
        if name is None:
            continue
        metrics.peak_predictors.labels(name, role).set(1)
        for column, resource in enumerate(RESOURCES):
            loss = float(contest.losses[row, column])
            if math.isfinite(loss):
                metrics.peak_loss.labels(name, resource).set(loss)
    for _, verdict in verdicts:
        metrics.peak_challenges.labels("promoted" if verdict.promoted else "kept").inc()


def write_outlooks(
    metrics: Metrics, outlooks: Iterable[NodeOutlook], reasons: Mapping[str, int], state: ClusterState
) -> None:
    """Show the offers, the number of nodes by reason, and the requests of online pods next to the capacity."""
    offered = [(outlook.offered_millicores, outlook.offered_memory_bytes) for outlook in outlooks]
    metrics.reclaimable_cpu.set(sum(cpu for cpu, _ in offered))
    metrics.reclaimable_memory.set(sum(memory for _, memory in offered))
    for reason in REASONS:
        metrics.node_outlooks.labels(reason).set(reasons.get(reason, 0))
    asked, physical = state.host_load.asked().sum(axis=1), state.host_load.physical().sum(axis=1)
    for resource, gauge in enumerate((metrics.online_cpu, metrics.online_memory)):
        gauge.labels("requested").set(float(asked[resource]))
        gauge.labels("allocatable").set(float(physical[resource]))
