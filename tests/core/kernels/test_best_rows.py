"""The best rows of a pass are those that a stable sort puts first, equals in the order that the caller gives."""

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
    assert best_rows(scores, among, np.arange(len(scores)), count).tolist() == expected.tolist()


def test_equal_scores_go_by_the_order_that_is_given() -> None:
    scores, open_rows = np.array([1.0, 2.0, 2.0, 2.0]), np.array([True, True, True, False])
    assert best_rows(scores, open_rows, np.array([0, 1, 2, 3]), 2).tolist() == [1, 2]
    assert best_rows(scores, open_rows, np.array([3, 2, 1, 0]), 2).tolist() == [2, 1]
