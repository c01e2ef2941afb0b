"""Turns of `cotide place`: read files and clusters, plan a turn, set replicas on request.

Called by `place_command`. Invariants: a dry run writes nothing in any cluster; lost clusters are recorded before
anything is set; over all services, increases are set before decreases.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from cotide_core.errors import ClusterError, InputError
from cotide_core.provisioning.placement_model import LARGEST, MAX_STEPS
from cotide_files.bounded_text import read_bounded
from cotide_files.replacement import replace_file
from cotide_kube.client import ANSWER_SECONDS, KubeClient
from cotide_kube.credentials import load_credentials
from cotide_operator.config.section import first_fault
from cotide_operator.config.yaml_lines import line_of, load, read, written
from cotide_operator.provisioning.place_queries import PriceHistories, PriceHistory, demand_histories, foreseen, queried
from cotide_operator.provisioning.placing import (
    KEYS_OF_A_SERVICE,
    ONE_SERVICE,
    CentreSettings,
    PlaceSettings,
    Seen,
    ServiceSettings,
    Turn,
    look,
    no_answer,
    plan_turns,
    scale,
)
from cotide_predictors.capacity.network_demand import DemandScore
from cotide_predictors.capacity.price_outlook import foreseen_prices

if TYPE_CHECKING:
    from cotide_files.rows import Row

Floats = NDArray[np.float64]
Everything = Mapping[str, Mapping[str, Seen | None]]
"""Replicas as read, by service and centre."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@dataclass(frozen=True, slots=True)
class PlacementFiles:
    """The input files."""

    file: Path
    demand: Path | None
    prices: Path | None
    kubeconfig: str | None


MAX_FORECAST = 64 << 20
"""Characters of a file of demand or prices (chosen: a year of five minutes in a hundred columns)."""
MAX_LOST = 1 << 20
"""Bytes of the names of lost clusters (chosen: a thousand)."""


@dataclass(slots=True)
class LostClusters:
    """Clusters that did not answer in the last turn, kept in a file if one is given."""

    path: Path | None
    names: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path | None) -> LostClusters:
        """Read the clusters that the turn before lost.

        Raises
        ------
        InputError
            When the file holds something else: a cluster that was lost must not be taken for one that was there.
        """
        if path is None or not path.exists():
            return cls(path)
        try:
            names = json.loads(read_bounded(path, MAX_LOST))
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", file=str(path)) from error
        except (ValueError, RecursionError):
            names = None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError(
                "is not a JSON list of lost clusters: delete it to start again", file=str(path), field="--state"
            )
        return cls(path, frozenset(names))

    def remember(self, lost: Iterable[str]) -> None:
        """Write the lost clusters, atomically where the directory permits.

        Raises
        ------
        InputError
            When they can't be written.
        """
        self.names = frozenset(lost)
        if self.path is None:
            return
        file, content = self.path.resolve(), json.dumps(sorted(self.names)).encode()
        try:
            try:
                replace_file(file, content)
            except OSError as error:
                if error.errno in NO_ROOM:  # the file itself would not be complete either
                    raise
                file.write_bytes(content)  # only the file is mounted, or writable
        except OSError as error:
            words = f"can't be written: {error.strerror}; replicas that are not set yet stay the same"
            raise InputError(words, file=str(self.path), field="--state") from error


Writing = tuple[int, int, int]
"""A version of a file: its identity, its last change, and its length."""


def _writing(path: Path) -> Writing | None:
    """Return None for a missing file: the reader reports it."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):  # a pipe's times change with each write
        return found.st_ino, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass(slots=True)
class PassedRows:
    """Number of past rows of a forecast: an unchanged file advances one row per step."""

    monotonic: Callable[[], float] = time.monotonic
    _since: dict[Path, tuple[Writing, float]] = field(default_factory=dict)
    """By file: its version, and the time when that was first read."""

    def of(self, path: Path, writing: Writing, step_seconds: float) -> int:
        """Return the rows of a file that have passed since its present version was first read."""
        now, known = self.monotonic(), self._since.get(path)
        if known is None or known[0] != writing:  # the same rows in a new version start from now
            self._since[path] = (writing, now)
            return 0
        return int((now - known[1]) / step_seconds + 1e-6)


@dataclass(frozen=True, slots=True)
class TurnState:
    """State between turns except lost clusters; a restart begins without it."""

    passed: PassedRows = field(default_factory=PassedRows)
    prices: PriceHistories = field(default_factory=PriceHistories)


class QueryAnswers(NamedTuple):
    """Answers of a Prometheus: by centre the current price, or its history; by service the history of demand."""

    prices: Mapping[str, float]
    price_histories: Mapping[str, PriceHistory]
    demand_histories: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of one turn."""

    settings: PlaceSettings
    demand: Mapping[str, Floats]
    """(W, V) requests per second that were planned for, by service."""
    scores: Mapping[str, DemandScore | None]
    """Scores of forecasts from a history, by service with a history."""
    seen: Everything
    turns: Mapping[str, Turn]
    applied: bool


