"""Demand, prices and delays from a Prometheus.

Called by `cotide place`, before a turn is planned. Current delays hold for all future steps. Demand, and prices with
``priceHistoryDays``, are queried as a history, which is the input of forecasts. Invariant: an answer that is missing,
not a number or more than one ends the turn with a sentence that names the query, and nothing is set. Only a history of
prices falls back to the last good one, or to a file.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import aiohttp
import numpy as np
from numpy.typing import NDArray

from cotide_core.errors import CotideError, InputError
from cotide_core.provisioning.placement_model import LARGEST
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.provisioning.placing import PlaceSettings, ServiceSettings
from cotide_operator.usage.prometheus_client import Limits, PrometheusClient
from cotide_predictors.capacity.network_demand import DemandScore, forecast

Floats = NDArray[np.float64]

TIMEOUT_SECONDS: Final = 10.0
"""For one query; chosen: a person waits at a terminal."""
LIMITS: Final = Limits(bytes=1 << 20, series=100)
RANGE_LIMITS: Final = Limits(bytes=1 << 22, series=10)
"""Of a history; chosen: ten series of `HISTORY_STEPS` samples of 100 bytes."""
AT_ONCE: Final = 10
"""Histories that are queried at one time; chosen, as a dashboard does."""
LONGEST_DELAY_SECONDS: Final = 3600.0
"""Round trip; more is an error of units."""
HISTORY_SECONDS: Final = 15 * 86_400.0
"""Of demand: chosen, so that the regression has a week of pairs of a value and the value one week before."""
HISTORY_STEPS: Final = 3000
"""At most; chosen: two days of minutes. A Prometheus refuses more than 11,000."""
LONGEST_GAP_SECONDS: Final = 86_400.0
"""A history begins after the last gap that is longer (chosen): the demand before an absence is no guide."""
KNOWN_SHARE: Final = 0.5
"""Share of the steps of a history that need a value; below it nothing is learned (chosen)."""


class Span(NamedTuple):
    """Steps of a history: their number ``steps``, and the end ``first`` of the first one, in epoch seconds."""

    first: float
    step_seconds: float
    steps: int

    @classmethod
    def until(cls, now_seconds: float, step_seconds: float, seconds: float = HISTORY_SECONDS) -> Span:
        """Return the steps that have ended; they end at whole multiples of a step, so that each turn sees the same."""
        count = max(1, min(HISTORY_STEPS, int(seconds / step_seconds)))
        last = math.floor(now_seconds / step_seconds) * step_seconds
        return cls(last - (count - 1) * step_seconds, step_seconds, count)

    @property
    def last(self) -> float:
        """Return when the last step ends."""
        return self.first + (self.steps - 1) * self.step_seconds


async def queried(settings: PlaceSettings) -> tuple[PlaceSettings, dict[str, float]]:
    """Return the settings with the queried delays, and the prices by centre.

    Raises
    ------
    InputError
        When an answer is invalid.
    """
    questions = {
        **{
            (centre.name, "price"): centre.price_query
            for centre in settings.centres
            if centre.price_query and not settings.price_history_days
        },
        **{
            (centre.name, f"delay to {network}"): query
            for centre in settings.centres
            for network, query in centre.delay_queries.items()
        },
    }
    if not questions:
        return settings, {}
    assert settings.prometheus is not None  # noqa: S101 - for mypy: the settings ask for it
    answers = await _ask(settings.prometheus, questions)
    centres = []
    for centre in settings.centres:
        delays = {network: answers[centre.name, f"delay to {network}"] for network in centre.delay_queries}
        for network, seconds in delays.items():
            if not 0.0 <= seconds <= LONGEST_DELAY_SECONDS:
                raise InputError(f"{seconds:g} s to {network} is not a delay", field=f"{centre.name}.delayQueries")
        centres.append(centre.model_copy(update={"delays": {**centre.delays, **delays}}))
    prices = {name: value for (name, what), value in answers.items() if what == "price"}
    return settings.model_copy(update={"centres": tuple(centres)}), prices


async def demand_histories(settings: PlaceSettings, now_seconds: float) -> dict[str, Floats]:
    """Return (H, V) requests per second of each ended step, by service with demand queries.

    ``now_seconds``: since the epoch. H begins where every network of the service has a sample.

    Raises
    ------
    InputError
        When an answer is invalid, or has no recent value.
    """
    asked = {
        name: service_settings
        for name, service_settings in settings.services.items()
        if service_settings.demand_queries
    }
    if not asked:
        return {}
    assert settings.prometheus is not None  # noqa: S101 - for mypy: the settings ask for it
    span, turns = Span.until(now_seconds, settings.step_seconds), asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        client = PrometheusClient(session, settings.prometheus)

        async def one(service: str, network: str) -> Floats:
            try:
                async with turns:
                    return history_of(await _range(client, asked[service].demand_queries[network], span), span)
            except CotideError as error:
                of_service = f" for {service}" if service else ""
                where = f"services.{service}.demandQueries" if service else "demandQueries"
                raise InputError(
                    f"the demand of {network}{of_service} is not known: {error}", field=f"{where}.{network}"
                ) from error

        networks = settings.networks
        answers = await asyncio.gather(*(one(service, network) for service in asked for network in networks))
    found = {}
    for index, service in enumerate(asked):
        table = np.stack(answers[index * len(networks) : (index + 1) * len(networks)], axis=1)
        found[service] = table[int(np.isnan(table).any(axis=1).sum()) :]
    return found


def foreseen(
    service: ServiceSettings, history: Floats, step_seconds: float, steps: int
) -> tuple[Floats, DemandScore | None]:
    """Return (steps, V) requests per second to plan for, from the current step on, and the forecasts' score.

    As in the placement experiment: forecasts of each network, at the service's quantile of their sum.
    """
    day_steps = round(86_400.0 / step_seconds)
    found, score = forecast(history, day_steps=day_steps, steps=steps, quantile=service.demand_quantile)
    return np.minimum(found, LARGEST), score


class PriceHistory(NamedTuple):
    """(H,) money for the hour of a server, and the age of the answer in seconds; 0 for a new answer."""

    values: Floats
    age_seconds: float = 0.0


class PriceHistories:
    """Histories of prices by centre; the last good ones are kept from turn to turn."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Floats, float]] = {}

    async def ask(
        self, settings: PlaceSettings, now_seconds: float
    ) -> tuple[dict[str, PriceHistory], dict[str, InputError]]:
        """Return the known histories, the last good one where an answer is invalid, and the errors."""
        asked = {
            centre_settings.name: centre_settings.price_query
            for centre_settings in settings.centres
            if centre_settings.price_query
        }
        if not settings.price_history_days or not asked:
            return {}, {}
        assert settings.prometheus is not None  # noqa: S101 - for mypy: the settings ask for it
        seconds = settings.price_history_days * 86_400.0
        step = max(settings.step_seconds, seconds / HISTORY_STEPS)
        span, turns = Span.until(now_seconds, step, seconds), asyncio.Semaphore(AT_ONCE)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
            client = PrometheusClient(session, settings.prometheus)

            async def one(centre: str, query: str) -> Floats | InputError:
                try:
                    async with turns:
                        answer = await _range(client, query, span)
                    values = history_of(answer, span, least=-LARGEST, what="money an hour")
                    return values[np.isfinite(values)]
                except CotideError as error:
                    return InputError(f"the price of {centre} is not known: {error}", field=f"{centre}.priceQuery")

            answers = await asyncio.gather(*(one(*about) for about in asked.items()))
        wrong = {}
        for about, answer in zip(asked.items(), answers, strict=True):
            if isinstance(answer, InputError):
                wrong[about[0]] = answer
            else:
                self._known[about] = (answer, span.last)
        self._known = {about: known for about, known in self._known.items() if about in asked.items()}
        return {
            centre: PriceHistory(values, max(span.last - last, 0.0))
            for (centre, _), (values, last) in self._known.items()
        }, wrong


