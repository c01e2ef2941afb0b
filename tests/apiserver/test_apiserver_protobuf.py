"""Protobuf bodies: what is read of them is whole, and what is not read is asked for as JSON."""

from __future__ import annotations

import pytest

from cotide_sim.apiserver.http.protobuf import decode
from cotide_sim.apiserver.refusals import Refusal


def field(number: int, value: bytes) -> bytes:
    """A field of bytes; all of these are shorter than 128."""
    return bytes((number << 3 | 2, len(value))) + value


def body(kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, b"apps/v1") + field(2, kind.encode())) + field(2, raw)


def deployment(container: bytes) -> bytes:
    template = field(2, field(2, container))
    return body("Deployment", field(1, field(1, b"web")) + field(2, bytes((1 << 3, 3)) + field(3, template)))


def test_a_deployment_is_read_with_its_template() -> None:
    found = decode(deployment(field(1, b"main") + field(2, b"example/web:1") + field(8, b"")))
    assert (found["kind"], found["metadata"], found["spec"]["replicas"]) == ("Deployment", {"name": "web"}, 3)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "main", "image": "example/web:1"}


def test_a_field_that_would_be_lost_is_asked_for_as_json() -> None:
    requests = field(8, field(2, field(1, b"cpu")))  # resources
    with pytest.raises(Refusal, match="field 8 of a Container is not read as protobuf here; send application/json"):
        decode(deployment(field(1, b"main") + requests))
