"""`cotide place` with prices that are foreseen from the history which a Prometheus tells."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner
from told_demand import told_demand

from cotide_cli.provisioning.place_command import command
from cotide_cli.provisioning.place_turns import LostClusters, PlacementFiles, follow
from cotide_cli.stopping import run_until_told
from cotide_core.errors import InputError

WEEK = 7 * 96  # steps of a quarter of an hour


def asking(scene, url, **top):
    """Let each centre be asked for its prices of a week, and let a move cost two hours of a replica."""
    file = yaml.safe_load(scene.file.read_text()) | {"prometheus": {"url": url}, "priceHistoryDays": 7, **top}
    for centre in file["centres"]:
        centre |= {"priceQuery": centre["name"], "onCost": 2.0}
    scene.file.write_text(yaml.safe_dump(file, sort_keys=False))
    (scene.directory / "demand.csv").write_text("all\n" + "100\n" * 24)


def place(scene, *arguments):
    here = scene.directory
    words = [scene.file, "--demand", here / "demand.csv", "--kubeconfig", here / "kubeconfig", "-o", "json", *arguments]
    return CliRunner().invoke(command, list(map(str, words)), standalone_mode=False)


def test_a_price_that_is_low_for_a_moment_moves_nobody_and_one_that_was_low_for_long_does(scene):
    """West costs 1, as ever; east costs 3 but for now: a price of now alone would move four replicas there."""
    with told_demand({"east": ["3"] * (WEEK - 1) + ["0.1"], "west": ["1"] * WEEK}) as url:
        asking(scene, url)
        assert json.loads(place(scene).stdout)["wanted"] == {"east": 0, "west": 4}
        scene.file.write_text(scene.file.read_text().replace("priceHistoryDays: 7", "priceHistoryDays: 0.01"))
        assert json.loads(place(scene).stdout)["wanted"] == {"east": 4, "west": 0}, "a history of one step"


def test_negative_prices_are_prices(scene):
    with told_demand({"east": ["-0.5"] * WEEK, "west": ["1"] * WEEK}) as url:
        asking(scene, url)
        assert json.loads(place(scene).stdout)["wanted"]["west"] == 0


@pytest.mark.parametrize(
    ("history", "words"),
    [
        (None, "the query has 0 series where one is expected"),
        (["1"] * 50 + ["NaN", "NaN"], "its last two steps have no number"),
        (["1", "1e12"], "1e+12 money an hour is outside [-1e+09, 1e+09]"),
    ],
)
def test_prices_that_can_not_be_used_end_the_first_turn_unless_a_file_has_some(scene, history, words):
    with told_demand({"west": ["1"] * WEEK} | ({} if history is None else {"east": history})) as url:
        asking(scene, url)
        mistake = place(scene, "--apply").exception
        assert isinstance(mistake, InputError)
        assert str(mistake).startswith("east.priceQuery: the price of east is not known: ")
        assert words in str(mistake)
        assert scene.replicas() == [0, 0]
        (scene.directory / "prices.csv").write_text("east\n" + "0.5\n" * 24)
        run = place(scene, "--prices", scene.directory / "prices.csv")
    assert json.loads(run.stdout)["wanted"] == {"east": 4, "west": 0}
    assert run.stderr.count("\n") == 1
    assert run.stderr.endswith("prices.csv is used\n")


def test_while_a_query_fails_what_it_told_last_is_used(scene, capsys):
    histories = {"east": ["0.5"] * WEEK, "west": ["1"] * WEEK}
    here, shown = scene.directory, []

    async def sleep(_seconds):
        histories.pop("east", None)

    with told_demand(histories) as url:
        asking(scene, url)
        files = PlacementFiles(scene.file, here / "demand.csv", None, str(here / "kubeconfig"))
        run_until_told(follow(files, LostClusters(None), shown.append, apply=False, turns=2, sleep=sleep))
    assert [taken.turns[""].wanted for taken in shown] == [{"east": 4, "west": 0}] * 2
    assert "the price of east is not known" in (said := capsys.readouterr().err)
    assert said.endswith("its last answer is used\n")


def test_days_of_prices_that_nobody_is_asked_for_are_a_mistake(scene):
    scene.file.write_text(scene.file.read_text() + "priceHistoryDays: 7\n")
    assert "priceHistoryDays is of a priceQuery, which no centre has" in str(scene.run().exception)
