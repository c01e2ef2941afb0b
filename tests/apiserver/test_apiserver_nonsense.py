"""Whatever a client sends, the server answers with a refusal and never with a fault of its own."""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import orjson
import pytest

from cotide_sim.apiserver.http.http_protocol import Answer, Request
from cotide_sim.apiserver.server import ApiServer

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}},
            },
        }
    },
}
CONTAINER = {
    "name": "c",
    "image": "i",
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 80}],
    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
}
OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/default/pods": {
        "metadata": {
            "name": "x",
            "labels": {"a": "b"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}],
        },
        "spec": {
            "containers": [CONTAINER],
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "nodeSelector": {"a": "b"},
            "schedulingGates": [{"name": "g"}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "/api/v1/nodes": {
        "metadata": {"name": "x"},
        "status": {"capacity": {"cpu": "1"}, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    },
    "/api/v1/namespaces": {"metadata": {"name": "x"}, "spec": {"finalizers": ["kubernetes"]}},
    "/api/v1/namespaces/default/services": {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}},
    "/api/v1/namespaces/default/secrets": {"metadata": {"name": "x"}, "stringData": {"a": "b"}},
    "/api/v1/namespaces/default/events": {
        "metadata": {"name": "x"},
        "involvedObject": {"kind": "Pod", "name": "x"},
        "series": {"lastObservedTime": "2026-01-01T00:00:00Z"},
    },
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
        "metadata": {"name": "x"},
        "spec": {
            "minAvailable": "50%",
            "selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        },
    },
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"metadata": {"name": "x"}, "value": 5, "globalDefault": True},
    "/apis/apps/v1/namespaces/default/deployments": {"metadata": {"name": "x"}, "spec": {"replicas": 2}},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "gadgets.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": SCHEMA},
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size"}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                }
            ],
        },
    },
    "/apis/example.dev/v1/namespaces/default/gadgets": {
        "metadata": {"name": "x", "finalizers": ["a/b"]},
        "spec": {"size": 1, "parts": [{"id": "a"}]},
    },
}
JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 10**18, "", "x", "1Gi", "50%", "\x00", [], {}, [1], ["a"], {"a": 1}, [None], [[]], [{}],
    {"$patch": "delete"}, [{"$patch": "replace"}],
)  # fmt: skip
FIELDS = ("zz", "", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers")
PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def spoiled(rng: random.Random, value: Any) -> Any:
    """Return a copy with something in it taken away, put in, or replaced by junk."""
    result = copy.deepcopy(value)
    node = result
    while True:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        inner = node[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.3:
            break
        node = inner
    junk = copy.deepcopy(rng.choice(JUNK))
    if rng.random() < 0.75 or isinstance(node, list):
        node[key] = junk
    elif rng.random() < 0.5:
        del node[key]
    else:
        node[rng.choice(FIELDS)] = junk
    return result


class Exchange:
    """Takes the answer of a request that was made without a connection."""

    done = False
    on_close = None

    def __init__(self) -> None:
        self.status = 200

    def answer(self, answer: Answer) -> None:
        self.status = answer.status


@pytest.mark.parametrize("seed", range(4))
async def test_spoiled_requests_are_refused_and_never_met_with_a_fault(seed: int) -> None:
    rng = random.Random(seed)
    async with ApiServer() as server:
        seen: Counter[int] = Counter()

        def ask(method: str, path: str, body: Any = None, kind: str = "json", accept: str = "") -> None:
            exchange = Exchange()
            headers = {"content-type": f"application/{kind}", "accept": accept}
            data = b"" if body is None else orjson.dumps(body)
            server.dispatcher(Request(method, path, {}, headers, data), exchange)  # type: ignore[arg-type] # all it asks of an exchange
            assert exchange.status != 500, (method, path, kind, body)
            seen[exchange.status] += 1

        for step in range(1500):
            if step % 250 == 0:
                for path, obj in OBJECTS.items():
                    ask("POST", path, copy.deepcopy(obj))
            path = rng.choice(list(OBJECTS))
            obj = OBJECTS[path]
            one = f"{path}/{obj['metadata']['name']}"
            body = spoiled(rng, obj)
            subresource = rng.choice(["", "", "/status", "/scale"])
            match rng.randrange(7):
                case 0 | 1:
                    ask("POST", path, body)
                case 2:
                    ask("PUT", one + subresource, body)
                case 3:
                    ask("PATCH", one + subresource, body, rng.choice(PATCHES))
                case 4:
                    ask("GET", path, accept=TABLE)
                case 5:
                    action, junk = (
                        rng.choice(["binding", "eviction"]),
                        {"metadata": {"name": "x"}, "target": {"name": "n"}},
                    )
                    ask("POST", f"{one}/{action}", spoiled(rng, junk))
                case 6:
                    ask("DELETE", one, spoiled(rng, {"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}}))
        # The walk is no use if everything is refused at the door.
        assert {200, 201, 400, 404, 409, 422} <= seen.keys()