async def _range(client: PrometheusClient, query: str, span: Span) -> Mapping[str, Any]:
    parameters = {"query": query, "start": f"{span.first:.3f}", "end": f"{span.last:.3f}"}
    parameters["step"] = f"{span.step_seconds:.3f}"
    return await client.answer("/api/v1/query_range", parameters, RANGE_LIMITS)


async def _ask(source: PrometheusSourceSettings, questions: dict[tuple[str, str], str]) -> dict[tuple[str, str], float]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session:
        client = PrometheusClient(session, source)

        async def one(centre: str, what: str, query: str) -> float:
            try:
                return number_of(await client.answer("/api/v1/query", {"query": query}, LIMITS))
            except CotideError as error:
                raise InputError(f"the {what} of {centre} is not known: {error}", field=centre) from error

        values = await asyncio.gather(*(one(*about, query) for about, query in questions.items()))
    return dict(zip(questions, values, strict=True))


def number_of(answer: Mapping[str, Any]) -> float:
    """Return the single number in an answer of Prometheus.

    Raises
    ------
    InputError
        When it has no number, more than one, or one that is not finite.
    """
    data = _data(answer)
    result = data.get("result")
    sample = _only([result] if data.get("resultType") == "scalar" else result, "values")
    value = _number(sample.get("value") if isinstance(sample, dict) else sample)
    if not math.isfinite(value):
        raise InputError("the value is not a number")
    return value


