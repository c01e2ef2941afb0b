"""`cotide place` from a user's chair, on two embedded API servers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import yaml
from click.testing import CliRunner

from cotide_cli.provisioning.place_command import command
from cotide_core.errors import InputError
from cotide_sim.apiserver.testing import server_in_thread

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WEB = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
    "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
             "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
}  # fmt: skip
# 0.02 s are left of 0.1 s, so a replica of 50 requests a second takes 25.
SERVICE = {
    "deployment": "web",
    "delaySeconds": 0.1,
    "serviceRate": 50,
    "centres": [
        {"name": "east", "context": "east", "servers": 10, "delays": {"all": 0.08}},
        {"name": "west", "context": "west", "servers": 10, "delays": {"all": 0.08}},
    ],
}


class Scene:
    def __init__(self, directory, urls):
        self.directory, self.urls = directory, dict(urls)
        self.file = directory / "place.yaml"
        self.file.write_text(yaml.safe_dump(SERVICE))
        self.write_kubeconfig()
        self.forecast(100, (1.0, 2.0))
        for url in self.urls.values():
            assert requests.post(url + DEPLOYMENTS, json=WEB, timeout=10).status_code == 201

    def write_kubeconfig(self, **moved):
        urls = {**self.urls, **moved}
        config = {
            "apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": name, "cluster": {"server": url}} for name, url in urls.items()],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}} for name in urls],
        }  # fmt: skip
        (self.directory / "kubeconfig").write_text(yaml.safe_dump(config))

    def forecast(self, rate, prices):
        (self.directory / "demand.csv").write_text(f"all\n{rate}\n{rate}\n")
        row = ",".join(map(str, prices))
        (self.directory / "prices.csv").write_text(f"east,west\n{row}\n{row}\n")

    def run(self, *arguments):
        here = self.directory
        fixed = [self.file, "--demand", here / "demand.csv", "--prices", here / "prices.csv", "--state", here / "state"]
        words = [str(word) for word in (*fixed, "--kubeconfig", here / "kubeconfig", "-o", "json", *arguments)]
        return CliRunner().invoke(command, words, standalone_mode=False)

    def turn(self, *arguments):
        return json.loads(self.run(*arguments).stdout)

    def replicas(self):
        return [
            requests.get(f"{url}{DEPLOYMENTS}/web", timeout=10).json()["spec"]["replicas"] for url in self.urls.values()
        ]

    def make_ready(self, name, count):
        body = {"status": {"replicas": count, "readyReplicas": count}}
        headers = {"Content-Type": "application/merge-patch+json"}
        url = f"{self.urls[name]}{DEPLOYMENTS}/web/status"
        assert requests.patch(url, data=json.dumps(body), headers=headers, timeout=10).status_code == 200


@pytest.fixture
def scene(tmp_path):
    with ExitStack() as stack:
        urls = {name: stack.enter_context(server_in_thread()).url for name in ("east", "west")}
        yield Scene(tmp_path, urls)


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


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("demand.csv", "all\nmany\n", "is not a number"),
        ("demand.csv", "other\n1\n", "lacks column 'all'"),
        ("prices.csv", "east,west\n1,nan\n2,2\n", "is not"),
        ("prices.csv", "east,west\n1,1\n", "has 1 rows"),
        ("place.yaml", "deployment: web\n", "centres"),
        ("place.yaml", "[", "place.yaml:1: is not YAML"),
    ],
)
def test_mistakes_are_told_in_one_line(scene, name, text, words):
    (scene.directory / name).write_text(text)
    mistake = scene.run().exception
    assert isinstance(mistake, InputError)
    assert words in str(mistake)
    assert "\n" not in str(mistake)


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
