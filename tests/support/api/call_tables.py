"""What random calls are made of: contents of objects, patches, selectors, options, by the words that calls name them.

Read by `api_calls`.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]
OURS: Final = "cotide.dev/v1alpha1"
BASES: Final = {
    "configmaps": "/api/v1",
    "pods": "/api/v1",
    "jobs": f"/apis/{OURS}",
    "workloads": f"/apis/{OURS}",
    "leases": "/apis/coordination.k8s.io/v1",
    "nodes": "/api/v1",
    "events": "/api/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "resourcequotas": "/api/v1",
}
KIND: Final = {
    "configmaps": ("v1", "ConfigMap"),
    "pods": ("v1", "Pod"),
    "jobs": (OURS, "Job"),
    "workloads": (OURS, "Workload"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
    "nodes": ("v1", "Node"),
    "events": ("v1", "Event"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "resourcequotas": ("v1", "ResourceQuota"),
}
CLUSTER_WIDE: Final = frozenset({"nodes"})
"""Kinds without namespaces: their names begin with the namespace of the calls."""
PLAIN: Final = frozenset(BASES) - {"pods", "jobs", "workloads"}
"""Kinds of which calls patch what they have, and nothing else: the emulator keeps unknown fields of built-in kinds."""
POD_SPEC: Final = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]}


def owner(name: str, uid: str = "22222222-2222-2222-2222-222222222222", **more: Any) -> Json:
    """Return a reference to an owner; a ConfigMap, if nothing else is said."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, **more}


