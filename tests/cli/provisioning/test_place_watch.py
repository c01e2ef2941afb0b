"""`cotide place` for several services, and turn after turn."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from cotide_cli.provisioning import place_turns
from cotide_cli.provisioning.place_turns import LostClusters, PlacementFiles, follow
from cotide_cli.stopping import StoppedError, run_until_told
from cotide_core.errors import InputError

STEP = 900.0


class Days:
    """A clock that only sleep moves; ``meanwhile`` is done during the n-th sleep."""

    def __init__(self, *meanwhile):
        self.now, self.meanwhile, self.slept = 0.0, list(meanwhile), []

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        if self.meanwhile:
            self.meanwhile.pop(0)()


def followed(scene, turns, *meanwhile, apply=False):
    """Take so many turns; returns what was shown, and the clock."""
    here, shown, days = scene.directory, [], Days(*meanwhile)
    files = PlacementFiles(scene.file, here / "demand.csv", here / "prices.csv", str(here / "kubeconfig"))
    clock = {"monotonic": lambda: days.now, "sleep": days.sleep}
    run_until_told(follow(files, LostClusters(None), shown.append, apply=apply, turns=turns, **clock))
    return [{name: turn.wanted for name, turn in taken.turns.items()} for taken in shown], days


def rates(scene, *values):
    (scene.directory / "demand.csv").write_text("\n".join(map(str, ("all", *values))))
    (scene.directory / "prices.csv").write_text("\n".join(("east,west", *(["1,2"] * len(values)))))


def test_several_services_are_set_each_by_its_own_demand(scene):
    """A hundred requests a second are four replicas, fifty two."""
    scene.add_api()
    turn = scene.turn("--apply")["services"]
    assert {name: one["wanted"] for name, one in turn.items()} == {
        "web": {"east": 4, "west": 0},
        "api": {"east": 2, "west": 0},
    }
    assert (scene.replicas(), scene.replicas_of_api()) == ([4, 0], [2, 0])


def test_a_table_of_several_services_names_each(scene):
    scene.add_api()
    said = scene.run("-o", "table").stdout
    assert said.index("web:") < said.index("api:") < said.index("dry run")


def test_mistakes_about_one_of_several_services_name_it(scene):
    scene.add_api()
    (scene.directory / "demand.csv").write_text("web/all\n100\n100\n")
    assert "lacks column 'api/all'" in str(scene.run().exception)
    text = scene.file.read_text().replace("serviceRate: 50", "serviceRate: fast", 1)
    scene.file.write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), start=1) if "fast" in one)
    assert str(scene.run().exception).startswith(f"{scene.file}:{line}: services.web.serviceRate: ")


def test_a_service_that_is_lacking_is_named_with_its_cluster_when_it_is_set(scene, monkeypatch):
    from cotide_cli.provisioning import place_turns
    from cotide_core.errors import ClusterError

    async def refused(_client, service, _replicas):
        if service.workload:
            raise ClusterError("no")

    scene.add_api()
    monkeypatch.setattr(place_turns, "scale", refused)
    assert str(scene.run("--apply").exception) == "east, api: no; what follows was not set"


def test_rows_of_a_file_that_stays_as_it_is_pass_one_a_step(scene):
    """A hundred, fifty, then twenty-five requests a second: four, two, one replicas."""
    rates(scene, 100, 50, 25)
    shown, days = followed(scene, 3)
    assert [one[""]["east"] for one in shown] == [4, 2, 1]
    assert days.slept == [STEP, STEP]


def test_when_all_rows_have_passed_it_says_so_and_goes_on_once_they_are_written_anew(scene, capsys):
    rates(scene, 100)
    shown, days = followed(scene, 3, lambda: None, lambda: rates(scene, 50))
    assert [one[""]["east"] for one in shown] == [4, 2]
    assert len(days.slept) == 2
    said = capsys.readouterr().err
    assert said.count("continues with the next turn") == 1
    assert "has 1 rows, which have all passed: write it again" in said


def test_a_file_that_is_written_while_it_is_read_is_left_for_the_next_turn(scene, capsys, monkeypatch):
    """Half of it may be there: one request a second in place of a hundred would let replicas fall."""
    rates(scene, *[100] * 4)
    read = place_turns._columns
    begun = []

    def written_meanwhile(path, *rest, **how):
        found = read(path, *rest, **how)
        if path.name == "demand.csv":
            begun.append(path)
            if len(begun) == 2:
                path.write_text("all\n50\n25\n25\n25\n")
        return found

    monkeypatch.setattr(place_turns, "_columns", written_meanwhile)
    shown, _ = followed(scene, 3)
    assert [one[""]["east"] for one in shown] == [4, 2], "the file that was written anew begins with its first row"
    assert "demand.csv: was written during the read" in capsys.readouterr().err


def test_a_pipe_is_read_although_its_times_change_with_what_is_written_to_it(scene):
    pipe = scene.directory / "pipe"
    os.mkfifo(pipe)
    text = (scene.directory / "demand.csv").read_text()
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    assert scene.turn("--demand", pipe)["wanted"] == {"east": 4, "west": 0}
    writer.join()


def test_a_first_turn_that_fails_ends_it(scene):
    (scene.directory / "demand.csv").unlink()
    with pytest.raises(InputError, match=r"demand\.csv"):
        followed(scene, 2)


def test_a_cluster_that_is_lost_between_two_turns_is_only_read_when_it_is_back(scene):
    """Replicas move to the west when the east is lost; in the turn in which it is back nothing falls."""
    rates(scene, *[100] * 5)
    lose = lambda: (scene.make_ready("east", 4), scene.write_kubeconfig(east="http://127.0.0.1:1"))  # noqa: E731
    find = lambda: (scene.make_ready("west", 4), scene.write_kubeconfig())  # noqa: E731
    followed(scene, 3, lose, find, apply=True)
    assert scene.replicas() == [4, 4]
    followed(scene, 1, apply=True)
    assert scene.replicas() == [4, 0]


def test_watching_writes_a_line_of_json_a_turn(scene):
    said = scene.run("--watch", "--turns", "1").stdout
    assert said.count("\n") == 1
    assert json.loads(said)["wanted"] == {"east": 4, "west": 0}


def test_turns_without_watching_are_a_mistake(scene):
    assert "--turns: goes with --watch only" in str(scene.run("--turns", "2").exception)


def test_sigterm_ends_it_between_two_turns_without_a_word(scene, capfd):
    with pytest.raises(StoppedError):
        followed(scene, 0, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert capfd.readouterr().err == ""
