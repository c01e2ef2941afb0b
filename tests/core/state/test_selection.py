"""Many selectors and many label sets: the answers are those of a comparison of all pairs, and few are compared."""

from __future__ import annotations

from engine_objects import pod
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.events import Budget, Requirement, Selector
from cotide_core.state.selection.budgets import Budgets
from cotide_core.state.selection.scoped_matches import BY_LABEL, ScopedMatches
from cotide_core.state.selection.selector_index import Labels, LabelSets, SelectorIndex, labels_of
from cotide_core.state.selection.selectors import selects

KEYS, VALUES = ("a", "b", "c"), ("1", "2")
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt")),
    st.lists(st.sampled_from(VALUES), max_size=2).map(tuple),
)
SELECTORS = st.none() | st.lists(REQUIREMENTS, max_size=4).map(tuple)
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)).map(labels_of)


def absent(count: int) -> Selector:
    """A selector that is long and requires no label."""
    return tuple(Requirement(f"k{number}", "DoesNotExist") for number in range(count))


@given(st.lists(SELECTORS, max_size=6), LABELS)
def test_an_index_finds_the_selectors_that_select_a_label_set(selectors: list[Selector | None], labels: Labels) -> None:
    index = SelectorIndex[int]()
    for number, selector in enumerate(selectors):
        index.add(number, selector)
    assert sorted(index.matching(labels)) == [
        number for number, selector in enumerate(selectors) if selects(selector, dict(labels))
    ]


@given(st.lists(LABELS, max_size=6, unique=True), SELECTORS)
def test_no_label_set_that_a_selector_selects_is_left_out(sets: list[Labels], selector: Selector | None) -> None:
    known = LabelSets[None]()
    for labels in sets:
        known.put(labels, None)
    near = list(known.near(selector))
    assert len(near) == len(set(near))
    assert {labels for labels in sets if selects(selector, dict(labels))} <= set(near)


@given(st.lists(st.tuples(SELECTORS, st.booleans(), LABELS), max_size=8))
def test_an_answer_that_was_given_before_a_selector_came_has_it(
    steps: list[tuple[Selector | None, bool, Labels]],
) -> None:
    table = ScopedMatches[int](lambda _item, _namespace, _labels: True)
    asked: list[Labels] = []
    for number, (selector, everywhere, labels) in enumerate(steps):
        table.of("n", labels)
        asked.append(labels)
        table.add(number, (BY_LABEL if everywhere else "n",), selector)
        for known in asked:
            wanted = [earlier for earlier in range(number + 1) if selects(steps[earlier][0], dict(known))]
            assert sorted(table.of("n", known).items) == wanted


def test_an_item_that_left_or_has_another_selector_is_found_no_more() -> None:
    index = SelectorIndex[str]()
    index.add("web", (Requirement("app", "In", ("web", "shop")),))
    index.add("web", (Requirement("app", "Exists"),))
    assert index.matching((("app", "db"),)) == ["web"]
    index.remove("web")
    assert index.matching((("app", "db"),)) == []


def test_selectors_that_require_a_label_cost_pods_without_it_nothing() -> None:
    index = SelectorIndex[int]()
    for number in range(1000):
        index.add(number, (*absent(60), Requirement(f"u{number}", "Exists")))
        index.add(-number - 1, (Requirement("app", "In", (f"a{number}", f"b{number}")),))
    assert index.matching((("app", "web"), ("job-index", "7"))) == []
    assert index.pairs == 0


def test_equal_label_sets_are_compared_once() -> None:
    table = ScopedMatches[int](lambda _item, _namespace, _labels: True)
    for number in range(100):
        table.add(number, (BY_LABEL,), absent(60))
    for _ in range(50):
        assert len(table.of("n", (("app", "web"),)).items) == 100
    assert table.pairs == 100


def test_a_budget_counts_the_pods_that_it_selects_and_new_numbers_cost_no_comparison() -> None:
    budgets = Budgets()
    for number in range(100):
        budgets.put(Budget(f"d/b{number}", (*absent(60), Requirement("app", "In", (f"a{number}",))), 1))
    budgets.put(Budget("d/none", (), 0))
    one = pod("p", 1, labels=(("app", "a7"),))
    assert [budget.allowed for budget in budgets.of(one)] == [1]
    for allowed in range(5):
        budgets.put(Budget("d/b7", (*absent(60), Requirement("app", "In", ("a7",))), allowed))
        assert [budget.allowed for budget in budgets.of(one)] == [allowed]
    budgets.remove("d/b7")
    assert budgets.of(one) == []
    assert budgets.of(one._replace(labels=())) == []