def history_of(
    answer: Mapping[str, Any], span: Span, *, least: float = 0.0, what: str = "requests per second"
) -> Floats:
    """Return (steps,) values of the single series of an answer; nan before its first value or before the end of the
    last long gap.

    A step without a number keeps the previous one. ``what``: name of the queried values, which are at least ``least``.

    Raises
    ------
    InputError
        When there is no series or more than one; when a value is below ``least`` or beyond `LARGEST`; when too few
        steps have a number, or both of the last two have none.
    """
    series = _only(_data(answer).get("result"), "series")
    samples = series.get("values") if isinstance(series, dict) else None
    values = np.full(span.steps, math.nan)
    for sample in samples if isinstance(samples, list) else []:
        at = _number(sample, 0)
        index = round((at - span.first) / span.step_seconds) if math.isfinite(at) else -1
        if 0 <= index < span.steps:
            values[index] = _number(sample)
    known = np.isfinite(values)
    wrong = values[known & ((values < least) | (values > LARGEST))]
    if len(wrong):
        raise InputError(f"{wrong[-1]:g} {what} is outside [{least:g}, {LARGEST:g}]")
    if not known[-2:].any():
        raise InputError("its last two steps have no number: the current value can't be derived from it")
    position = np.arange(span.steps)
    there = np.flatnonzero(known)
    gaps = np.flatnonzero(np.diff(there) * span.step_seconds > max(LONGEST_GAP_SECONDS, span.step_seconds))
    first = int(there[gaps[-1] + 1] if len(gaps) else there[0])
    latest = np.maximum.accumulate(np.where(known, position, 0))
    if known[first:].mean() < KNOWN_SHARE:
        raise InputError(f"only {known[first:].sum()} of its last {span.steps - first} steps have a number")
    filled: Floats = np.where(position < first, math.nan, values[latest])
    return filled


def _data(answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("status") != "success":
        raise InputError(f"Prometheus reports: {answer.get('error', 'no reason')}")
    data = answer.get("data")
    return data if isinstance(data, dict) else {}


def _only(found: Any, what: str) -> Any:
    """Return the single item of a list; any other length is an error."""
    if not isinstance(found, list) or len(found) != 1:
        raise InputError(f"the query has {len(found) if isinstance(found, list) else 0} {what} where one is expected")
    return found[0]


def _number(pair: Any, index: int = 1) -> float:
    """Return the number at an index of a pair of time and value; nan for anything else."""
    try:
        return float(pair[index])
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        return math.nan