CONTENT: Final[dict[str, Json]] = {
    "configmaps": {"data": {"k": "v"}},
    "pods": {"spec": POD_SPEC},
    "jobs": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}},
    "workloads": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}, "replicas": 1}},
    "leases": {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    "nodes": {"spec": {"providerID": "test://x"}},
    "events": {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "THE SPACE"}, "reason": "Tried"},
    # Of nobody's pods, and of what no call makes: no controller runs here that would fill in their statuses, without
    # which a real server refuses evictions and new objects; the emulator fills in the one and has no quotas.
    "poddisruptionbudgets": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "nobody"}}}},
    "resourcequotas": {"spec": {"hard": {"services": "5"}}},
}
METADATA: Final[dict[str, Json]] = {
    "plain": {},
    "labelled": {"labels": {"app": "x", "tier": "1"}},
    "annotated": {"annotations": {"note": "n"}},
    "finalized": {"finalizers": ["cotide.dev/test"]},
    "bad label": {"labels": {"app": "not a label!"}},
    "bad finalizer": {"finalizers": ["nodomain"]},
    "bad name": {"name": "Bad_Name"},
    "no name": {"name": None},
    "generated": {"name": None, "generateName": "g-"},
    "elsewhere": {"namespace": "elsewhere"},
    "versioned": {"resourceVersion": "1"},
    "two controllers": {"ownerReferences": [owner("x", controller=True), owner("y", controller=True)]},
    "owner without uid": {"ownerReferences": [owner("x", uid="")]},
    "owner without kind": {"ownerReferences": [owner("x", kind="")]},
}
MERGE: Final[dict[str, Any]] = {
    "label": {"metadata": {"labels": {"app": "y"}}},
    "unlabel": {"metadata": {"labels": None}},
    "annotate": {"metadata": {"annotations": {"a": "1"}}},
    "number label": {"metadata": {"labels": {"n": 1}}},
    "rename": {"metadata": {"name": "other"}},
    "stale": {"metadata": {"resourceVersion": "1", "labels": {"z": "z"}}},
    "other uid": {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}},
    "finalize": {"metadata": {"finalizers": ["cotide.dev/test"]}},
    "unfinalize": {"metadata": {"finalizers": None}},
    "data": {"data": {"x": "y"}},
    "nothing": {},
    "a list": [],
    "spec": {"spec": {"priority": 7}},
    "image": {"spec": {"containers": [{"name": "c", "image": "z"}]}},
    "status": {"status": {"phase": "Running"}},
}
OWN_MERGE: Final[dict[str, dict[str, Any]]] = {
    "leases": {
        "renew": {"spec": {"renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 2}},
        "give up": {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}},
        "no time": {"spec": {"leaseDurationSeconds": 0}},
        "back": {"spec": {"leaseTransitions": -1}},
        "no moment": {"spec": {"renewTime": "yesterday"}},
    },
    "nodes": {
        "cordon": {"spec": {"unschedulable": True}},
        "uncordon": {"spec": {"unschedulable": None}},
        "provider": {"spec": {"providerID": "test://y"}},
        "in words": {"spec": {"unschedulable": "yes"}},
    },
    "events": {
        "count": {"count": 2, "message": "again"},
        "many": {"count": "two"},
        "about": {"involvedObject": {"name": "q"}},
    },
    "poddisruptionbudgets": {
        "two": {"spec": {"minAvailable": "50%"}},
        "both": {"spec": {"maxUnavailable": 1}},
        "below none": {"spec": {"minAvailable": -1}},
        "other pods": {"spec": {"selector": {"matchLabels": {"app": "none"}}}},
    },
    "resourcequotas": {
        "more": {"spec": {"hard": {"services": "7"}}},
        "below none": {"spec": {"hard": {"services": "-1"}}},
        "half": {"spec": {"hard": {"services": "500m"}}},
        "in words": {"spec": {"hard": {"services": "many"}}},
    },
}
"""Patches of fields that only one kind has."""
JSON_PATCH: Final[dict[str, Any]] = {
    "add label": [{"op": "add", "path": "/metadata/labels", "value": {"j": "1"}}],
    "replace missing": [{"op": "replace", "path": "/metadata/annotations/none", "value": "1"}],
    "remove missing": [{"op": "remove", "path": "/metadata/annotations/none"}],
    "test fails": [{"op": "test", "path": "/metadata/name", "value": "zzz"}],
    "test holds": [{"op": "test", "path": "/kind", "value": "Pod"}],
    "no op": [{"path": "/metadata/name"}],
    "bad op": [{"op": "frobnicate", "path": "/metadata/name", "value": 1}],
    "an object": {"op": "add"},
    "empty": [],
}
STRATEGIC: Final[dict[str, Any]] = {
    "label": {"metadata": {"labels": {"s": "1"}}},
    "finalize": {"metadata": {"finalizers": ["cotide.dev/second"]}},
    "unfinalize": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["cotide.dev/second"]}},
    "image": {"spec": {"containers": [{"name": "c", "image": "w"}]}},
}
MISTAKES: Final = ("dryRun=Some", "no kind", "other kind", "no json")
LIST_QUERIES: Final = (
    "limit=1",
    "limit=2&labelSelector=app%3Dx",
    "limit=500",
    "limit=0",
    "limit=x",
    "continue=nonsense",
    "resourceVersion=0",
    "resourceVersion=abc",
    "resourceVersionMatch=Exact",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersion=1&resourceVersionMatch=Sometimes",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
)
SCALES: Final[dict[str, Any]] = {
    "read": None,
    "three": {"spec": {"replicas": 3}},
    "below none": {"spec": {"replicas": -1}},
    "in words": {"spec": {"replicas": "three"}},
    "stale": {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}},
}
SHOW: Final = ("", "", "", "dryRun=All")
LABEL_SELECTORS: Final = (
    "app=x",
    "app!=x",
    "app in (x,y)",
    "app notin (x)",
    "!app",
    "app",
    "tier=1,app=x",
    "",
    "app in",
    "=x",
    "a b",
)
FIELD_SELECTORS: Final = (
    "metadata.name=a",
    "metadata.name!=a",
    "spec.nodeName=",
    "spec.nodeName=n1",
    "status.phase=Pending",
    "spec.nonsense=1",
    "metadata.name",
)
DELETE: Final[dict[str, Json]] = {
    "plainly": {},
    "at once": {"gracePeriodSeconds": 0},
    "in a while": {"gracePeriodSeconds": 5},
    "another": {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}},
    "that very one": {"preconditions": {"uid": "THE UID"}},
    "another version": {"preconditions": {"resourceVersion": "1"}},
    "background": {"propagationPolicy": "Background"},
    "nonsense": {"propagationPolicy": "Sideways"},
    "for show": {"dryRun": ["All"]},
    "two ways": {"propagationPolicy": "Background", "orphanDependents": True},
}  # fmt: skip
