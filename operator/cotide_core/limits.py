"""Bounds of everything that we read and did not write: depth, bytes, counts and magnitudes, each with its source.

Used wherever raw text or objects are translated (watch lines, annotations, statuses read back, reviews, metric answers,
model manifests, ledgers, traces) and by the generated custom resource definitions. What is beyond a bound is refused
with the name of its field, or clamped where a bound means the same; which of the two, the reader of the value says.
Invariant: sums over all pods that a kubelet admits to one node stay within int64, and products of two of these numbers
within float64.
"""

from __future__ import annotations

from typing import Final

MAX_EXACT_INT: Final = 2**53
"""Largest magnitude up to which each whole number is a float64, too (IEEE 754). 1,023 of them fit into an int64; nodes
admit 110 pods as shipped (kubelet, ``maxPods``)."""
INT32_MOST: Final = 2**31 - 1
"""Kubernetes keeps priorities, replicas and counters as int32 (k8s.io/api/core/v1)."""

OBJECT_BYTES: Final = 3 * 1024 * 1024
"""What an API server reads of a request (k8s.io/apiserver, MaxRequestBodyBytes); etcd stores half of that
(--max-request-bytes, 1.5 MiB)."""
LINE_BYTES: Final = 4 * OBJECT_BYTES
"""A line of a watch: an object as JSON, whose managed fields name each field once more, in an envelope. Chosen."""
CUSTOM_OBJECT_BYTES: Final = 384 * 1024
"""A Job or Workload with its managed fields, as JSON. Chosen: decoding any shape of as many bytes takes below 40 ms;
a pod template of 5 KB, named once more in the managed fields of ten writers, takes 50 KB."""
ANNOTATIONS_BYTES: Final = 256 * 1024
"""All annotations of an object together (apimachinery, TotalAnnotationSizeLimitB)."""
DEPTH: Final = 64
"""Levels of nested objects and lists that we read. Chosen: the deepest field of a pod lies 14 levels below it. API
servers take 10,000 (Go's encoding/json, maxNestingDepth), which is more than Python's recursion takes."""

NAME_CHARACTERS: Final = 253
"""A name of an object (RFC 1123 subdomain; apimachinery, DNS1123SubdomainMaxLength)."""
LABEL_CHARACTERS: Final = 63
"""A label's value (apimachinery, LabelValueMaxLength); job types are as long."""
QUALIFIED_NAME_CHARACTERS: Final = 317
"""A label's key or a resource's name: prefix, slash, name (253 + 1 + 63)."""

QUANTITY_CHARACTERS: Final = 64
"""Chosen: API servers write a quantity in at most 25 characters; nobody types more."""
TIMESTAMP_CHARACTERS: Final = 64
"""RFC 3339 with nanoseconds and zone takes 35."""
NUMBER_CHARACTERS: Final = 32
"""A plain number in an annotation: float64 in its shortest form takes 24. Chosen."""

MAX_SECONDS: Final = 10**9
"""A duration: 31 years. Chosen; with it and the year 9999 no sum of times leaves what a timestamp can say."""
MAX_EPOCH: Final = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second that RFC 3339 can write."""
MAX_LATENCY_MILLISECONDS: Final = 86_400_000.0
"""A day. Chosen."""
MAX_RATE: Final = 1e9
"""Requests per second of one pod. Chosen: a hundred times what one machine's network card can carry in packets."""

PRICE_LEAST: Final = -100.0
MAX_PRICE: Final = 1e6
"""Money for a kilowatt-hour, in any currency; below 0 where a grid pays for being relieved. Chosen."""
MAX_CARBON: Final = 1e5
"""Grams for a kilowatt-hour. Chosen: a hundred times those of burning coal."""
PRICES_BYTES: Final = 1 << 20
MAX_PRICES: Final = 10_000
"""A file of prices: a year of hours has 8,784 rows of some 50 bytes. Chosen."""

MAX_INDEXES: Final = 10_000
"""Completions of a Job, as its definition says. Chosen: the indexes of one Job must stay a list a status can hold."""
INDEXES_CHARACTERS: Final = 131_072
"""``completedIndexes`` and ``retriedIndexes``: 10,000 indexes of four digits with a count of four and a comma each are
100,000 characters."""
QUERY_CHARACTERS: Final = 4096
"""A query in a Workload. Chosen."""

