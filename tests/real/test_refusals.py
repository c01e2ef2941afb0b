"""Resources that are refused, in the words that the emulator uses, too."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
from real_cluster import RealCluster

from cotide_kube.answers import ApiError

sys.path.append(str(Path(__file__).resolve().parents[1] / "operator"))
from refused_resources import cases, resource


async def test_each_is_refused_in_our_words(cluster: RealCluster) -> None:
    told = {}
    for case in cases():
        plural, body, sentence = resource(case)
        path = cluster.path(plural, "cotide.dev/v1alpha1")
        with pytest.raises(ApiError) as refusal:
            await cluster.client.create(path, copy.deepcopy(body))
        if refusal.value.status != 422 or sentence not in str(refusal.value):
            told[case] = f"{refusal.value.status} {refusal.value}, and not {sentence}"
    assert told == {}
