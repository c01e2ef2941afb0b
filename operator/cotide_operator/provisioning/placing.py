"""Live placement over data centres: the replicas of services in several clusters, by predictive control.

Called by `cotide place`. A turn: read the replicas in each cluster -> plan -> raise where more are wanted -> lower
where fewer are, once the replicas raised elsewhere are ready. Invariants: replicas fall only when their replacement is
ready, and never below ``minReplicas`` together. A cluster that does not answer counts as lost, and its demand goes to
the others. In the turn that follows its return, it is only read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from cotide_core.errors import ClusterError, InputError
from cotide_core.provisioning.placement_model import (
    MAX_STEPS,
    DataCentre,
    PlacementModel,
    PlacementOutlook,
    ServiceLevel,
)
from cotide_core.provisioning.placement_plan import PlacementPlan, ServicePlan, hold, plan_placement
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_core.provisioning.placement_rounding import rounded_up
from cotide_kube.answers import ApiError
from cotide_kube.client import KubeClient
from cotide_operator.apis.names import GROUP, VERSION
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.config.section import Section
from cotide_solvers.convex import ConvexSolver

Floats = NDArray[np.float64]
STAYING: Final = 1e-4
"""Share of the highest price: the least cost of adding a replica, so that services of equal worth do not swap places
(chosen: large enough for the solver, negligible on a bill)."""
ONE_SERVICE: Final = ""
"""Name of a service with its fields at the top of the file."""


class CentreSettings(Section):
    """One cluster."""

    name: str = Field(min_length=1)
    context: str = Field(min_length=1)
    """Context of the kubeconfig."""
    servers: int = Field(ge=0, le=1_000_000)
    """Replicas that it can hold."""
    on_cost: float = Field(default=0.0, ge=0, le=1e6)
    off_cost: float = Field(default=0.0, ge=0, le=1e6)
    delays: Mapping[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Network to round-trip time in seconds."""
    egress: Mapping[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Network to money per request."""
    price_query: str = ""
    """PromQL for the price of a replica's hour; with it the file of prices needs no column for this centre."""
    delay_queries: Mapping[str, str] = Field(default_factory=dict)
    """Network to PromQL for the round-trip time in seconds; overrides ``delays``."""


class ServiceSettings(Section):
    """The placed object, and its service objective."""

    namespace: str = Field(default="default", min_length=1)
    deployment: str = ""
    stateful_set: str = ""
    workload: str = ""
    """A Workload of Cotide with a template: a Workload that adopts pods is scaled by the owner of those pods."""
    delay_seconds: float = Field(gt=0, le=3600)
    service_rate: float = Field(gt=0, le=1e9)
    """Requests per second that a replica handles."""
    variability: float = Field(default=1.0, ge=0, le=1e6)
    penalty_per_request: float = Field(default=1e-4, ge=0, le=1e6)
    """Money that a lost request costs: it decides which service gets scarce room."""
    band: float = Field(default=0.08, ge=0, le=1)
    """Smaller changes than this share are skipped, unless requests would wait; chosen as in the placement
    experiment."""
    min_replicas: int = Field(default=1, ge=0, le=1_000_000)
    """Of all centres together, whatever the demand is: a forecast of zero may come from a failure."""
    size: float = Field(default=1.0, ge=1e-3, le=1e6)
    """Servers of a centre that a replica takes and pays for."""
    demand_queries: Mapping[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """Network to PromQL for its requests per second; with it the file of demand needs no columns for the service."""
    demand_quantile: float = Field(default=0.95, gt=0, lt=1)
    """Quantile of the demand forecast from ``demand_queries`` that is planned for; chosen as in the placement
    experiment."""

    @model_validator(mode="after")
    def _names_one(self) -> ServiceSettings:
        if sum(bool(text) for text in (self.deployment, self.stateful_set, self.workload)) != 1:
            raise ValueError("name one of deployment, statefulSet and workload")
        return self

    @property
    def path(self) -> str:
        """Return the path of its object on an API server."""
        group, plural, name = "apps/v1", "deployments", self.deployment
        if self.stateful_set:
            plural, name = "statefulsets", self.stateful_set
        elif self.workload:
            group, plural, name = f"{GROUP}/{VERSION}", "workloads", self.workload
        return f"/apis/{group}/namespaces/{self.namespace}/{plural}/{name}"


KEYS_OF_A_SERVICE: Final = tuple(map(to_camel, ServiceSettings.model_fields))
"""Keys that a file of one service may have at its top."""
_OF_A_SERVICE: Final = frozenset({*ServiceSettings.model_fields, *KEYS_OF_A_SERVICE})


class PlaceSettings(Section):
    """The placed services, and the centres that may hold them.

    A file of one service may have its fields at the top, in place of ``services``.
    """

    centres: tuple[CentreSettings, ...] = Field(min_length=1, max_length=1000)
    services: Mapping[str, ServiceSettings] = Field(min_length=1, max_length=100)
    """By name; scarce room goes to the service with the most costly lost request, in any order of the file."""
    step_seconds: float = Field(default=900.0, ge=10, le=86_400)
    prometheus: PrometheusSourceSettings | None = None
    """The Prometheus that answers the queries of centres and services."""
    horizon_steps: int = Field(default=24, ge=1, le=MAX_STEPS)
    """Steps of a plan where no file sets their number; as in the placement experiment."""
    price_history_days: float = Field(default=0.0, ge=0, le=31)
    """Days of history of each ``price_query``, as input of price forecasts; 0: the current price holds for all
    steps."""

    @model_validator(mode="before")
    @classmethod
    def _one_service(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if "services" in data:
            if isinstance(data["services"], Mapping) and ONE_SERVICE in data["services"]:
                raise ValueError("a service must have a name")
            return data
        own = {key: value for key, value in data.items() if key in _OF_A_SERVICE}
        return {**{key: data[key] for key in data.keys() - own.keys()}, "services": {ONE_SERVICE: own}}

    @model_validator(mode="after")
    def _networks_agree(self) -> PlaceSettings:
        names = [centre.name for centre in self.centres]
        if len(set(names)) != len(names):
            raise ValueError("centres must have different names")
        contexts = [centre.context for centre in self.centres]
        twice = next((context for context in contexts if contexts.count(context) > 1), None)
        if twice is not None:
            raise ValueError(f"centres must have different contexts: two would set one Deployment by {twice!r}")
        paths = [service_settings.path for service_settings in self.services.values()]
        if len(set(paths)) != len(paths):
            raise ValueError("services must be of different objects: two would set the replicas of one")
        queries = [centre_settings.price_query or centre_settings.delay_queries for centre_settings in self.centres]
        queries += [service_settings.demand_queries for service_settings in self.services.values()]
        if self.prometheus is None and any(queries):
            raise ValueError("priceQuery, delayQueries and demandQueries need prometheus: {url: ...}")
        if self.price_history_days and not any(centre_settings.price_query for centre_settings in self.centres):
            raise ValueError("priceHistoryDays is of a priceQuery, which no centre has")
        for name, service in self.services.items():
            wrong = sorted(service.demand_queries.keys() ^ set(self.networks))
            if service.demand_queries and wrong:
                words = "has no delay to" if wrong[0] in service.demand_queries else "has a delay to, and no query for,"
                of_service = f"services.{name}.demandQueries" if name else "demandQueries"
                raise ValueError(f"{of_service}: the file {words} {wrong[0]}")
        return self

    @property
    def is_of_one(self) -> bool:
        """Whether the file has a service's fields at its top."""
        return ONE_SERVICE in self.services

    @property
    def networks(self) -> list[str]:
        """Return the networks that have a delay or a delay query in a centre."""
        return sorted({name for centre in self.centres for name in (*centre.delays, *centre.delay_queries)})


@dataclass(frozen=True, slots=True)
class Seen:
    """Replicas of a cluster, requested and ready; None for a cluster that did not answer."""

    replicas: int
    ready: int


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One turn: the plan, and the replicas that are set now, by centre; unchanged centres are not in it."""

    plan: ServicePlan
    worth_of_server: Floats
    """(L,) money that one more of a centre's ``servers`` would save, for any service."""
    wanted: dict[str, int]
    set_now: dict[str, int]
    waiting: tuple[str, ...]
    lost: tuple[str, ...]
    back: tuple[str, ...]


def plan_turns(
    settings: PlaceSettings,
    demand: Mapping[str, Floats],
    price: Floats,
    seen: Mapping[str, Mapping[str, Seen | None]],
    lost_before: Sequence[str] = (),
) -> dict[str, Turn]:
    """Plan one turn of all services in one program (pure): scarce room goes to the services that would lose most.

    Parameters
    ----------
    demand : by service, (W, V) requests per second from `PlaceSettings.networks`.
    price : (W, L) money for the hour of a server.
    seen : by service and centre. ``lost_before``: centres that did not answer in the previous turn.

    Raises
    ------
    InputError
        When no plan is possible: no cluster answers, or numbers are invalid.
    """
    names = _names(settings)
    # A cluster that answered for one service only counts as lost.
    lost = tuple(name for name in names if any(of_service.get(name) is None for of_service in seen.values()))
    if len(lost) == len(names):
        raise InputError("no cluster answers: nothing can be placed", field="centres")
    answered = {
        service: {name: None if name in lost else seen[service][name] for name in names}
        for service in settings.services
    }
    back = tuple(name for name in names if name in lost_before and name not in lost)
    least = LeastReplicas(settings, answered, price[0])
    plan, wanted = _planned(settings, demand, price, answered, back, dict.fromkeys(names, 0.0))
    reserved = least.keep(wanted)
    if any(reserved.values()):
        plan, wanted = _planned(settings, demand, price, answered, back, reserved)
        least.keep(wanted)
    return {
        service: _turn(plan, own, wanted[service], answered[service], back)
        for own, service in zip(plan.services, settings.services, strict=True)
    }


Answered = Mapping[str, Mapping[str, Seen | None]]
"""What was read, by service and centre; None for a lost centre."""
Wanted = dict[str, dict[str, int]]
"""Replicas by service and available centre."""


def _planned(
    settings: PlaceSettings,
    demand: Mapping[str, Floats],
    price: Floats,
    seen: Answered,
    back: Sequence[str],
    reserved: Mapping[str, float],
) -> tuple[PlacementPlan, Wanted]:
    """Plan in the room outside ``reserved``, which holds servers by centre."""
    names, services = _names(settings), list(settings.services)
    now = np.array([[_seen(seen[service], name).replicas for name in names] for service in services], float)
    of_each = [[one for one in seen[service].values() if one is not None] for service in services]
    waits = np.array([bool(back) or any(one.ready < one.replicas for one in found) for found in of_each])
    there = [float(seen[services[0]][name] is not None) for name in names]
    of_all = np.stack([demand[service] for service in services], axis=1)
    outlook = PlacementOutlook(of_all, price, np.array(there))
    hours = settings.step_seconds / 3600.0
    model = _model(settings, reserved, len(of_all), STAYING * hours * float(np.abs(price).max()))
    plan = plan_placement(PlacementProgram(model), ConvexSolver(), now, outlook, waits)
    wanted = {}
    for own, before, (service, service_settings) in zip(plan.services, now, settings.services.items(), strict=True):
        # Where other services wait for the room, even a small surplus goes.
        band = np.where(plan.scarce & (own.servers[0] < before), 0.0, service_settings.band)
        needed = np.minimum(rounded_up(own.exact[0]), own.servers[0])
        held = hold(before, own.servers[0], needed, band)
        wanted[service] = {
            name: int(count) for name, count, is_there in zip(names, held, there, strict=True) if is_there
        }
    return plan, wanted


class LeastReplicas:
    """Keeps ``minReplicas`` of each service in the free room: first where most are ready, then where it is cheapest."""

    def __init__(self, settings: PlaceSettings, seen: Answered, price: Floats) -> None:
        """Take the running replicas, and the (L,) price of a server's hour."""
        self._settings, self._seen = settings, seen
        self._order = {name: (cost, at) for at, (name, cost) in enumerate(zip(_names(settings), price, strict=True))}

    def keep(self, wanted: Wanted) -> dict[str, float]:
        """Raise the wanted replicas; return by centre the servers that others must leave for replicas without room."""
        servers = {centre.name: float(centre.servers) for centre in self._settings.centres}
        reserved = dict.fromkeys(servers, 0.0)
        for service, service_settings in self._settings.services.items():
            own, seen = wanted[service], self._seen[service]
            best = sorted(own, key=lambda name: (-_seen(seen, name).ready, self._order[name]))
            for name in best:
                free = servers[name] - self._held(wanted, name, but=service)
                most = math.floor(free / service_settings.size + 1e-9)
                own[name] += max(min(service_settings.min_replicas - sum(own.values()), most - own[name]), 0)
            missing = service_settings.min_replicas - sum(own.values())
            for name in best:
                most = math.floor((servers[name] - reserved[name]) / service_settings.size + 1e-9)
                count = max(min(missing, most - own[name]), 0)
                reserved[name] += count * service_settings.size
                missing -= count
        return reserved

    def _held(self, wanted: Wanted, centre: str, *, but: str) -> float:
        return sum(
            service_settings.size * max(wanted[service][centre], _seen(self._seen[service], centre).replicas)
            for service, service_settings in self._settings.services.items()
            if service != but
        )


def _turn(
    plan: PlacementPlan,
    own: ServicePlan,
    wanted: dict[str, int],
    seen: Mapping[str, Seen | None],
    back: tuple[str, ...],
) -> Turn:
    """Return the part of a service's plan that is set now, and the part that waits."""
    rising = {name for name, count in wanted.items() if _seen(seen, name).replicas < count}
    unready = rising | {name for name, count in wanted.items() if _seen(seen, name).ready < count}
    set_now, waiting = {}, []
    for name, count in wanted.items():
        if name in back:
            continue
        if name in rising:
            set_now[name] = count
        elif _seen(seen, name).replicas > count:
            if unready or back:
                waiting.append(name)
            else:
                set_now[name] = count
    lost = tuple(name for name, one in seen.items() if one is None)
    return Turn(own, plan.worth_of_server, wanted, set_now, tuple(waiting), lost, back)


async def look(client: KubeClient, service: ServiceSettings) -> Seen:
    """Return the replicas of a service in a cluster.

    Raises
    ------
    ClusterError
        When it does not answer (`no_answer`), or refuses.
    """
    found = await client.get(service.path)
    metadata, spec, status = (found.get(part) or {} for part in ("metadata", "spec", "status"))
    replicas = spec.get("replicas", 1)
    ready = status.get("readyReplicas", 0) if isinstance(status, dict) else None
    # An answer that is not an API server's must not be used: it could read as one replica where ten run.
    if not metadata.get("name") or not isinstance(replicas, int) or not isinstance(ready, int):
        raise ClusterError(f"the answer to GET {service.path} is not what an API server sends; is it one?")
    return Seen(replicas, ready)


def no_answer(error: ClusterError) -> bool:
    """Whether a cluster is lost; when it refuses, the user must repair the access.

    A server error counts as no answer: the load balancer of a lost cluster sends 502, 503 or 504.
    """
    return not isinstance(error, ApiError) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


async def scale(client: KubeClient, service: ServiceSettings, replicas: int) -> None:
    """Set the replicas of a service in one cluster."""
    await client.patch(f"{service.path}/scale", {"spec": {"replicas": replicas}})


def _seen(seen: Mapping[str, Seen | None], name: str) -> Seen:
    return seen[name] or Seen(0, 0)


def _names(settings: PlaceSettings) -> list[str]:
    return [centre.name for centre in settings.centres]


def _model(settings: PlaceSettings, reserved: Mapping[str, float], horizon: int, staying: float) -> PlacementModel:
    networks = settings.networks
    for centre in settings.centres:
        for network in centre.egress:
            if network not in networks:
                raise InputError(f"{centre.name} names the network {network!r}, which has no demand", field="demand")
    centres = tuple(
        DataCentre(
            centre.name, max(centre.servers - reserved[centre.name], 0.0), centre.on_cost + staying, centre.off_cost
        )
        for centre in settings.centres
    )
    delays = np.array([[centre.delays.get(name, np.inf) for name in networks] for centre in settings.centres])
    egress = np.array([[centre.egress.get(name, 0.0) for name in networks] for centre in settings.centres])
    levels = tuple(
        ServiceLevel(
            delay_seconds=service.delay_seconds,
            service_rate=service.service_rate,
            variability=service.variability,
            penalty=service.penalty_per_request,
            size=service.size,
            name=name,
        )
        for name, service in settings.services.items()
    )
    return PlacementModel(centres, tuple(networks), delays, egress, levels, settings.step_seconds, horizon)
