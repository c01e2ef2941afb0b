"""`cotide place` with demand that a Prometheus tells: forecasts are made from its history."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from click.testing import CliRunner
from told_demand import told_demand

from cotide_cli.provisioning.place_command import command
from cotide_core.errors import InputError

DAY = 96  # steps of a quarter of an hour


def asking(scene, url, **services):
    """Let the file ask for the demand of services: of ``all`` by a query."""
    file = yaml.safe_load(scene.file.read_text())
    file["prometheus"] = {"url": url}
    for name, query in services.items():
        where = file["services"][name] if "services" in file else file
        where["demandQueries"] = {"all": query}
    scene.file.write_text(yaml.safe_dump(file, sort_keys=False))


def place(scene, *arguments):
    """Take a turn without a file of demand."""
    here = scene.directory
    words = [scene.file, "--prices", here / "prices.csv", "--kubeconfig", here / "kubeconfig", "-o", "json", *arguments]
    return CliRunner().invoke(command, list(map(str, words)), standalone_mode=False)


def test_replicas_follow_what_prometheus_tells_of_demand_and_a_dry_run_sets_nothing(scene):
    """A steady hundred requests a second, and what is wanted above them for safety: five replicas of 25."""
    with told_demand({"rate": ["100"] * DAY}) as url:
        asking(scene, url, web="rate")
        dry = json.loads(place(scene).stdout)
        assert (dry["wanted"], dry["applied"], scene.replicas()) == ({"east": 5, "west": 0}, False, [0, 0])
        assert 100 < dry["plannedFor"]["all"] < 125
        score = {"steps": DAY - 1, "coverage": 1.0, "error": pytest.approx(0.0), "lastValueError": 0.0}
        assert dry["forecast"] == score
        assert json.loads(place(scene, "--apply").stdout)["wanted"] == dry["wanted"], "asked again, the same"
    assert scene.replicas() == [5, 0]


def test_a_table_says_how_good_forecasts_were(scene):
    with told_demand({"rate": ["100", "140"] * 48}) as url:
        asking(scene, url, web="rate")
        shown = place(scene, "-o", "table").stdout
    (said,) = (line for line in shown.splitlines() if "last 95 steps" in line)
    assert re.fullmatch(r"  last 95 steps: 9\d% within what was planned for; off by 1\.\d% \(last value 33\.3%\)", said)
    assert len(said) <= 80


def test_a_lower_quantile_plans_for_less(scene):
    with told_demand({"rate": ["100", "140"] * 48}) as url:
        asking(scene, url, web="rate")
        sure = json.loads(place(scene).stdout)["plannedFor"]["all"]
        scene.file.write_text(scene.file.read_text() + "demandQuantile: 0.5\n")
        assert json.loads(place(scene).stdout)["plannedFor"]["all"] < sure


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (None, "the query has 0 series where one is expected"),
        ([], "its last two steps have no number"),
        (["100"] * 50 + [None, None], "its last two steps have no number"),
        (["100"] * 50 + ["NaN", "NaN"], "its last two steps have no number"),
        (["100", "-1"], "-1 requests per second is outside"),
        (["100", "1e12"], "1e+12 requests per second is outside"),
        (["100", None, None, None, "100"], "only 2 of its last 5 steps have a number"),
    ],
)
def test_demand_that_can_not_be_used_is_told_and_nothing_is_set(scene, history, words):
    with told_demand({} if history is None else {"rate": history}) as url:
        asking(scene, url, web="rate")
        mistake = place(scene, "--apply").exception
    assert isinstance(mistake, InputError)
    assert str(mistake).startswith("demandQueries.all: the demand of all is not known: ")
    assert words in str(mistake)
    assert scene.replicas() == [0, 0]


def test_one_service_is_asked_for_and_another_has_its_columns(scene):
    """The file says how many steps are planned for; the column of who is asked for is not read."""
    scene.add_api()
    (scene.directory / "demand.csv").write_text("api/all\n50\n50\n")
    with told_demand({"rate": ["100"] * DAY}) as url:
        asking(scene, url, web="rate")
        turn = json.loads(place(scene, "--apply", "--demand", scene.directory / "demand.csv").stdout)["services"]
    assert {name: one["wanted"] for name, one in turn.items()} == {
        "web": {"east": 5, "west": 0},
        "api": {"east": 2, "west": 0},
    }
    assert turn["web"]["forecast"]["steps"] == DAY - 1
    assert turn["api"]["forecast"] is None, "a file's demand is not ours to score"


def test_a_service_whose_demand_nobody_tells_is_named(scene):
    scene.add_api()
    with told_demand({"rate": ["100"] * DAY}) as url:
        asking(scene, url, web="rate")
        mistake = place(scene).exception
    assert str(mistake) == "--demand: is needed for the demand of api, for which there are no demandQueries"


def test_the_failing_query_of_one_of_several_services_is_named(scene):
    scene.add_api()
    with told_demand({"rate": ["100"] * DAY}) as url:
        asking(scene, url, web="rate", api="missing")
        mistake = place(scene).exception
    assert str(mistake).startswith("services.api.demandQueries.all: the demand of all for api is not known: ")


def test_a_file_of_demand_from_which_nothing_is_read_is_a_mistake(scene):
    with told_demand({"rate": ["100"] * DAY}) as url:
        asking(scene, url, web="rate")
        mistake = place(scene, "--demand", scene.directory / "demand.csv").exception
    assert str(mistake) == "--demand: nothing is read from it: every service has demandQueries"


def test_the_file_of_prices_says_how_many_steps_are_planned_for(scene):
    """Twice the rows cost nearly twice as much."""
    costs = []
    for steps in (4, 8):
        with told_demand({"rate": ["100"] * DAY}) as url:
            asking(scene, url, web="rate")
            (scene.directory / "prices.csv").write_text("east,west\n" + "1,2\n" * steps)
            costs.append(json.loads(place(scene).stdout)["cost"])
    assert costs[1] > 1.8 * costs[0]


def test_replicas_never_fall_below_the_least_when_demand_is_told_to_be_nothing(scene):
    with told_demand({"rate": ["0"] * DAY}) as url:
        asking(scene, url, web="rate")
        assert json.loads(place(scene).stdout)["wanted"] == {"east": 1, "west": 0}
