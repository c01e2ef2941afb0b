"""The emulator reads, stores and shows JSON that is nested far deeper than Python's recursion goes."""

from __future__ import annotations

import pytest
import requests

from cotide_operator.apis.crd_generation import JOB, definition
from cotide_sim.apiserver.testing import server_in_thread

JOBS = "/apis/cotide.dev/v1alpha1/namespaces/default/jobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def deep_job(depth: int) -> bytes:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    return (
        b'{"apiVersion":"cotide.dev/v1alpha1","kind":"Job","metadata":{"name":"deep"},"spec":{"template":{"spec":'
        b'{"containers":[{"name":"c","image":"i","x":' + nested + b"}]}}}}"
    )


@pytest.mark.parametrize(("depth", "code"), [(300, 201), (2000, 201), (9994, 201), (9995, 400)])
def test_an_object_is_taken_up_to_ten_thousand_levels(depth: int, code: int) -> None:
    """Six levels are around the part that is nested here."""
    with server_in_thread() as server:
        assert requests.post(server.url + DEFINITIONS, json=definition(JOB), timeout=30).status_code == 201
        kind = {"Content-Type": "application/json"}
        made = requests.post(server.url + JOBS, data=deep_job(depth), headers=kind, timeout=30)
        assert made.status_code == code
        if code == 400:
            assert "max depth" in made.text
            return
        assert requests.get(server.url + JOBS, timeout=30).content.count(b'{"a":') >= depth
        merge = {"Content-Type": "application/merge-patch+json"}
        patch = b'{"metadata":{"labels":{"x":"y"}}}'
        patched = requests.patch(f"{server.url}{JOBS}/deep", data=patch, headers=merge, timeout=30)
        assert patched.status_code == 200