MAX_RESOURCES: Final = 128
"""Resources that one pod may name. Chosen: nodes of clouds offer about 20."""
IMAGE_CHARACTERS: Final = 512
"""Of a container's image that is read: 255 of a host (RFC 1123), 255 of a repository's name (as registries that follow
the distribution spec ask of their clients). Chosen."""
MAX_IMAGES_NAMED: Final = 64
"""Containers of one pod whose images are looked for on nodes; of a pod with more none is. Chosen: each is looked up for
all nodes, some 10 us."""
MAX_NODE_IMAGES: Final = 128
MAX_IMAGE_NAMES: Final = 8
"""Images of one node, the largest, and names of one image, that are read. A kubelet reports 50 images
(--node-status-max-images) and 5 names of each (k8s.io/kubernetes, MaxNamesPerImageInNodeStatus); chosen above that."""
MAX_REQUIREMENTS: Final = 1024
"""Selector entries of one pod: label pairs, requirements and their values. Chosen: all of them are looked at for 5,000
nodes within 10 ms."""
MAX_POD_TERMS: Final = 16
"""Terms of pod affinity and anti-affinity of one pod, required and preferred, and its preferred node terms together.
Chosen: each is a sum over 5,000 nodes, some 50 microseconds, whenever a pod that it selects comes or goes."""
MAX_SPREADS: Final = 8
"""Topology spread constraints of one pod. Chosen, as above."""
MAX_CLAIMS: Final = 64
"""Claims of one pod. Chosen: clouds attach 16 to 128 volumes to a node."""
MAX_VOLUMES: Final = 1024
"""PersistentVolumes that are looked at for one claim, the smallest that suffice. Chosen: each is looked up for all
nodes, some 10 us."""
MAX_TOLERATIONS: Final = 256
"""Tolerations of one pod. Chosen: one for each taint that a cluster may know, ten times over."""
MAX_HOST_PORTS: Final = 256
"""Host ports of one pod. Chosen."""
MAX_GANG: Final = 1024
"""Members that a gang may ask for at once. Chosen: all of them are tried in one cycle, some 50 us each."""
MAX_GANG_KINDS: Final = 16
"""Kinds of pods (what they ask for, and for how long) of a gang that room is kept for, or that has a start in a plan.
Chosen: of each all nodes are looked at, at each of several moments; who leads a training and who works are two."""
MAX_GANG_REQUESTS: Final = 128
"""Sets of needs (requests, selectors, rules) among the members of a gang that start together. Chosen: of each all nodes
are looked at in one cycle, .1 to .2 ms for each, where alike members share one answer."""
MAX_CONTAINERS: Final = 512
"""Containers of one pod that nobody stored yet (a review, a question of kube-scheduler). Chosen: each is translated,
some 0.1 ms, and a kubelet starts a few dozen."""
MAX_REVIEW_VALUES: Final = 50_000
"""Values of one review, counted by its commas and brackets. Chosen: below 0.1 s to read; a pod of 5 KB has some 300,
and the 256 KiB of annotations that an object may have hold some 10,000."""
MAX_GATES: Final = 64
"""Scheduling gates of one pod. Chosen."""
MAX_NODE_RESOURCES: Final = 256
"""Resources of one node that are counted: cpu, memory, pods and what is reclaimed, then by name. Chosen: ten times what
nodes of clouds offer."""
MAX_NODE_LABELS: Final = 1024
MAX_NODE_TAINTS: Final = 256
"""Labels and taints of one node; with more it takes no pods, since some would not be looked at. Chosen: each label key
is a column over all nodes."""
FIELDS_NAMED: Final = 8
"""Fields at fault that a sentence names; of more it tells the number. Chosen."""
NOTE_BYTES: Final = 8192
"""A decision's annotation that is read back: four times what is written at most. Chosen."""
MAX_BACKOFFS: Final = 256
"""Nodes and reasons of which one leader tells the next. Chosen: a failure of a rack."""
BACKOFFS_BYTES: Final = ANNOTATIONS_BYTES // 4
"""Of the lease's annotation that tells of them: 256 bytes for each, while most take 100. Chosen."""

MAX_NODES_ASKED: Final = 20_000
"""Nodes that kube-scheduler may ask about at once. Chosen: four times the 5,000 that Kubernetes supports."""
EXTENDER_BYTES: Final = OBJECT_BYTES + 2 * 1024 * 1024
"""A request to the extender: a pod, and the names of 20,000 nodes of 100 characters each. Chosen."""
EXTENDER_AT_ONCE: Final = 16
"""Requests to the extender whose bodies are in memory at the same time: 80 MiB at most. kube-scheduler asks about one
pod after the other and binds a few beside. Chosen."""
