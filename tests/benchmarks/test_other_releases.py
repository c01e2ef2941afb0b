"""Kubernetes releases that the race can be run on."""

from __future__ import annotations

import pytest
from binaries import MODULE, NotToBeHad
from other_releases import OTHERS, of_release


def test_a_release_that_is_not_pinned_is_refused_by_name_before_anything_is_built() -> None:
    with pytest.raises(NotToBeHad, match=r"Kubernetes 1\.12 is none of 1\.33, 1\.34, 1\.35, 1\.36"):
        of_release("1.12", pytest.fail)


@pytest.mark.parametrize(("release", "version"), OTHERS.items())
def test_a_release_is_the_one_that_its_module_pins(release: str, version: str) -> None:
    assert f"k8s.io/kubernetes v{version}\n" in (MODULE / f"v{release}" / "go.mod").read_text()
