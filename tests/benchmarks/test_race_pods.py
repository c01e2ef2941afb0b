"""The pods and nodes of the race are as large and as varied as was asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from race_course import node
from race_pods import IMAGES, TEMPLATES, Variety
from race_profiles import LEAST, configuration
from repository import ROOT


def size(body: dict[str, object]) -> int:
    return len(json.dumps(body, separators=(",", ":")))


@pytest.mark.parametrize("index", range(2 * TEMPLATES))
def test_pods_have_the_sizes_in_turn(index: int) -> None:
    wanted = (2_000, 5_000, 10_000)[index % 3]
    assert abs(size(Variety((2, 5, 10)).pod("p", "cotide", index)) - wanted) <= 60


def test_a_template_differs_from_the_next_in_labels_requests_and_variables() -> None:
    variety = Variety((5,))
    first, second = (variety.pod("p", "cotide", index) for index in (0, 1))
    assert first["metadata"]["labels"] != second["metadata"]["labels"]
    assert first["spec"]["containers"][0]["resources"] != second["spec"]["containers"][0]["resources"]
    assert first["spec"]["containers"][0]["env"] != second["spec"]["containers"][0]["env"]


def test_every_racer_gets_the_same_pod() -> None:
    one, other = (Variety((5,), 50).pod("p", scheduler, 7) for scheduler in ("cotide", "default-scheduler"))
    del one["spec"]["schedulerName"], other["spec"]["schedulerName"]
    assert one == other


def test_nodes_have_images_that_pods_ask_for() -> None:
    variety = Variety(images=50)
    asked = {variety.image(template) for template in range(TEMPLATES)}
    there = [
        {name for image in node(index, variety)["status"]["images"] for name in image["names"]} for index in range(40)
    ]
    assert all(len(names) == 100 for names in there)  # two names of each of 50 images
    assert all(any(image in names for names in there) for image in asked)
    assert not all(image in there[0] for image in asked)


def test_no_node_has_an_image_twice() -> None:
    assert len({image["names"][0] for image in Variety(images=IMAGES).node_images(3)}) == IMAGES


def test_a_reduced_profile_turns_all_plugins_off_but_its_own() -> None:
    [profile] = yaml.safe_load(configuration("kube-scheduler-least", Path("/k")))["profiles"]
    plugins = profile["plugins"]["multiPoint"]
    assert plugins["disabled"] == [{"name": "*"}]
    assert {one["name"]: one["weight"] for one in plugins["enabled"]} == LEAST


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--images", "401", "--images: 401 is not between 0 and 400"), ("--pod-kilobytes", "5,0", "sizes go from 0.5")],
)
def test_absurd_options_are_refused_in_one_line(option: str, value: str, said: str) -> None:
    program = str(ROOT / "benchmarks" / "race" / "real_race.py")
    done = subprocess.run([sys.executable, program, option, value], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
