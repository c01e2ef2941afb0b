"""Resources that are refused, in the words that the emulator uses, too."""

from __future__ import annotations

import copy

import pytest
from real_cluster import RealCluster
from refused_resources import cases, resource
from schema_violations import refusal, violations

from cotide_kube.answers import ApiError


async def test_each_is_refused_in_our_words(cluster: RealCluster) -> None:
    answers = {}
    for case in cases():
        plural, body, sentence = resource(case)
        path = cluster.path(plural, "cotide.dev/v1alpha1")
        with pytest.raises(ApiError) as refusal:
            await cluster.client.create(path, copy.deepcopy(body))
        if refusal.value.status != 422 or sentence not in str(refusal.value):
            answers[case] = f"{refusal.value.status} {refusal.value}, and not {sentence}"
    assert answers == {}


async def test_each_constraint_of_the_schemas_refuses_with_its_field(cluster: RealCluster) -> None:
    answers = {}
    for violation in violations():
        said = await refusal(cluster.client, cluster.namespace, violation)
        if not all(words in said for words in ("422", *violation.words)):
            answers[f"{violation.plural} {violation.case}"] = said
    assert answers == {}
