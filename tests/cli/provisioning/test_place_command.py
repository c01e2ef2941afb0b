"""`cotide place` from a user's chair, on two embedded API servers."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import yaml
from click.testing import CliRunner
from placement_scene import DEPLOYMENTS

from cotide_cli.provisioning import place_turns
from cotide_cli.provisioning.place_command import command
from cotide_core.errors import ClusterError, InputError
from cotide_kube.answers import ApiError
from cotide_operator.provisioning import placing


def test_a_mistake_in_the_file_is_told_with_its_line(scene):
    text = scene.file.read_text().replace("serviceRate: 50", "serviceRate: fast")
    scene.file.write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), start=1) if "serviceRate" in one)
    assert str(scene.run().exception).startswith(f"{scene.file}:{line}: serviceRate: ")


def test_a_dry_run_says_what_would_be_set_and_sets_nothing(scene):
    turn = scene.turn()
    assert turn["wanted"] == {"east": 4, "west": 0}
    assert turn["applied"] is False
    assert scene.replicas() == [0, 0]


def test_a_move_raises_first_and_lowers_when_the_others_are_ready(scene):
    scene.turn("--apply")
    assert scene.replicas() == [4, 0]
    scene.make_ready("east", 4)
    scene.forecast(100, (9.0, 2.0))
    assert scene.turn("--apply")["waiting"] == ["east"]
    assert scene.replicas() == [4, 4], "east stays until west is ready"
    scene.make_ready("west", 4)
    scene.turn("--apply")
    assert scene.replicas() == [0, 4]


def test_a_lost_clusters_demand_goes_to_the_others_and_it_is_only_read_when_it_is_back(scene):
    scene.turn("--apply")
    scene.make_ready("east", 4)
    scene.write_kubeconfig(east="http://127.0.0.1:1")
    turn = scene.turn("--apply")
    assert (turn["lost"], turn["wanted"]) == (["east"], {"west": 4})
    scene.make_ready("west", 4)
    scene.write_kubeconfig()
    turn = scene.turn("--apply")
    assert turn["back"] == ["east"]
    assert scene.replicas() == [4, 4], "nothing is touched in the turn in which it is back"
    scene.turn("--apply")
    assert scene.replicas() == [4, 0]


def test_why_a_cluster_is_lost_is_said_and_without_any_nothing_is_placed(scene):
    scene.write_kubeconfig(east="http://127.0.0.1:1")
    said = scene.run().stderr
    assert "cotide: east is lost: the API server http://127.0.0.1:1 (" in said
    assert "nothing listens there" in said
    scene.write_kubeconfig(east="http://127.0.0.1:1", west="http://127.0.0.1:2")
    error = scene.run().exception
    assert isinstance(error, ClusterError), "no mistake of the user's"
    for name, port in (("east", 1), ("west", 2)):
        assert f"{name}: the API server http://127.0.0.1:{port} " in str(error)


ONE_CENTRE = """deployment: web
delaySeconds: 0.1
serviceRate: 50
centres:
  - {name: east, context: east, servers: 10, delays: {all: 0.08}, egress: {all: 0.0}}