async def take(files: PlacementFiles, lost: LostClusters, turn_state: TurnState, *, apply: bool) -> TurnResult:
    """Plan one turn, and with ``apply`` carry it out.

    Raises
    ------
    InputError, ClusterError
        When no plan is possible, or some replicas could not be set.
    """
    settings, prices = await queried(read_settings(files.file))
    if not settings.networks:
        raise InputError("no centre has delays or delayQueries", file=str(files.file), field="centres")
    now = time.time()
    histories = await demand_histories(settings, now)
    price_histories, wrong = await turn_state.prices.ask(settings, now)
    for centre, error in wrong.items():
        is_known = centre in price_histories
        if not is_known and files.prices is None:
            raise error
        click.echo(f"cotide: {error}; {'its last answer' if is_known else files.prices} is used", err=True)
    answers = QueryAnswers(prices, price_histories, histories)
    demand, price, scores = _forecasts(files, settings, answers, turn_state.passed)
    seen, silent = await _look(settings, files.kubeconfig)
    if len(silent) == len(settings.centres):
        said = "; ".join(f"{name}: {why}" for name, why in silent.items())
        raise ClusterError(f"no cluster answers, nothing can be placed: {said}")
    for name in silent.keys() - lost.names:
        click.echo(f"cotide: {name} is lost: {silent[name]}", err=True)
    turns = plan_turns(settings, demand, price, seen, sorted(lost.names))
    gone = {name for turn in turns.values() for name in turn.lost}
    if apply:
        # Before anything is set: whatever ends this turn, the next one knows the lost clusters.
        lost.remember(gone)
        await apply_turns(settings, turns, seen, files.kubeconfig, lost)
    else:
        lost.names = frozenset(gone)
    return TurnResult(settings, demand, scores, seen, turns, apply)


