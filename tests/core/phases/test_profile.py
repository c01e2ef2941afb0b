"""Profiles and tables: what may be stated, and what is refused with its field."""

from __future__ import annotations

import numpy as np
import pytest

from cotide_core.errors import InputError
from cotide_core.phases.profile import Phase, Profile
from cotide_lab.phases.tables import tables


def test_task_level_holds_the_largest_of_each_resource_all_the_time() -> None:
    profile = Profile(
        (Phase("shuffle", (200, 700), 10_000), Phase("sort", (500, 1600), 4000), Phase("write", (900, 3), 1))
    )
    assert profile.as_one().phases == (Phase("task", (900, 1600), 14_001),)


@pytest.mark.parametrize(
    ("phases", "field"),
    [
        ((), "phases"),
        ((Phase("a", (1, 1), 5), Phase("b", (1,), 5)), "phases[b]"),
        ((Phase("a", (-1, 1), 5),), "phases[a].need"),
        ((Phase("a", (1, 2**54), 5),), "phases[a].need"),
        ((Phase("a", (1, 1), 0),), "phases[a]"),
        (tuple(Phase(str(number), (1, 1), 5) for number in range(17)), "phases"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused_by_its_field(phases: tuple[Phase, ...], field: str) -> None:
    with pytest.raises(InputError) as refused:
        Profile(phases)
    assert refused.value.field == field


def test_a_task_that_fits_on_no_node_is_refused() -> None:
    profile = Profile((Phase("a", (9, 1), 5),))
    with pytest.raises(InputError, match="no node has room"):
        tables([(0, profile, 1)], np.array([[8, 8], [4, 100]]))


def test_phases_that_fit_on_different_nodes_only_fit_on_none() -> None:
    profile = Profile((Phase("wide", (8, 1), 5), Phase("deep", (1, 50), 5)))
    with pytest.raises(InputError, match="no node has room"):
        tables([(0, profile, 1)], np.array([[8, 8], [4, 100]]))
