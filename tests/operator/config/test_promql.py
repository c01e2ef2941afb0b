"""Label matchers in other people's PromQL: every selector has them, or the query is refused."""

from __future__ import annotations

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.limits import QUERY_CHARACTERS
from cotide_operator.config.promql import LEVELS, LabelMatcher, PromQuery, QueryRefused, selectors

SHOP = LabelMatcher("namespace", "=", "shop")


def enforced(text: str) -> str:
    query = PromQuery.parse(text)
    query.check_ranges()
    return query.enforced((SHOP,))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x", '{__name__="x",namespace="shop"}'),
        ("rate(x{a=~'b|c'}[2m])", 'rate({__name__="x",a=~"b|c",namespace="shop"}[120000ms])'),
        ('x{namespace="shop"}', '{__name__="x",namespace="shop",namespace="shop"}'),
        ('x{namespace!="shop"}', '{__name__="x",namespace!="shop",namespace="shop"}'),
        ('x{namespace=~".*"}', '{__name__="x",namespace=~".*",namespace="shop"}'),
        (
            "count(x) / on (pod) group_left (a) y",
            '(count ({__name__="x",namespace="shop"})) / on (pod) group_left (a) ({__name__="y",namespace="shop"})',
        ),
        ("-x ^ 2 > bool 1", '(-(({__name__="x",namespace="shop"}) ^ (2))) > bool (1)'),
        ("(rate(x[1m]))[1h:1m]", '((rate({__name__="x",namespace="shop"}[60000ms])))[3600000ms:60000ms]'),
        ("topk(3, x) # the rest", 'topk (3, {__name__="x",namespace="shop"})'),
        (r'x{a="}\"\\"} or y', r'({__name__="x",a="}\"\\",namespace="shop"}) or ({__name__="y",namespace="shop"})'),
        ("x{a=`\\d#`}", r'{__name__="x",a="\\d#",namespace="shop"}'),
        ('label_replace(vector(1), "pod", "web-0", "", "")', 'label_replace(vector(1), "pod", "web-0", "", "")'),
    ],
)
def test_a_query_is_written_anew_with_the_matcher_in_each_selector(text: str, written: str) -> None:
    assert enforced(text) == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('x{namespace="bank"}', 'only namespace="shop" is allowed'),
        ('x or y{namespace=""}', 'only namespace="shop" is allowed'),
        ('x{a="b" or namespace="bank"}', "alternatives within the braces"),
        ('{"namespace"="bank"}', "name in it is quoted"),
        ('sum by ("a b") (x)', "name in it is quoted"),
        ("info(x)", "it reads series that it does not name"),
        ("x offset 5m", "offset and @"),
        ("x @ 0", "offset and @"),
        ("max_over_time(x[5m:1m] offset 1m)", "offset and @"),
        ("rate(x[2h])", "longer than 3600 s"),
        ("rate(x[88e012])", "more than 999,999,999 days"),
        ("max_over_time(x[5m:88e12])", "more than 999,999,999 days"),
        ("sum(rate(x[5m] offset -88e12))", "more than 999,999,999 days"),
        ("x offset -88e016", "more than 999,999,999 days"),
        ("x offset -925e016", "a duration in it is longer"),
        ("max_over_time(x[1h:1s])", "1000 steps"),
        ("max_over_time(max_over_time(x[5m:1m])[5m:1m])", "no other subquery"),
        ("rate(", "no PromQL"),
        ("", "no PromQL"),
        ('x{a="b', "does not end"),
        ('x{a="b\n"}', "does not end"),
        (r'x{a="\x41"}', r"the escape \\x in a string is not supported"),
        ('x{a="é"}', "beyond plain ASCII"),
        ('x{a="\x00"}', "beyond plain ASCII"),
        ("x" * (QUERY_CHARACTERS + 1), "4097 characters"),
        ("(" * 2000 + "x" + ")" * 2000, "2000 brackets and operators"),
        ("-" * (LEVELS + 1) + "x", "65 brackets and operators"),
        ("x AND " * (LEVELS + 1) + "x", "65 brackets and operators"),
    ],
)
def test_what_could_get_around_it_or_cost_much_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(QueryRefused, match=words):
        enforced(text)


def test_a_patterns_size_costs_the_operator_nothing() -> None:
    """The parser would compile each pattern, for 0.7 s each; it never sees one."""
    pattern = r"(\\w{1000}){1000}"
    assert selectors(enforced(f'x{{a=~"{pattern}"}}'))[0][1] == ("a", "=~", r"(\w{1000}){1000}")


NAMES = st.sampled_from(["x", "on", "sum", "namespace", "job:x:rate5m", "rate", "by"])
LABELS = st.sampled_from(["a", "namespace", "pod", "by", "le"])
VALUES = st.text(st.sampled_from("ab\\\"'`{}()#,= \n\t|.*$1"), max_size=8) | st.sampled_from(["shop", "bank"])
OPERATORS = st.sampled_from(
    ["+", "-", "*", "/", "^", "and", "or", "unless", "==", "> bool", "+ on (a)", "* ignoring (a)"]
)


def literal(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


@st.composite
def selector_texts(draw: st.DrawFn) -> str:
    matchers = draw(st.lists(st.tuples(LABELS, st.sampled_from(["=", "!="]), VALUES), max_size=3))
    inside = ",".join(f"{label}{operator}{literal(value)}" for label, operator, value in matchers)
    return f"{draw(NAMES)}{{{inside}}}" if inside else draw(NAMES)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, OPERATORS, inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        inner.map("sum by (namespace, pod) ({})".format),
        inner.map("topk(2, {})".format),
        inner.map("max_over_time(({})[5m:1m])".format),
        inner.map('label_replace({}, "namespace", "bank", "pod", "(.*)")'.format),
        inner.map("abs({})".format),
    )


QUERIES = st.recursive(
    selector_texts() | selector_texts().map("rate({}[1m])".format) | st.sampled_from(["1", "vector(1)", "time()"]),
    grown,
    max_leaves=6,
)
SCRAPS = st.lists(
    st.sampled_from(
        [*"(){}[],=~!\"'`\\#\n +-*1", "x", "namespace", "bank", " or ", "[1m]", " by ", '="', "sum", "offset 1m"]
    ),
    max_size=24,
).map("".join)


@given(QUERIES | SCRAPS | st.text(max_size=30))
def test_any_accepted_query_has_the_matcher_in_every_vector_selector(text: str) -> None:
    try:
        written = enforced(text)
    except QueryRefused:
        return
    assert written.isascii()
    for found in every_selector(written):
        matchers = [(matcher.name, str(matcher.op), matcher.value) for matcher in found.matchers.matchers]
        assert ("namespace", "MatchOp.Equal", "shop") in matchers
        assert not found.matchers.or_matchers


@given(QUERIES)
def test_without_matchers_a_query_means_what_it_meant(text: str) -> None:
    try:
        written = PromQuery.parse(text).enforced(())
    except QueryRefused:
        return
    assert PromQuery.parse(written).enforced(()) == written or "(" in written
    assert names(written) == names(text)


def every_selector(text: str) -> list[promql_parser.VectorSelector]:
    """By the parser's own walk, which the code under test does not use."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(text), visit)
    return found


def names(text: str) -> list[list[LabelMatcher]]:
    return selectors(text)


@pytest.mark.parametrize("text", ["x[0:" + "5" * 70 + "]", "x[1e400]", "x offset 0x" + "f" * 40, "x[1:1e99]"])
def test_a_number_over_which_the_parser_would_end_the_program_is_refused(text: str) -> None:
    with pytest.raises(QueryRefused):
        PromQuery.parse(text)