async def follow(
    files: PlacementFiles,
    lost: LostClusters,
    show: Callable[[TurnResult], None],
    *,
    apply: bool,
    turns: int = 0,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Take a turn each step, ``turns`` of them or until cancelled.

    Raises
    ------
    InputError, ClusterError
        When the first turn fails; a later failure is printed, and the next turn starts on time.
    """
    turn_state, number, pause = TurnState(PassedRows(monotonic)), 0, 0.0
    while True:
        began = monotonic()
        try:
            taken = await take(files, lost, turn_state, apply=apply)
        except (ClusterError, InputError) as error:
            if not number:
                raise
            click.echo(f"cotide: continues with the next turn: {error}", err=True)
        else:
            pause = taken.settings.step_seconds
            show(taken)
        number += 1
        if turns and number >= turns:
            return
        await sleep(max(0.0, pause - (monotonic() - began)))


def read_settings(file: Path) -> PlaceSettings:
    """Read a placement file.

    Raises
    ------
    InputError
        With the line and the field, when the file is invalid.
    """
    try:
        data, lines = load(read(file), str(file))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"can't be read: {why}", file=str(file)) from error
    try:
        return PlaceSettings.model_validate(data)
    except ValidationError as error:
        one_service = isinstance(data, dict) and "services" not in data
        path, sentence = first_fault(error, PlaceSettings, KEYS_OF_A_SERVICE if one_service else ())
        if path[:2] == ("services", ONE_SERVICE):
            path = path[2:]  # as it is written: at the top
        raise InputError(sentence, file=str(file), line=line_of(path, lines), field=written(path) or "file") from None


def _forecasts(
    files: PlacementFiles,
    settings: PlaceSettings,
    answers: QueryAnswers,
    passed: PassedRows,
) -> tuple[dict[str, Floats], Floats, dict[str, DemandScore | None]]:
    """Return demand by service, (rows, centres) prices, and the scores of forecasts by service with a history.

    Demand and prices are forecast from their history if there is one, otherwise read from a file; a single price holds
    for all rows.
    """
    histories = answers.demand_histories
    columns = {
        (service, network): network if settings.is_of_one else f"{service}/{network}"
        for service in settings.services
        if service not in histories
        for network in settings.networks
    }
    known = answers.prices.keys() | answers.price_histories.keys()
    asked = [centre.name for centre in settings.centres if centre.name not in known]
    rates, given = _of_files(files, settings, list(columns.values()), asked, passed)
    lengths = {path: len(found) for path, found in ((files.demand, rates), (files.prices, given)) if found is not None}
    rows = min(lengths.values(), default=settings.horizon_steps)  # the files may have different ages
    if rows > MAX_STEPS:
        words = f"has {rows} rows from now on, at most {MAX_STEPS} steps are allowed"
        raise InputError(words, file=str(next(iter(lengths))))
    of_column = {} if given is None else dict(zip(asked, given[:rows].T, strict=True))
    for name, value in answers.prices.items():
        of_column[name] = np.full(rows, value)
    for name, history in answers.price_histories.items():
        of_column[name] = foreseen_prices(history.values, rows, settings.step_seconds, history.age_seconds)
    price = np.stack([of_column[centre_settings.name] for centre_settings in settings.centres], axis=1)
    demand, scores = dict[str, Floats](), dict[str, DemandScore | None]()
    for service, came in histories.items():
        step = settings.step_seconds
        demand[service], scores[service] = foreseen(settings.services[service], came, step, rows)
    if rates is not None:
        table = dict(zip(columns, rates[:rows].T, strict=True))
        for service in settings.services.keys() - histories.keys():
            demand[service] = np.stack([table[service, network] for network in settings.networks], axis=1)
    return demand, price, scores


def _of_files(
    files: PlacementFiles,
    settings: PlaceSettings,
    columns: Sequence[str],
    centres: Sequence[str],
    passed: PassedRows,
) -> tuple[Floats | None, Floats | None]:
    """Return the rows of the demand file and the prices file from now on; None for a file that is not needed."""
    writings: dict[Path, Writing] = {}
    rates = given = None
    if columns:
        if files.demand is None:
            lacking = sorted(name for name, service in settings.services.items() if not service.demand_queries)
            where = "" if settings.is_of_one else f" of {', '.join(lacking)}"
            raise InputError(f"is needed for the demand{where}, for which there are no demandQueries", field="--demand")
        rates, writings[files.demand] = _read(files.demand, columns)
    elif files.demand is not None:
        raise InputError("nothing is read from it: every service has demandQueries", field="--demand")
    if centres:
        if files.prices is None:
            raise InputError(f"is needed for the centres without a priceQuery: {', '.join(centres)}", field="--prices")
        given, writings[files.prices] = _read(files.prices, centres, signed=True)
        if rates is not None and len(given) != len(rates):
            raise InputError(f"has {len(given)} rows where the demand has {len(rates)}", file=str(files.prices))
        given = _remaining_rows(
            files.prices, given, passed.of(files.prices, writings[files.prices], settings.step_seconds)
        )
    if rates is not None and files.demand is not None:
        rates = _remaining_rows(
            files.demand, rates, passed.of(files.demand, writings[files.demand], settings.step_seconds)
        )
    return rates, given


def _remaining_rows(path: Path, rows: Floats, passed: int) -> Floats:
    if passed >= len(rows):
        raise InputError(f"has {len(rows)} rows, which have all passed: write it again", file=str(path))
    return rows[passed:]


def _read(path: Path, names: Sequence[str], *, signed: bool = False) -> tuple[Floats, Writing]:
    """Return the columns of a file that did not change meanwhile, and its version."""
    before = _writing(path)
    rows = _columns(path, names, signed=signed)
    if before is None or _writing(path) != before:  # half of 100 is also a number
        raise InputError("was written during the read: replace it by renaming another file", file=str(path))
    return rows, before


def _columns(path: Path, names: Sequence[str], *, signed: bool = False) -> Floats:
    """Return (rows, names) numbers of a CSV file; negative ones only where allowed."""
    from cotide_files.rows import stream_rows

    least = -math.inf if signed else 0.0

    def number(row: Row, name: str) -> float:
        value = row.number(name, minimum=least)
        if abs(value) > LARGEST:
            raise row.error(name, f"{row.text(name)!r} is beyond {LARGEST:g}")
        return value

    rows_of_file = stream_rows(path, list(names), what="forecast", most=MAX_FORECAST)
    rows = [[number(row, name) for name in names] for row in rows_of_file]
    if not rows:
        raise InputError("has no rows", file=str(path))
    return np.array(rows)


async def _look(settings: PlaceSettings, kubeconfig: str | None) -> tuple[Everything, dict[str, str]]:
    """Return the replicas by centre, and the reasons for centres that do not answer."""
    silent: dict[str, str] = {}

    async def one(centre: CentreSettings, client: KubeClient, service: ServiceSettings) -> Seen | None:
        try:
            return await look(client, service)
        except ClusterError as error:
            if not no_answer(error):
                raise
            silent[centre.name] = str(error)
            return None

    async def all_of(centre: CentreSettings) -> list[Seen | None]:
        try:
            async with _client(centre, kubeconfig) as client:
                return await asyncio.gather(*(one(centre, client, service) for service in settings.services.values()))
        except InputError as error:
            raise InputError(str(error), field=f"centres[{centre.name}].context {centre.context!r}") from error
        except ClusterError as error:
            raise ClusterError(f"{centre.name}: {error}; nothing was set") from error

    found = await asyncio.gather(*(all_of(centre) for centre in settings.centres))
    seen = {
        service: {centre.name: of_centre[index] for centre, of_centre in zip(settings.centres, found, strict=True)}
        for index, service in enumerate(settings.services)
    }
    return seen, silent


async def apply_turns(
    settings: PlaceSettings,
    turns: Mapping[str, Turn],
    seen: Everything,
    kubeconfig: str | None,
    lost: LostClusters,
) -> None:
    """Set replicas, increases first; a cluster that is lost meanwhile stops the turn before any decrease.

    Raises
    ------
    ClusterError
        When a cluster does not set them.
    """
    todo: list[tuple[bool, CentreSettings, str, int]] = []
    for service, turn in turns.items():
        for centre in settings.centres:
            if centre.name in turn.set_now:
                there, count = seen[service][centre.name], turn.set_now[centre.name]
                todo.append((there is not None and count < there.replicas, centre, service, count))
    for _, centre, service, count in sorted(todo, key=lambda one: one[0]):
        about = centre.name if settings.is_of_one else f"{centre.name}, {service}"
        try:
            async with _client(centre, kubeconfig) as client:
                await scale(client, settings.services[service], count)
        except ClusterError as error:
            if no_answer(error):
                lost.remember({*lost.names, centre.name})
            raise ClusterError(f"{about}: {error}; what follows was not set") from error


def _client(centre: CentreSettings, kubeconfig: str | None) -> KubeClient:
    credentials = load_credentials(kubeconfig, centre.context)
    return KubeClient(credentials, timeout_seconds=ANSWER_SECONDS, asks_silence_again=False)


def as_data(taken: TurnResult) -> dict[str, Any]:
    """Return a turn as ``-o json`` shows it: the fields of a single service, or the fields by name for several."""
    shown = {name: _turn_data(taken, name) for name in taken.turns}
    return shown[ONE_SERVICE] if taken.settings.is_of_one else {"services": shown}


def _turn_data(taken: TurnResult, service: str) -> dict[str, Any]:
    turn, seen, score = taken.turns[service], taken.seen[service], taken.scores.get(service)
    return {
        "now": {name: None if one is None else one.replicas for name, one in seen.items()},
        "wanted": turn.wanted,
        "set": turn.set_now,
        "waiting": list(turn.waiting),
        "lost": list(turn.lost),
        "back": list(turn.back),
        "plannedFor": dict(zip(taken.settings.networks, map(float, taken.demand[service][0]), strict=True)),
        "forecast": None if score is None else {to_camel(name): value for name, value in score._asdict().items()},
        "unserved": float(turn.plan.unserved[0].sum()),
        "worthOfOneServerMore": dict(zip(seen, map(float, turn.worth_of_server), strict=True)),
        "cost": turn.plan.cost,
        "applied": taken.applied,
    }
