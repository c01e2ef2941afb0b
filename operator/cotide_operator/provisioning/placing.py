"""Servers over data centres, live: the replicas of one Deployment in several clusters, by predictive control.

Called by `cotide place`. A turn: read what runs in each cluster -> plan -> raise where more is wanted -> lower where
less is, once what was raised elsewhere is ready. Invariants: replicas never fall while what should take over is not
ready; a cluster that does not answer counts as lost, its demand goes to the others, and in the turn in which it is back
it is only read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cotide_core.errors import ClusterError, InputError
from cotide_core.provisioning.placement_model import DataCentre, PlacementModel, PlacementOutlook, ServiceLevel
from cotide_core.provisioning.placement_plan import PlacementPlan, hold, plan_placement
from cotide_core.provisioning.placement_program import PlacementProgram
from cotide_kube.client import KubeClient
from cotide_operator.config.metric_settings import PrometheusSourceSettings
from cotide_operator.config.section import Section
from cotide_solvers.convex import ConvexSolver

Floats = NDArray[np.float64]


class CentreSettings(Section):
    """One cluster."""

    name: str = Field(min_length=1)
    context: str = Field(min_length=1)
    """Of the kubeconfig."""
    servers: int = Field(ge=0, le=1_000_000)
    """Replicas that it can hold."""
    on_cost: float = Field(default=0.0, ge=0, le=1e6)
    off_cost: float = Field(default=0.0, ge=0, le=1e6)
    delays: Mapping[str, float] = Field(default_factory=dict)
    """Network to seconds there and back."""
    egress: Mapping[str, float] = Field(default_factory=dict)
    """Network to money per request."""
    price_query: str = ""
    """PromQL for the money of a replica's hour; then the file of prices needs no column for it."""
    delay_queries: Mapping[str, str] = Field(default_factory=dict)
    """Network to PromQL for seconds there and back; over ``delays``."""


class PlaceSettings(Section):
    """What is placed, and where it may stand."""

    namespace: str = Field(default="default", min_length=1)
    deployment: str = Field(min_length=1)
    centres: tuple[CentreSettings, ...] = Field(min_length=1, max_length=1000)
    delay_seconds: float = Field(gt=0, le=3600)
    service_rate: float = Field(gt=0, le=1e9)
    """Requests per second that a replica handles."""
    variability: float = Field(default=1.0, ge=0, le=1e6)
    penalty_per_request: float = Field(default=1e-4, ge=0, le=1e6)
    step_seconds: float = Field(default=900.0, ge=10, le=86_400)
    band: float = Field(default=0.08, ge=0, le=1)
    """Changes below this share are left alone, unless requests would wait; chosen as in the placement experiment."""

    prometheus: PrometheusSourceSettings | None = None
    """Who answers the queries of centres."""

    @model_validator(mode="after")
    def _networks_agree(self) -> PlaceSettings:
        names = [centre.name for centre in self.centres]
        if len(set(names)) != len(names):
            raise ValueError("centres must have different names")
        if self.prometheus is None and any(one.price_query or one.delay_queries for one in self.centres):
            raise ValueError("priceQuery and delayQueries need prometheus: {url: ...}")
        return self


@dataclass(frozen=True, slots=True)
class Seen:
    """What a cluster answered: replicas asked for and ready; None for one that did not answer."""

    replicas: int
    ready: int


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One turn: the plan, and the replicas that are set now by centre; those that are left alone are not in it."""

    plan: PlacementPlan
    wanted: dict[str, int]
    set_now: dict[str, int]
    waiting: tuple[str, ...]
    lost: tuple[str, ...]
    back: tuple[str, ...]


def plan_turn(
    settings: PlaceSettings,
    networks: Sequence[str],
    demand: Floats,
    price: Floats,
    seen: Mapping[str, Seen | None],
    lost_before: Sequence[str] = (),
) -> Turn:
    """Plan one turn; pure.

    Parameters
    ----------
    demand, price : (W, V) requests per second and (W, L) money for a replica's hour.
    seen : by centre. ``lost_before``: centres that did not answer in the turn before.

    Raises
    ------
    InputError
        When nothing can be planned: no cluster answers, or numbers make no sense.
    """
    names = [centre.name for centre in settings.centres]
    lost = tuple(name for name in names if seen.get(name) is None)
    if len(lost) == len(names):
        raise InputError("no cluster answers: nothing can be placed", field="centres")
    back = tuple(name for name in names if name in lost_before and name not in lost)
    model = _model(settings, networks, len(demand))
    now = np.array([0.0 if (one := seen.get(name)) is None else float(one.replicas) for name in names])
    available = np.array([[float(name not in lost) for name in names]] * len(demand))
    plan = plan_placement(PlacementProgram(model), ConvexSolver(), now, PlacementOutlook(demand, price, available))
    held = hold(now, plan.servers[0], np.ceil(plan.exact[0] - 1e-4), settings.band)
    wanted = {name: int(count) for name, count in zip(names, held, strict=True) if name not in lost}
    rising = {name for name, count in wanted.items() if _seen(seen, name).replicas < count}
    unready = {name for name, count in wanted.items() if _seen(seen, name).ready < count}
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
    return Turn(plan, wanted, set_now, tuple(waiting), lost, back)


async def look(client: KubeClient, settings: PlaceSettings) -> Seen | None:
    """Return what a cluster has of the Deployment; None when it does not answer.

    Raises
    ------
    ClusterError
        When it answers, and refuses.
    """
    try:
        found = await client.get(_path(settings))
    except ClusterError as error:
        if type(error) is ClusterError:  # no answer; a refusal is a kind of its own and the user's to mend
            return None
        raise
    status: dict[str, Any] = found.get("status") or {}
    return Seen(int((found.get("spec") or {}).get("replicas", 1)), int(status.get("readyReplicas", 0)))


async def scale(client: KubeClient, settings: PlaceSettings, replicas: int) -> None:
    """Set the replicas of the Deployment in one cluster."""
    await client.patch(f"{_path(settings)}/scale", {"spec": {"replicas": replicas}})


def _path(settings: PlaceSettings) -> str:
    return f"/apis/apps/v1/namespaces/{settings.namespace}/deployments/{settings.deployment}"


def _seen(seen: Mapping[str, Seen | None], name: str) -> Seen:
    return seen[name] or Seen(0, 0)


def _model(settings: PlaceSettings, networks: Sequence[str], horizon: int) -> PlacementModel:
    for centre in settings.centres:
        for network in (*centre.delays, *centre.egress):
            if network not in networks:
                raise InputError(
                    f"{centre.name} names the network {network!r}, of which no demand is given", field="demand"
                )
    centres = tuple(
        DataCentre(centre.name, float(centre.servers), centre.on_cost, centre.off_cost) for centre in settings.centres
    )
    delays = np.array([[centre.delays.get(name, np.inf) for name in networks] for centre in settings.centres])
    egress = np.array([[centre.egress.get(name, 0.0) for name in networks] for centre in settings.centres])
    level = ServiceLevel(
        settings.delay_seconds, settings.service_rate, settings.variability, settings.penalty_per_request
    )
    return PlacementModel(centres, tuple(networks), delays, egress, level, settings.step_seconds, horizon)
