"""Two clusters, a placement file, forecasts, and `cotide place` over them."""

from __future__ import annotations

import json

import requests
import yaml
from click.testing import CliRunner

from cotide_cli.provisioning.place_command import command
from cotide_operator.apis.crd_generation import RESOURCES, definition

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKLOADS = "/apis/cotide.dev/v1alpha1/namespaces/default/workloads"
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


API = {
    "apiVersion": "cotide.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "api"},
    "spec": {"replicas": 0, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
}  # fmt: skip


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

    def add_api(self):
        """Make a Workload beside the Deployment in both clusters, and a file that places both."""
        for url in self.urls.values():
            for resource in RESOURCES:
                assert requests.post(url + DEFINITIONS, json=definition(resource), timeout=10).status_code == 201
            made = requests.post(url + WORKLOADS, json=API, timeout=10)
            assert made.status_code == 201, made.text
        rules = {"delaySeconds": 0.1, "serviceRate": 50}
        services = {"web": {"deployment": "web", **rules}, "api": {"workload": "api", **rules}}
        self.file.write_text(yaml.safe_dump({"centres": SERVICE["centres"], "services": services}, sort_keys=False))
        (self.directory / "demand.csv").write_text("web/all,api/all\n100,50\n100,50\n")

    def replicas_of_api(self):
        return [
            requests.get(f"{url}{WORKLOADS}/api", timeout=10).json()["spec"]["replicas"] for url in self.urls.values()
        ]
