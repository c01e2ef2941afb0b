"""The pods and nodes that schedulers race over: all alike, or as varied and as large as on a cluster in use.

Used by `real_race` and `bench_extender`. The pods are the same for everyone but for their names and ``schedulerName``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

TYPES: Final = ("grep", "md5", "randsample", "wordcount", "terasort", "select", "aggregate", "join")
TEMPLATES: Final = 50
"""Templates of varied pods, chosen: as many Jobs and Deployments with labels, variables and requests of their own."""
ZONES: Final = 3
IMAGES: Final = 400
"""Images of a cluster, chosen; each node has some of them, and each template one."""
IMAGE_BYTES: Final = (12, 45, 90, 180, 420, 950)
"""Sizes of images in MB, in turn; chosen, around the 23 MiB to 1,000 MiB that kube-scheduler tells apart."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variety:
    """How pods and nodes differ.

    Attributes
    ----------
    kilobytes : sizes of pods in JSON, as created, in turn; empty: about .4 kB each, all from one template.
    images : images that a node has, 0 to `IMAGES`; a kubelet tells of 50 at most.
    """

    kilobytes: tuple[float, ...] = ()
    images: int = 0

    def pod(self, name: str, scheduler: str, index: int = 0) -> Json:
        """Return one pod to place: a batch job's, of one of eight types."""
        annotations = {"cotide.dev/type": TYPES[index % len(TYPES)], "cotide.dev/input-size": f"{2 + index % 8}Gi"}
        container: Json = {
            "name": "main",
            "image": self.image(index % TEMPLATES),
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }
        made: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"app": "race", "cotide.dev/class": "batch"},
                "annotations": annotations,
            },
            "spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]},
        }
        return self._filled(made, index) if self.kilobytes else made

    def image(self, template: int) -> str:
        """Return a template's image: one for all where nodes name none."""
        return f"registry.example/team-{template % 7}/app-{template * 8 % IMAGES}:v1" if self.images else "pause"

    def node_images(self, index: int) -> list[Json]:
        """Return ``status.images`` of a node: its share of the cluster's images, each with two names."""
        found = []
        for number in ((index * 7 + one * 3) % IMAGES for one in range(self.images)):
            name = f"registry.example/team-{number // 8 % 7}/app-{number}"
            names = [f"{name}@sha256:{number:064x}", f"{name}:v1"]
            found.append({"names": names, "sizeBytes": IMAGE_BYTES[number % len(IMAGE_BYTES)] * 1_000_000})
        return found

    def _filled(self, pod: Json, index: int) -> Json:
        """Add a template's labels, requests and variables, up to the size in turn."""
        template, wanted = index % TEMPLATES, int(1_000 * self.kilobytes[index % len(self.kilobytes)])
        pod["metadata"]["labels"] |= {
            "app.kubernetes.io/name": f"job-{template}",
            "app.kubernetes.io/part-of": f"pipeline-{template % 9}",
            "example.com/owner": f"team-{template % 7}",
        }
        pod["spec"]["tolerations"] = [{"key": "example.com/batch", "operator": "Exists", "effect": "NoSchedule"}]
        [container] = pod["spec"]["containers"]
        container["resources"]["requests"] = {"cpu": f"{50 + 10 * (template % 8)}m", "memory": f"{64 + template}Mi"}
        container["env"] = variables = []
        # Without the name and the scheduler's, which differ in length, so that racers get the same pods.
        size = len(json.dumps({**pod, "spec": {**pod["spec"], "schedulerName": ""}}, separators=(",", ":")))
        size -= len(pod["metadata"]["name"])
        while size < wanted:
            one = {"name": f"SETTING_{template}_{len(variables)}", "value": ""}
            empty = len(json.dumps(one, separators=(",", ":"))) + 1
            one["value"] = f"{template:02d}{len(variables):03d}" * 12
            one["value"] = one["value"][: max(0, wanted - size - empty)]
            variables.append(one)
            size += empty + len(one["value"])
        return pod