"""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("demand.csv", "all\nmany\n", "is not a number"),
        ("demand.csv", "other\n1\n", "lacks column 'all'"),
        ("prices.csv", "east,west\n1,nan\n2,2\n", "is not"),
        ("prices.csv", "east,west\n1,1\n", "has 1 rows"),
        ("prices.csv", "east,west,west\n1,1,9\n1,1,9\n", "prices.csv:1: west: the header names this column more"),
        ("demand.csv", "all\n1\n1e12\n", "demand.csv:3: all: '1e12' is beyond"),
        ("prices.csv", "east,west\n1,1\n1,-1e12\n", "prices.csv:3: west: '-1e12' is beyond"),
        ("place.yaml", ONE_CENTRE + "size: 1.0e-300\n", "place.yaml:6: size: "),
        ("place.yaml", ONE_CENTRE.replace("0.08", "-1"), "place.yaml:5: centres[0].delays.all: "),
        (
            "place.yaml",
            ONE_CENTRE.replace("egress: {all: 0", "egress: {all: -1"),
            "place.yaml:5: centres[0].egress.all: ",
        ),
        ("state", "", "state: --state: is not a JSON list of lost clusters"),
        ("state", '["east"', "state: --state: is not a JSON list of lost clusters"),
        ("state", '{"east": 1}', "state: --state: is not a JSON list of lost clusters"),
        ("state", "[" * 100_000, "state: --state: is not a JSON list of lost clusters"),
        ("place.yaml", "deployment: web\n", "centres"),
        (
            "place.yaml",
            ONE_CENTRE.replace("delaySeconds", "delaySecond"),
            "place.yaml:2: delaySecond: is not a setting; there are centres, services, ",
        ),
        ("place.yaml", ONE_CENTRE.replace("delaySeconds", "delaySecond"), "; did you mean delaySeconds?"),
        ("place.yaml", ONE_CENTRE.replace("servers", "server"), "; did you mean servers?"),
        ("place.yaml", ONE_CENTRE.replace("serviceRate: 50\n", ""), "serviceRate: is missing"),
        ("place.yaml", "[", "place.yaml:1: is not YAML"),
    ],
)
def test_mistakes_are_told_in_one_line(scene, name, text, words):
    (scene.directory / name).write_text(text)
    mistake = scene.run().exception
    assert isinstance(mistake, InputError)
    assert words in str(mistake)
    assert "\n" not in str(mistake)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("nowhere", "centres[west].context 'nowhere': "),
        ("east", "centres must have different contexts: two would set one Deployment by 'east'"),
    ],
)
def test_a_context_that_is_missing_or_named_twice_is_told_and_nothing_is_set(scene, context, words):
    scene.file.write_text(scene.file.read_text().replace("context: west", f"context: {context}"))
    mistake = scene.run("--apply").exception
    assert isinstance(mistake, InputError)
    assert words in str(mistake)
    assert scene.replicas() == [0, 0]


def test_a_cluster_that_refuses_is_named(scene):
    requests.delete(f"{scene.urls['west']}{DEPLOYMENTS}/web", timeout=10)
    assert str(scene.run("--apply").exception).startswith("west: GET ")


def test_a_state_that_can_not_be_written_is_told_before_anything_is_set(scene):
    mistake = scene.run("--apply", "--state", scene.directory / "missing" / "state").exception
    assert isinstance(mistake, InputError)
    assert "can't be written" in str(mistake)
    assert scene.replicas() == [0, 0]


def test_more_rows_than_are_planned_for_are_told_with_their_file(scene):
    (scene.directory / "demand.csv").write_text("all\n" + "1\n" * 1001)
    (scene.directory / "prices.csv").write_text("east,west\n" + "1,1\n" * 1001)
    assert "demand.csv: has 1001 rows from now on, at most 1000" in str(scene.run().exception)


def test_a_table_that_a_spreadsheet_saved_begins_with_a_mark_and_is_read(scene):
    for name in ("demand.csv", "prices.csv"):
        file = scene.directory / name
        file.write_text(file.read_text(), encoding="utf-8-sig")
    assert scene.turn()["wanted"] == {"east": 4, "west": 0}


def test_a_full_disk_leaves_the_state_as_it_was(scene, monkeypatch):
    state = scene.directory / "state"
    state.write_text('["west"]')

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    mistake = scene.run("--apply").exception
    assert "state: --state: can't be written: No space left on device" in str(mistake)
    assert state.read_text() == '["west"]'
    assert sorted(one.name for one in scene.directory.iterdir() if "state" in one.name) == ["state"]
    assert scene.replicas() == [0, 0]


def test_a_cluster_that_is_lost_half_way_is_remembered_as_lost(scene, monkeypatch):
    def lost(*_):
        raise ClusterError("no answer")

    monkeypatch.setattr(place_turns, "scale", lost)
    assert "east: no answer; what follows was not set" in str(scene.run("--apply").exception)
    monkeypatch.undo()
    assert scene.turn("--apply")["back"] == ["east"]
    assert scene.replicas() == [0, 0], "nothing is touched in the turn in which it is back"
    scene.turn("--apply")
    assert scene.replicas() == [4, 0]


def test_ctrl_c_while_replicas_are_set_forgets_no_lost_cluster(scene, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(place_turns, "scale", interrupted)
    scene.write_kubeconfig(east="http://127.0.0.1:1")
    scene.run("--apply")
    monkeypatch.undo()
    scene.write_kubeconfig()
    assert scene.turn("--apply")["back"] == ["east"]


@pytest.mark.parametrize(("status", "lost"), [(503, True), (500, True), (403, False), (404, False)])
def test_a_server_error_is_no_answer_and_a_refusal_is_one(status, lost):
    assert placing.no_answer(ApiError(status, "Reason", "words")) is lost


def test_what_rises_is_set_before_what_falls_whatever_their_order_in_the_file(scene, monkeypatch):
    settings = place_turns.read_settings(scene.file)
    turns = {placing.ONE_SERVICE: SimpleNamespace(set_now={"east": 1, "west": 4}, lost=())}
    seen = {placing.ONE_SERVICE: {"east": placing.Seen(4, 4), "west": placing.Seen(3, 9)}}
    done = []

    async def scale(_client, _service, replicas):
        done.append(replicas)

    monkeypatch.setattr(place_turns, "scale", scale)
    kubeconfig, lost = str(scene.directory / "kubeconfig"), place_turns.LostClusters(None)
    asyncio.run(place_turns.apply_turns(settings, turns, seen, kubeconfig, lost))
    assert done == [4, 1]


def test_prices_by_prometheus_need_no_file_and_a_missing_one_sets_nothing(scene):
    answers = {"e": "1.0", "w": "2.0"}

    class Prometheus(BaseHTTPRequestHandler):
        def do_GET(self):
            query = parse_qs(urlsplit(self.path).query)["query"][0]
            result = [{"metric": {}, "value": [0, answers[query]]}] if query in answers else []
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Prometheus) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        service = yaml.safe_load(scene.file.read_text())
        service["prometheus"] = {"url": f"http://127.0.0.1:{server.server_address[1]}"}
        for centre, query in zip(service["centres"], "ew", strict=True):
            centre["priceQuery"] = query
        scene.file.write_text(yaml.safe_dump(service))
        (scene.directory / "prices.csv").unlink()
        fixed = [scene.file, "--demand", scene.directory / "demand.csv", "--kubeconfig", scene.directory / "kubeconfig"]
        words = [*map(str, fixed), "-o", "json", "--apply"]
        run = CliRunner().invoke(command, words, standalone_mode=False)
        assert json.loads(run.stdout)["wanted"] == {"east": 4, "west": 0}, "east is the cheaper one"
        del answers["w"]
        mistake = CliRunner().invoke(command, words, standalone_mode=False).exception
        server.shutdown()
    assert "the price of west is not known" in str(mistake)
    assert scene.replicas() == [4, 0], "as the last turn left them"
