"""Bounds of all input from outside: depth, bytes, counts and magnitudes, each with its source.

Used wherever raw text or objects are translated (watch lines, annotations, statuses read back, reviews, metric answers,
model manifests, ledgers, traces) and by the generated custom resource definitions. A value beyond a bound is refused
with the name of its field, or clamped if the bound means the same; the reader of the value documents its choice.
Invariant: sums over all pods that a kubelet admits to one node stay within int64, and products of two of these numbers
within float64.
"""

from __future__ import annotations

from typing import Final

MAX_EXACT_INT: Final = 2**53
"""Largest magnitude with an exact float64 for every whole number (IEEE 754). An int64 holds the sum of 1,023 of them;
nodes admit 110 pods by default (kubelet, ``maxPods``).
"""
INT32_MOST: Final = 2**31 - 1
"""Kubernetes keeps priorities, replicas and counters as int32 (k8s.io/api/core/v1)."""

OBJECT_BYTES: Final = 3 * 1024 * 1024
"""Largest request that an API server reads (k8s.io/apiserver, MaxRequestBodyBytes); etcd stores half of that
(--max-request-bytes, 1.5 MiB).
"""
LINE_BYTES: Final = 4 * OBJECT_BYTES
"""A line of a watch: an object as JSON, with managed fields that name each field again, in an envelope. Chosen."""
CUSTOM_OBJECT_BYTES: Final = 384 * 1024
"""A Job or Workload with its managed fields, as JSON. Chosen: decoding any content of this size takes below 40 ms. A
pod template of 5 KB, repeated in the managed fields of ten writers, takes 50 KB.
"""
ANNOTATIONS_BYTES: Final = 256 * 1024
"""All annotations of an object together (apimachinery, TotalAnnotationSizeLimitB)."""
DEPTH: Final = 64
"""Levels of nested objects and lists in input. Chosen: the deepest field of a pod lies 14 levels below it. API servers
take 10,000 (Go's encoding/json, maxNestingDepth), which exceeds Python's recursion limit.
"""

NAME_CHARACTERS: Final = 253
"""A name of an object (RFC 1123 subdomain; apimachinery, DNS1123SubdomainMaxLength)."""
LABEL_CHARACTERS: Final = 63
"""A label's value (apimachinery, LabelValueMaxLength); job types are as long."""
QUALIFIED_NAME_CHARACTERS: Final = 317
"""A label's key or a resource's name: prefix, slash, name (253 + 1 + 63)."""

QUANTITY_CHARACTERS: Final = 64
"""Chosen: API servers write a quantity in at most 25 characters; a user needs no more."""
TIMESTAMP_CHARACTERS: Final = 64
"""RFC 3339 with nanoseconds and zone takes 35."""
NUMBER_CHARACTERS: Final = 32
"""A plain number in an annotation: float64 in its shortest form takes 24. Chosen."""

MAX_SECONDS: Final = 10**9
"""A duration: 31 years. Chosen: with it and the year 9999 each sum of times fits into a timestamp."""
MAX_EPOCH: Final = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second that RFC 3339 can write."""
MAX_LATENCY_MILLISECONDS: Final = 86_400_000.0
"""A day. Chosen."""
MAX_RATE: Final = 1e9
"""Requests per second of one pod. Chosen: a hundred times what one machine's network card can carry in packets."""

PRICE_LEAST: Final = -100.0
MAX_PRICE: Final = 1e6
"""Money for a kilowatt-hour, in any currency; below 0 if a grid pays for consumption. Chosen."""
MAX_CARBON: Final = 1e5
"""Grams for a kilowatt-hour. Chosen: a hundred times those of burning coal."""
PRICES_BYTES: Final = 1 << 20
MAX_PRICES: Final = 10_000
"""A file of prices: a year of hours has 8,784 rows of some 50 bytes. Chosen."""

MAX_INDEXES: Final = 10_000
"""Completions of a Job, as in its definition. Chosen: the indexes of one Job must stay a list that a status can hold.
"""
INDEXES_CHARACTERS: Final = 131_072
"""``completedIndexes`` and ``retriedIndexes``: 10,000 indexes of four digits with a count of four and a comma each are
100,000 characters."""
QUERY_CHARACTERS: Final = 4096
"""A query in a Workload. Chosen."""

