"""PromQL from users: bounded, parsed, and printed again with label matchers in every vector selector.

`metric_settings` uses it for the administrator's templates and `usage` for the queries of Workloads. As in
prom-label-proxy (https://github.com/prometheus-community/prom-label-proxy), no query is changed as text: its syntax
tree is printed from scratch, with the enforced matchers in each selector. Invariant: the result of `PromQuery.enforced`
is parsed once more, and every vector selector in it has all of the matchers.

A tenant chooses the text, so three steps precede the parser. Strings are cut out and numbered: the parser then compiles
no regular expression (one ``\\w{1000}`` costs it 0.7 s), and no string can pass for syntax. Nesting is bounded by the
number of brackets and operators (the parser ends the process beyond some thousand). The length is bounded as in the
resource definition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, NamedTuple, cast

import promql_parser as ast

from cotide_core.errors import InputError
from cotide_core.limits import QUERY_CHARACTERS

LEVELS: Final = 64
"""Brackets and operators in one query. Chosen: a quantile of a rate has 8; 64 parse in 1 ms."""
RANGE_SECONDS: Final = 3600.0
"""Longest range of a tenant's query. Chosen: a reading shows the present; an hour smooths more than a user needs."""
SUBQUERY_STEPS: Final = 1000
"""Most evaluations of a subquery in a tenant's query; chosen, as an hour at 3.6 s."""

DIGITS: Final = 15
"""Of one number: the precision of a float64. Chosen; the parser ends the process at a duration beyond 2^64 seconds."""
_LONG_NUMBER: Final = re.compile(rf"[0-9_]{{{DIGITS + 1},}}|[0-9.][eE][+-]?0*[1-9][0-9]{{2}}|0[xX][0-9a-fA-F_]{{14}}")
_STRING: Final = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`\n]*`""")
_COMMENT: Final = re.compile(r"#[^\n]*")
_PLAIN: Final = re.compile(r"[^\"'`#]+")
_LEVEL: Final = re.compile(r"[(\[{+\-*/%^<>=!]|(?<![\w:])(?:and|or|unless|atan2)(?![\w:])", re.ASCII | re.IGNORECASE)
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t"}
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_REFUSED_CALLS: Final = {"info": "it reads series that it does not name"}

Operator = Literal["=", "!=", "=~", "!~"]


class QueryRefused(InputError):
    """A refused query, with the reason."""


class LabelMatcher(NamedTuple):
    """A condition on a label: ``label operator "value"``."""

    label: str
    operator: Operator
    value: str


def _operator(matcher: ast.Matcher) -> Operator:
    for operator, name in (("=", "Equal"), ("!=", "NotEqual"), ("=~", "Re"), ("!~", "NotRe")):
        if matcher.op == getattr(ast.MatchOp, name):
            return cast(Operator, operator)
    raise QueryRefused(f"the comparison of label {matcher.name} is not known")


@dataclass(frozen=True, slots=True)
class PromQuery:
    """A query with a known syntax.

    Attributes
    ----------
    tree : the parser's tree of the text with numbers in the place of strings.
    strings : the strings of the text, decoded.
    """

    tree: ast.Expr
    strings: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> PromQuery:
        """Parse a query.

        Raises
        ------
        QueryRefused
            When it is too long, too deep, or no PromQL.
        """
        if len(text) > QUERY_CHARACTERS:
            raise QueryRefused(f"it has {len(text)} characters, {QUERY_CHARACTERS} are allowed")
        plain, strings = _without_strings(text)
        levels = sum(1 for _ in _LEVEL.finditer(plain))
        if levels > LEVELS:
            raise QueryRefused(f"it has {levels} brackets and operators, {LEVELS} are allowed")
        tree = _parsed(plain)
        try:
            _check_durations(tree)
        except (OverflowError, ValueError) as error:
            raise QueryRefused("a duration in it is of more than 999,999,999 days") from error
        return cls(tree, tuple(strings))

    @property
    def is_selector(self) -> bool:
        """Whether it is a plain selector: for these timestamp() returns the samples' own times."""
        return type(self.tree) is ast.VectorSelector

    def check_ranges(self) -> None:
        """Refuse long ranges, subqueries of many steps, and nested subqueries, in a tenant's query."""
        _check_ranges(self.tree, subqueries=0)

    def enforced(self, matchers: Sequence[LabelMatcher]) -> str:
        """Return the query's text with the matchers in every vector selector.

        Raises
        ------
        QueryRefused
            When it names another value of an enforced label, or has a part that can't be printed.
        """
        self._check_values(matchers)
        numbered = [matcher._replace(value=str(len(self.strings) + at)) for at, matcher in enumerate(matchers)]
        strings = [*self.strings, *(matcher.value for matcher in matchers)]
        shape = _Printer([str(at) for at in range(len(strings))], numbered).text(self.tree)
        for selector in _selectors(_parsed(shape)):
            present = [(found.name, _operator(found), found.value) for found in selector.matchers.matchers]
            if not all(tuple(matcher) in present for matcher in numbered):
                raise QueryRefused("a selector of it could not be limited")
        return _Printer(strings, numbered).text(self.tree)

    def _check_values(self, matchers: Sequence[LabelMatcher]) -> None:
        """Refuse another value of an enforced label with a message: otherwise the answer would be empty without a
        reason."""
        allowed = {matcher.label: matcher.value for matcher in matchers if matcher.operator == "="}
        for found in (found for selector in _selectors(self.tree) for found in selector.matchers.matchers):
            if found.name not in allowed or _operator(found) != "=":
                continue
            asked = self.strings[int(found.value)]
            if asked != allowed[found.name]:
                raise QueryRefused(
                    f"it asks for {found.name}={quoted(asked)}; "
                    f"only {found.name}={quoted(allowed[found.name])} is allowed"
                )


