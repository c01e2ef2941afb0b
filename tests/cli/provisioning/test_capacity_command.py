"""`cotide capacity` from a user's chair, on the embedded API server."""

from __future__ import annotations

import json
import re
import sys

import pytest
from click.testing import CliRunner
from manifests import node_manifest, pod_manifest

from cotide_cli.provisioning.capacity_command import command
from cotide_core.errors import InputError
from cotide_sim.apiserver.testing import server_in_thread

CONFIG = """apiVersion: cotide.dev/v1alpha1
kind: CotideConfiguration
provisioning:
  machineTypes:
    - {name: small, cpu: "4", memory: 8Gi, count: 10, idleWatts: 60, peakWatts: 150}
    - {name: wide, cpu: "4", memory: 64Gi, count: 4, idleWatts: 90, peakWatts: 200}
"""


def node(name, kind):
    """A node of a kind, by its label."""
    made = node_manifest(name)
    made["metadata"]["labels"] = {"node.kubernetes.io/instance-type": kind}
    return made


@pytest.fixture
def scene(tmp_path):
    with server_in_thread() as handle:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(handle.kubeconfig())
        config = tmp_path / "config.yaml"
        config.write_text(CONFIG)

        def put(path, body):
            import requests

            answer = requests.post(handle.url + path, json=body, timeout=10)
            assert answer.status_code == 201, answer.text

        def run(*arguments):
            fixed = ["--config", str(config), "--kubeconfig", str(kubeconfig)]
            return CliRunner().invoke(command, [*fixed, *map(str, arguments)], standalone_mode=False)

        yield run, put, config


def test_the_plan_follows_the_pods_and_changes_nothing(scene):
    run, put, _ = scene
    put("/api/v1/nodes", node("n-1", "small"))
    put("/api/v1/nodes", node("n-2", "other"))
    for number in range(6):
        put("/api/v1/namespaces/default/pods", pod_manifest(f"wide-{number}", "1", "20Gi", labels={}))
    done = run("-o", "json")
    document = json.loads(done.stdout)
    # Six pods of 20 GiB fit on wide machines only; small ones have nothing to do.
    assert document["on"] == {"small": 1, "wide": 0}
    last = document["steps"][-1]["machines"]
    assert last["small"] == 0
    assert last["wide"] >= 2
    assert document["unknownNodes"] == ["n-2"]
    assert document["sent"] is None
    table = run().stdout
    assert "advice only: nothing was changed" in table
    assert "left alone, of no known type: n-2" in table


def test_apply_once_orders_each_node_once_whatever_the_command_answers(scene, tmp_path):
    run, put, config = scene
    log = tmp_path / "log"
    code = f"import sys; open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    config.write_text(CONFIG + f"  actuator: {{command: [{json.dumps(sys.executable)}, -c, {json.dumps(code)}]}}\n")
    for number in range(6):
        put("/api/v1/namespaces/default/pods", pod_manifest(f"wide-{number}", "1", "20Gi", labels={}))
    dry = run("--apply", "--dry-run")
    assert re.search(r"would be sent: start capacity-\w+-wide-1 \(wide\)", dry.stdout)
    assert not log.exists()
    assert re.search(r"sent: start capacity-\w+-wide-1 \(wide\)", run("--apply").stdout)
    first = log.read_text().splitlines()
    assert len(set(first)) == len(first) >= 2
    assert "nothing sent" in run("--apply").stdout, "the nodes are on their way"
    assert log.read_text().splitlines() == first


def test_a_history_teaches_what_will_come(scene, tmp_path):
    run, _, config = scene
    config.write_text(CONFIG + "  serviceLevel: 0.75\n")
    rows = [f"{at},600,1000,{20 * 2**30},0" for at in range(0, 6 * 3600, 300)]
    history = tmp_path / "tasks.csv"
    history.write_text("arrival_seconds,run_seconds,cpu_millicores,memory_bytes,priority\n" + "\n".join(rows) + "\n")
    document = json.loads(run("--history", history, "-o", "json").stdout)
    # One task every five minutes that runs ten: two at a time.
    (levels,) = document["steps"][-1]["demand"].values()
    assert levels["0.5"] == pytest.approx(2.0, abs=0.8)
    assert document["steps"][-1]["machines"]["wide"] >= 1


@pytest.mark.parametrize(
    ("extra", "arguments", "words"),
    [
        ("", (), "no pod and no history"),
        ("", ("--apply",), "names no actuator"),
        ("", ("--dry-run",), "--apply"),
        ("", ("--plan", "--apply"), "together"),
        ("  stepSeconds: 0\n", (), "greater than or equal to 10"),
        ("  pricePerKilowattHour: .nan\n", (), "finite"),
        ("  actuator: {command: [x], url: 'http://y'}\n", (), "exactly one of"),
        ("  actuator: {scales: {huge: /apis/apps/v1/namespaces/d/deployments/x}}\n", (), "none of machineTypes"),
    ],
)
def test_mistakes_are_told_in_one_line(scene, extra, arguments, words):
    run, _, config = scene
    config.write_text(CONFIG + extra)
    mistake = run(*arguments).exception
    assert isinstance(mistake, InputError)
    assert words in str(mistake)
    assert "\n" not in str(mistake)


def test_a_configuration_without_the_section_is_told(scene):
    run, _, config = scene
    config.write_text("apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n")
    assert "no provisioning section" in str(run().exception)