MAX_RESOURCES: Final = 128
"""Resources that one pod may name. Chosen: nodes of clouds offer about 20."""
IMAGE_CHARACTERS: Final = 512
"""Characters of a container's image: 255 of a host (RFC 1123), 255 of a repository's name (registries that follow the
distribution spec require this of their clients). Chosen.
"""
MAX_IMAGES_NAMED: Final = 64
"""Containers of one pod with a search for their images; a pod with more gets no search. Chosen: each is looked up for
all nodes, some 10 us.
"""
MAX_NODE_IMAGES: Final = 128
MAX_IMAGE_NAMES: Final = 8
"""Images of one node, the largest, and names of one image, that are read. A kubelet reports 50 images
(--node-status-max-images) and 5 names of each (k8s.io/kubernetes, MaxNamesPerImageInNodeStatus); chosen above that.
"""
MAX_REQUIREMENTS: Final = 1024
"""Selector entries of one pod: label pairs, requirements and their values. Chosen: all of them are checked for 5,000
nodes within 10 ms.
"""
MAX_POD_TERMS: Final = 16
"""Terms of pod affinity and anti-affinity of one pod, required and preferred, and its preferred node terms together.
Chosen: each is a sum over 5,000 nodes, some 50 microseconds, whenever a matching pod comes or goes.
"""
MAX_SPREADS: Final = 8
"""Topology spread constraints of one pod. Chosen, as above."""
MAX_CLAIMS: Final = 64
"""Claims of one pod. Chosen: clouds attach 16 to 128 volumes to a node."""
MAX_VOLUMES: Final = 1024
"""PersistentVolumes that are checked for one claim, the smallest sufficient ones. Chosen: each is looked up for all
nodes, some 10 us.
"""
MAX_TOLERATIONS: Final = 256
"""Tolerations of one pod. Chosen: one for each taint that a cluster may know, ten times over."""
MAX_HOST_PORTS: Final = 256
"""Host ports of one pod. Chosen."""
MAX_GANG: Final = 1024
"""Members of a gang that may start together. Chosen: all of them are tried in one cycle, some 50 us each."""
MAX_GANG_KINDS: Final = 16
"""Kinds of pods (by requests and run time) of a gang with reserved room, or with a start in a plan. Chosen: each kind
checks all nodes at each of several moments; the leader of a training and its workers are two kinds.
"""
MAX_GANG_REQUESTS: Final = 128
"""Sets of needs (requests, selectors, rules) among the members of a gang that start together. Chosen: each set checks
all nodes in one cycle, .1 to .2 ms each; equal members share one answer.
"""
MAX_CONTAINERS: Final = 512
"""Containers of a pod that is not stored yet (a review, a question of kube-scheduler). Chosen: each is translated, some
0.1 ms, and a kubelet starts a few dozen.
"""
MAX_REVIEW_VALUES: Final = 50_000
"""Values of one review, counted by its commas and brackets. Chosen: reading takes below 0.1 s. A pod of 5 KB has some
300, and the 256 KiB of annotations that an object may have hold some 10,000.
"""
MAX_GATES: Final = 64
"""Scheduling gates of one pod. Chosen."""
MAX_NODE_RESOURCES: Final = 256
"""Resources of one node that are counted: cpu, memory, pods and the reclaimed ones, then by name. Chosen: ten times the
number on nodes of clouds.
"""
MAX_NODE_LABELS: Final = 1024
MAX_NODE_TAINTS: Final = 256
"""Labels and taints of one node; a node with more takes no pods, since some would be ignored. Chosen: each label key is
a column over all nodes.
"""
FIELDS_NAMED: Final = 8
"""Faulty fields that a sentence names; beyond this it gives the number. Chosen."""
NOTE_BYTES: Final = 8192
"""A decision's annotation that is read back: four times the largest that Cotide writes. Chosen."""
MAX_BACKOFFS: Final = 256
"""Nodes and reasons that one leader passes to the next. Chosen: a failure of a rack."""
BACKOFFS_BYTES: Final = ANNOTATIONS_BYTES // 4
"""Size of the lease's annotation for these: 256 bytes for each, while most take 100. Chosen."""

MAX_NODES_ASKED: Final = 20_000
"""Nodes of one request from kube-scheduler. Chosen: four times the 5,000 that Kubernetes supports."""
EXTENDER_BYTES: Final = OBJECT_BYTES + 2 * 1024 * 1024
"""A request to the extender: a pod, and the names of 20,000 nodes of 100 characters each. Chosen."""
EXTENDER_AT_ONCE: Final = 16
"""Requests to the extender with bodies in memory at the same time: 80 MiB at most. kube-scheduler sends one pod after
the other and binds a few at the same time. Chosen.
"""
