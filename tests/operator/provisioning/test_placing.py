"""A turn of several services: planned together, each in the room that the others do not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from repository import ROOT

from cotide_operator.provisioning.placing import (
    ONE_SERVICE,
    CentreSettings,
    PlaceSettings,
    Seen,
    ServiceSettings,
    Turn,
    plan_turns,
)

# 0.02 s are left of 0.1 s, so a replica of 50 requests a second takes 25: 100 a second are four replicas.
RULES = {"delaySeconds": 0.1, "serviceRate": 50}
NOTHING = Seen(0, 0)


def centre(name: str, servers: int) -> dict[str, Any]:
    return {"name": name, "context": name, "servers": servers, "delays": {"all": 0.08}}


def two(east: int, west: int, **of_api: Any) -> PlaceSettings:
    services = {"web": {"deployment": "web", **RULES}, "api": {"workload": "api", **RULES, **of_api}}
    return PlaceSettings.model_validate({"centres": [centre("east", east), centre("west", west)], "services": services})


def planned(
    settings: PlaceSettings,
    seen: dict[str, dict[str, Seen | None]] | None = None,
    price: float = 1.0,
    **rates: float,
) -> dict[str, Turn]:
    """A hundred requests a second for each service; east is the cheaper one."""
    demand = {name: np.full((2, 1), rates.get(name, 100.0)) for name in settings.services}
    there = seen or {name: {"east": NOTHING, "west": NOTHING} for name in settings.services}
    return plan_turns(settings, demand, np.array([[price, 2.0 * price]] * 2), there)


@pytest.mark.parametrize(("penalty", "web", "api"), [(1e-3, 2, 4), (1e-5, 4, 2)])
def test_scarce_room_goes_to_whom_a_lost_request_costs_most_wherever_it_stands_in_the_file(
    penalty: float, web: int, api: int
) -> None:
    """Of six servers web and api want four each; a lost request of web costs 1e-4."""
    turns = planned(two(6, 0, penaltyPerRequest=penalty), price=1e-2)
    assert turns["web"].wanted == {"east": web, "west": 0}
    assert turns["api"].wanted == {"east": api, "west": 0}
    assert turns["web"].worth_of_server[0] > 0
    assert turns["web"].plan.unserved[0].sum() == pytest.approx(100 - 25 * web)


def test_all_replicas_of_services_that_share_a_centre_fit_into_it() -> None:
    """Of seven servers four replicas of web, and one of api that takes two of them."""
    turns = planned(two(7, 10, size=2.0))
    assert turns["web"].wanted["east"] + 2 * turns["api"].wanted["east"] <= 7
    assert [sum(turn.wanted.values()) for turn in turns.values()] == [4, 4]


def test_services_that_are_worth_the_same_do_not_change_places() -> None:
    for web, api in ((4, 0), (3, 1), (0, 4)):
        seen: dict[str, dict[str, Seen | None]] = {
            "web": {"east": Seen(web, web), "west": Seen(4 - web, 4 - web)},
            "api": {"east": Seen(api, api), "west": Seen(4 - api, 4 - api)},
        }
        assert all(not turn.set_now for turn in planned(two(4, 4), seen).values())


def test_what_may_go_goes_where_another_waits_for_the_room_however_little_it_is() -> None:
    """Web has one replica of thirteen too many, within its band of 0.08; api lacks one."""
    seen: dict[str, dict[str, Seen | None]] = {
        "web": {"east": Seen(13, 13), "west": NOTHING},
        "api": {"east": Seen(3, 3), "west": NOTHING},
    }
    turns = planned(two(16, 0), seen, web=300.0)
    assert turns["web"].set_now == {"east": 12}
    assert turns["api"].set_now == {"east": 4}
    alone = planned(two(20, 0), seen, web=300.0)
    assert alone["web"].set_now == {}
    assert alone["api"].set_now == {"east": 4}


def test_a_service_that_has_nothing_yet_gets_its_least_where_another_holds_all() -> None:
    """Nothing is foreseen for api, and web, which needs all, has all: one goes, and is not asked for again."""
    full: dict[str, dict[str, Seen | None]] = {
        "web": {"east": Seen(4, 4), "west": NOTHING},
        "api": {"east": NOTHING, "west": NOTHING},
    }
    turns = planned(two(4, 0), full, api=0.0)
    assert (turns["web"].set_now, turns["api"].set_now) == ({"east": 3}, {})
    full["web"] = {"east": Seen(3, 3), "west": NOTHING}
    turns = planned(two(4, 0), full, api=0.0)
    assert (turns["web"].set_now, turns["api"].set_now) == ({}, {"east": 1})
    full["api"] = {"east": Seen(1, 1), "west": NOTHING}
    assert all(not turn.set_now for turn in planned(two(4, 0), full, api=0.0).values())


@pytest.mark.parametrize(("ready", "api"), [(6, {"east": 2, "west": 2}), (3, {"east": 0, "west": 4})])
def test_what_falls_in_this_turn_makes_room_and_what_can_not_fall_yet_has_its_own(
    ready: int, api: dict[str, int]
) -> None:
    """Web falls from six to four in the east, once four of it are ready."""
    web, nothing = {"east": Seen(6, ready), "west": NOTHING}, {"east": NOTHING, "west": NOTHING}
    turns = planned(two(6, 10), {"web": web, "api": nothing})
    assert turns["web"].set_now == ({"east": 4} if ready == 6 else {})
    assert turns["api"].wanted == api


def test_a_cluster_that_answers_for_one_service_only_is_lost_for_all() -> None:
    turns = planned(two(6, 10), {"web": {"east": NOTHING, "west": NOTHING}, "api": {"east": None, "west": NOTHING}})
    assert [turn.lost for turn in turns.values()] == [("east",), ("east",)]
    assert turns["web"].wanted == {"west": 4}


def test_replicas_that_are_asked_for_are_not_ready_whatever_an_old_status_says() -> None:
    """Somebody set the east to nothing and its pods go; the west falls once those that are asked for are ready."""
    web, api = {"east": Seen(0, 4), "west": Seen(4, 4)}, {"east": NOTHING, "west": NOTHING}
    turn = planned(two(10, 10), {"web": web, "api": api})["web"]
    assert turn.wanted == {"east": 4, "west": 0}
    assert (turn.set_now, turn.waiting) == ({"east": 4}, ("west",))


def of_nothing(seen: dict[str, Seen | None], room: int = 10, **service: Any) -> dict[str, int]:
    """Return what is wanted where nothing is asked for; east is the cheaper one."""
    settings = PlaceSettings.model_validate(
        {"centres": [centre("east", room), centre("west", room)], "deployment": "web", **RULES, **service}
    )
    price = np.array([[1.0, 2.0]] * 2)
    return plan_turns(settings, {ONE_SERVICE: np.zeros((2, 1))}, price, {ONE_SERVICE: seen})[ONE_SERVICE].wanted


def test_a_service_for_which_nothing_is_foreseen_keeps_a_replica_where_it_stands() -> None:
    assert of_nothing({"east": Seen(1, 1), "west": Seen(3, 3)}) == {"east": 0, "west": 1}
    assert of_nothing({"east": NOTHING, "west": NOTHING}) == {"east": 1, "west": 0}
    assert of_nothing({"east": None, "west": Seen(3, 3)}) == {"west": 1}


def test_a_service_keeps_as_many_replicas_as_its_section_says_and_there_is_room_for() -> None:
    seen: dict[str, Seen | None] = {"east": Seen(1, 1), "west": Seen(3, 3)}
    assert of_nothing(seen, minReplicas=0) == {"east": 0, "west": 0}
    assert of_nothing(seen, 2, minReplicas=3) == {"east": 1, "west": 2}
    assert of_nothing(seen, 0) == {"east": 0, "west": 0}


@pytest.mark.parametrize(
    ("service", "path"),
    [
        ({"deployment": "x"}, "/apis/apps/v1/namespaces/shop/deployments/x"),
        ({"statefulSet": "x"}, "/apis/apps/v1/namespaces/shop/statefulsets/x"),
        ({"workload": "x"}, "/apis/cotide.dev/v1alpha1/namespaces/shop/workloads/x"),
    ],
)
def test_a_service_is_a_deployment_a_stateful_set_or_a_workload(service: dict[str, str], path: str) -> None:
    at_the_top = {"centres": [centre("east", 1)], "namespace": "shop", **RULES, **service}
    settings = PlaceSettings.model_validate(at_the_top)
    assert settings.is_of_one
    assert settings.services[ONE_SERVICE].path == path


@pytest.mark.parametrize(
    ("services", "words"),
    [
        ({"a": RULES}, "name one of deployment, statefulSet and workload"),
        ({"a": {**RULES, "deployment": "x", "workload": "x"}}, "name one of deployment, statefulSet and workload"),
        ({"a": {**RULES, "deployment": "x"}, "b": {**RULES, "deployment": "x"}}, "services must be of different"),
        ({"": {**RULES, "deployment": "x"}}, "a service must have a name"),
        ({}, "at least 1 item"),
    ],
)
def test_services_that_make_no_sense_are_refused(services: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PlaceSettings.model_validate({"centres": [centre("east", 1)], "services": services})


def test_a_field_of_a_service_at_the_top_beside_services_is_refused() -> None:
    services = {"web": {"deployment": "web", **RULES}}
    with pytest.raises(ValidationError, match="serviceRate"):
        PlaceSettings.model_validate({"centres": [centre("east", 1)], "services": services, "serviceRate": 50})


def test_each_key_of_the_file_is_documented() -> None:
    page = (ROOT / "docs" / "features" / "placement.md").read_text(encoding="utf-8")
    table = page.partition("### Every key of the file")[2].partition("## ")[0]
    keys = [f"centres.{field.alias or name}" for name, field in CentreSettings.model_fields.items()]
    for section in (ServiceSettings, PlaceSettings):
        keys += [field.alias or name for name, field in section.model_fields.items()]
    assert [key for key in keys if f"`{key}`" not in table] == []
