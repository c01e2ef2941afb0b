"""Prices and delays of data centres as a Prometheus tells them now.

Called by `cotide place`, before a turn is planned. What is told holds for all steps to come: a forecast of prices is a
file's to give. Invariant: an answer that is missing, not a number or more than one ends the turn with a sentence that
names the centre, and nothing is set.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

import aiohttp

from cotide_core.errors import CotideError, InputError
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.provisioning.placing import PlaceSettings
from cotide_operator.usage.prometheus_client import Limits, PrometheusClient

TIMEOUT_SECONDS: Final = 10.0
"""For one query; chosen: somebody waits at a terminal."""
LIMITS: Final = Limits(bytes=1 << 20, series=100)
LONGEST_DELAY_SECONDS: Final = 3600.0
"""There and back; more is a slip of units."""


async def queried(settings: PlaceSettings) -> tuple[PlaceSettings, dict[str, float]]:
    """Return the settings with the delays that were asked for, and the prices by centre.

    Raises
    ------
    InputError
        When an answer can't be used.
    """
    questions = {
        **{(one.name, "price"): one.price_query for one in settings.centres if one.price_query},
        **{
            (one.name, f"delay to {network}"): query
            for one in settings.centres
            for network, query in one.delay_queries.items()
        },
    }
    if not questions:
        return settings, {}
    assert settings.prometheus is not None  # noqa: S101 - for mypy: the settings ask for it
    answers = await _ask(settings.prometheus, questions)
    centres = []
    for one in settings.centres:
        delays = {network: answers[one.name, f"delay to {network}"] for network in one.delay_queries}
        for network, seconds in delays.items():
            if not 0.0 <= seconds <= LONGEST_DELAY_SECONDS:
                raise InputError(f"{seconds:g} s to {network} is no delay", field=f"{one.name}.delayQueries")
        centres.append(one.model_copy(update={"delays": {**one.delays, **delays}}))
    prices = {name: value for (name, what), value in answers.items() if what == "price"}
    return settings.model_copy(update={"centres": tuple(centres)}), prices


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


def number_of(answer: dict[str, Any]) -> float:
    """Return the one number of an answer of Prometheus.

    Raises
    ------
    InputError
        When it has none, more than one, or no finite one.
    """
    if answer.get("status") != "success":
        raise InputError(f"Prometheus says: {answer.get('error', 'nothing that is known')}")
    data = answer.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    samples = [result] if isinstance(data, dict) and data.get("resultType") == "scalar" else result
    if not isinstance(samples, list) or len(samples) != 1:
        count = len(samples) if isinstance(samples, list) else 0
        raise InputError(f"the query has {count} values where one is expected")
    sample = samples[0]
    pair = sample.get("value") if isinstance(sample, dict) else sample
    try:
        value = float(pair[1])  # type: ignore[index]  # whatever else it is, is told below
    except (TypeError, ValueError, IndexError, KeyError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError("the value is not a number")
    return value
