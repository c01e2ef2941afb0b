"""Which pods are alike: the keys of a live queue's habits, from the most alike to the least.

Called by `pod_run_times` at a pod's arrival. A trace has a user, a size and a request. A cluster has a namespace, an
owner with successive runs under new names, an image, a declared type and an input size. Invariant: pods of two
namespaces are never alike, so one tenant's runs never change another's past.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from math import log2
from typing import Final

from cotide_core.events import Pod

_GENERATED: Final = re.compile(r"(?:-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|\d+))+$")
"""Suffixes that API servers append to ``generateName`` (apimachinery, names.SimpleNameGenerator), the minutes that a
CronJob appends to its Jobs' names, and indexes.
"""
NAMESPACE_BYTES: Final = 6
REST_BYTES: Final = 10
"""Of a key: a digest of the namespace, by which its keys are found again, and a digest of the rest. Chosen: two of a
hundred million keys collide with a probability below one in a hundred million.
"""
KEY_BYTES: Final = NAMESPACE_BYTES + REST_BYTES
STEPS_A_DOUBLING: Final = 4
"""Input sizes within a fifth of one another count as the same (chosen: a daily input varies by some bytes)."""
REMEMBERED: Final = 16_384
"""Digests that are kept (chosen: 3 MB)."""

Likeness = tuple[bytes, bytes, bytes, bytes]
"""Keys of: namespace, owner, image, type and size; namespace and owner; namespace, image, type and size; namespace."""


def likeness_of(pod: Pod) -> Likeness:
    """Return the keys of a pod, from the most alike to the least."""
    namespace, _, name = pod.key.partition("/")
    owner = series_of(pod.job.partition("/")[2] if pod.job is not None else name)
    return _keys(namespace, owner, program_of(pod.image), pod.type, step_of(pod.input_bytes))


def namespace_key(namespace: str) -> bytes:
    """Return the prefix of all keys of a namespace."""
    return _digest(NAMESPACE_BYTES, namespace)


def series_of(name: str) -> str:
    """Return a name without the part that differs between runs of one series: ``report-28471200`` is a ``report``."""
    return _GENERATED.sub("", name) or name


def program_of(image: str) -> str:
    """Return an image without tag and digest: a new release is the same program."""
    before, slash, last = image.partition("@")[0].rpartition("/")
    return before + slash + last.partition(":")[0]


def step_of(input_bytes: int) -> int:
    """Return the step that an input size lies on; 0 for none."""
    return 0 if input_bytes <= 0 else 1 + round(STEPS_A_DOUBLING * log2(input_bytes))


@lru_cache(REMEMBERED)
def _keys(namespace: str, owner: str, program: str, kind: str, step: int) -> Likeness:
    begin, size = namespace_key(namespace), str(step)
    return (
        begin + _digest(REST_BYTES, owner, program, kind, size),
        begin + _digest(REST_BYTES, owner),
        begin + _digest(REST_BYTES, "", program, kind, size),
        begin + _digest(REST_BYTES),
    )


def _digest(size: int, *words: str) -> bytes:
    # No name of an object holds a line break, so that two different lists of words never join to the same text.
    return blake2b("\n".join(words).encode(), digest_size=size).digest()