def selectors(text: str) -> list[list[LabelMatcher]]:
    """Return the matchers of each vector selector of a query, including the metric's name as ``__name__``."""
    query = PromQuery.parse(text)
    return [
        [
            *([LabelMatcher("__name__", "=", found.name)] if found.name else []),
            *(
                LabelMatcher(matcher.name, _operator(matcher), query.strings[int(matcher.value)])
                for matcher in found.matchers.matchers
            ),
        ]
        for found in _selectors(query.tree)
    ]


def quoted(value: str) -> str:
    """Return a string as PromQL writes it."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        value = value.replace(plain, escaped)
    return f'"{value}"'


def _without_strings(text: str) -> tuple[str, list[str]]:
    """Return the text without comments and with ``"0"``, ``"1"`` ... for its strings, and the decoded strings."""
    parts: list[str] = []
    strings: list[str] = []
    at = 0
    while at < len(text):
        plain = _PLAIN.match(text, at) or _COMMENT.match(text, at)
        if plain is not None:
            parts.append(plain[0] if plain[0][0] != "#" else " ")
            at = plain.end()
            continue
        found = _STRING.match(text, at)
        if found is None:
            raise QueryRefused(f"the string that begins at character {at + 1} does not end")
        parts.append(f'"{len(strings)}"')
        strings.append(_decoded(found[0]))
        at = found.end()
    return "".join(parts), strings


def _decoded(literal: str) -> str:
    value = literal[1:-1]
    if literal[0] != "`":
        unknown = next((letter for letter in _ESCAPE.findall(value) if letter not in _ESCAPED), None)
        if unknown is not None:
            raise QueryRefused(f"the escape \\{unknown} in a string is not supported; write \\\\{unknown} in a pattern")
        value = _ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], value)
    if any(ord(character) < 32 and character not in "\n\t" for character in value) or not value.isascii():
        raise QueryRefused("a string of it has characters beyond plain ASCII text")
    return value


def _parsed(text: str) -> ast.Expr:
    if _LONG_NUMBER.search(text) is not None:
        raise QueryRefused(f"a number in it has more than {DIGITS} digits or an exponent beyond 99")
    try:
        return ast.parse(text)
    except ValueError as error:
        raise QueryRefused(f"it is no PromQL: {error}") from error
    except OverflowError as error:
        raise QueryRefused("a duration in it is longer than 2^63 seconds") from error
    except BaseException as error:
        # The parser's own failure is no Exception, in order to end a program; a tenant's text must not end this one.
        if type(error).__name__ != "PanicException":
            raise
        raise QueryRefused("the parser fails on it") from error


def _children(node: object) -> list[object]:
    """Return the parts of a node; an unknown kind is refused."""
    if isinstance(node, ast.VectorSelector | ast.NumberLiteral | ast.StringLiteral):
        return []
    if isinstance(node, ast.MatrixSelector):
        return [node.vector_selector]
    if isinstance(node, ast.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, ast.ParenExpr | ast.UnaryExpr | ast.SubqueryExpr):
        return [node.expr]
    if isinstance(node, ast.AggregateExpr):
        return [node.expr] if node.param is None else [node.param, node.expr]
    if isinstance(node, ast.Call):
        return list(node.args)
    raise QueryRefused(f"{type(node).__name__} is not supported")


def _selectors(node: object) -> Iterator[ast.VectorSelector]:
    if isinstance(node, ast.VectorSelector):
        yield node
    for child in _children(node):
        yield from _selectors(child)


def _check_durations(node: object) -> None:
    """Check each duration: the parser reads longer ones than `timedelta` holds, and fails at access."""
    for name in ("range", "step", "offset"):
        getattr(node, name, None)
    for child in _children(node):
        _check_durations(child)


def _check_ranges(node: object, subqueries: int) -> None:
    if isinstance(node, ast.MatrixSelector | ast.SubqueryExpr) and node.range is not None:
        if node.range.total_seconds() > RANGE_SECONDS:
            raise QueryRefused(f"a range of it is longer than {RANGE_SECONDS:g} s")
        if isinstance(node, ast.SubqueryExpr):
            subqueries += 1
            steps = node.range / node.step if node.step else 0.0
            if subqueries > 1 or steps > SUBQUERY_STEPS:
                raise QueryRefused(f"a subquery may have {SUBQUERY_STEPS} steps and no other subquery in it")
    for child in _children(node):
        _check_ranges(child, subqueries)


class _Printer:
    """Writes a tree as PromQL, with brackets around every operand.

    Parameters
    ----------
    strings : by the number in the tree.
    enforced : matchers for every selector; their values are numbers, too.
    """

    def __init__(self, strings: Sequence[str], enforced: Sequence[LabelMatcher]) -> None:
        self._strings = strings
        self._enforced = enforced

    def text(self, node: object) -> str:
        """Return the text of a node."""
        parts = [] if isinstance(node, ast.MatrixSelector) else [self.text(child) for child in _children(node)]
        match node:
            case ast.VectorSelector() | ast.MatrixSelector():
                return self._selector(node)
            case ast.NumberLiteral():
                return node.prettify()
            case ast.StringLiteral():
                return quoted(self._strings[int(node.val)])
            case ast.ParenExpr() | ast.UnaryExpr():
                return f"{'-' if isinstance(node, ast.UnaryExpr) else ''}({parts[0]})"
            case ast.BinaryExpr():
                return f"({parts[0]}) {node.op}{_modifier(node.modifier)} ({parts[1]})"
            case ast.AggregateExpr():
                return f"{node.op}{_grouping(node.modifier)} ({', '.join(parts)})"
            case ast.Call():
                if node.func.name in _REFUSED_CALLS:
                    raise QueryRefused(
                        f"the function {node.func.name} is not supported: {_REFUSED_CALLS[node.func.name]}"
                    )
                return f"{node.func.name}({', '.join(parts)})"
            case ast.SubqueryExpr():
                if node.offset is not None or node.at is not None or node.range is None:
                    raise QueryRefused(_NOW)
                return f"({parts[0]})[{_duration(node.range)}:{'' if node.step is None else _duration(node.step)}]"
            case _:
                raise QueryRefused(f"{type(node).__name__} is not supported")

    def _selector(self, node: ast.VectorSelector | ast.MatrixSelector) -> str:
        if isinstance(node, ast.MatrixSelector):
            return f"{self._selector(node.vector_selector)}[{_duration(node.range)}]"
        if node.offset is not None or node.at is not None:
            raise QueryRefused(_NOW)
        if node.matchers.or_matchers:
            raise QueryRefused("alternatives within the braces of a selector are not supported")
        own = [LabelMatcher(matcher.name, _operator(matcher), matcher.value) for matcher in node.matchers.matchers]
        written = [f'__name__="{node.name}"'] if node.name else []
        for label, operator, value in (*own, *self._enforced):
            written.append(f"{_label(label)}{operator}{quoted(self._strings[int(value)])}")
        return f"{{{','.join(written)}}}"


_NOW: Final = "offset and @ are not supported: a reading shows the present"


def _label(name: str) -> str:
    if _LABEL.fullmatch(name) is None:
        raise QueryRefused("a label's name in it is quoted or invalid")
    return name


def _labels(names: Sequence[str] | None) -> str:
    return f"({', '.join(_label(name) for name in names or ())})"


def _duration(length: timedelta) -> str:
    return f"{round(length.total_seconds() * 1000)}ms"


def _grouping(modifier: ast.AggModifier | None) -> str:
    if modifier is None:
        return ""
    return f" {'by' if modifier.type == ast.AggModifierType.By else 'without'} {_labels(modifier.labels)}"


def _modifier(modifier: ast.BinModifier | None) -> str:
    if modifier is None:
        return ""
    if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
        raise QueryRefused("fill values are not supported")
    words = [" bool"] if modifier.return_bool else []
    if modifier.matching is not None:
        word = "on" if modifier.matching.type == ast.LabelModifierType.Include else "ignoring"
        words.append(f" {word} {_labels(modifier.matching.labels)}")
    for card, word in ((ast.VectorMatchCardinality.ManyToOne, "left"), (ast.VectorMatchCardinality.OneToMany, "right")):
        if modifier.card == card:
            words.append(f" group_{word} {_labels(modifier.group_labels)}")
    return "".join(words)
