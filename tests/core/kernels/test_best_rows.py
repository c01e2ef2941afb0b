"""The best rows of a pass are those that a stable sort puts first."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.kernels.best_rows import best_rows

# Few distinct scores, so that ties are frequent; the extremes are what an unfit node and a full one may score.
SCORES = st.sampled_from([-np.inf, -1e300, -1.0, 0.0, 0.5, 1.0, 1e300])


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.tuples(SCORES, st.booleans()), max_size=60), st.integers(1, 12))
def test_they_are_the_first_of_a_stable_sort(drawn: list[tuple[float, bool]], count: int) -> None:
    scores = np.array([score for score, _ in drawn], np.float64)
    among = np.array([open_ for _, open_ in drawn], np.bool_)
    rows = np.flatnonzero(among)
    expected = rows[np.argsort(-scores[rows], kind="stable")][:count]
    assert best_rows(scores, among, count).tolist() == expected.tolist()


def test_equal_scores_go_by_the_lowest_row() -> None:
    scores = np.array([1.0, 2.0, 2.0, 2.0])
    assert best_rows(scores, np.array([True, True, True, False]), 2).tolist() == [1, 2]
