"""Rules of custom kinds, as CEL expressions: what they refuse, in whose words, and when they are evaluated."""

from __future__ import annotations

import pytest

from cotide_sim.apiserver.registry.rules import compile_faults, rule_faults

SPAN = {
    "type": "object",
    "properties": {
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "name": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "may not change"}],
        },
    },
    "x-kubernetes-validations": [
        {"rule": "self.low <= self.high", "message": "low must not be above high", "fieldPath": ".low"}
    ],
}
SCHEMA = {
    "type": "object",
    "properties": {"spec": SPAN, "parts": {"type": "array", "items": SPAN}},
}


def refusals(obj, old=None, schema=SCHEMA):
    return [(cause.field, cause.message) for cause in rule_faults(obj, schema, old)]


def test_a_rule_that_holds_says_nothing():
    assert refusals({"spec": {"low": 1, "high": 2}}) == []


def test_a_rule_speaks_of_the_field_it_names():
    assert refusals({"spec": {"low": 3, "high": 2}}) == [("spec.low", "Invalid value: low must not be above high")]


def test_every_item_of_a_list_is_judged():
    parts = [{"low": 1, "high": 2}, {"low": 3, "high": 2}]
    assert [field for field, _ in refusals({"parts": parts})] == ["parts[1].low"]


def test_what_must_not_change_is_judged_on_updates_only():
    new, old = ({"spec": {"low": 1, "high": 2, "name": name}} for name in ("b", "a"))
    assert refusals(new) == []
    assert refusals(new, old) == [("spec.name", 'Invalid value: "b": may not change')]
    assert refusals(new, new) == []
    assert refusals(new, {"spec": {"low": 1, "high": 2}}) == []  # it was not there before


def test_a_rule_without_a_message_is_shown_itself():
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "size(self.x) > 1"}]}
    assert refusals({"x": "a"}, schema=schema) == [("", "Invalid value: failed rule: size(self.x) > 1")]


def test_a_rule_that_cannot_be_evaluated_refuses_and_says_why():
    [(field, message)] = refusals({"spec": {"low": 1}})
    assert field == "spec.low"
    assert 'Invalid value: "self.low <= self.high": rule evaluation error:' in message


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"rule": "self.x >"}, 'Invalid value: "self.x >": compilation failed:'),
        ({"rule": " "}, "Required value: rule is not specified"),
        ({"message": "no rule"}, "Required value: rule is not specified"),
        ("self.x > 1", "Required value: rule is not specified"),
    ],
    ids=["no CEL", "blank", "missing", "a string"],
)
def test_what_is_no_rule_is_refused_with_the_definition(rule, said):
    [cause] = compile_faults({"x-kubernetes-validations": [rule]}, "schema")
    assert cause.field == "schema.x-kubernetes-validations[0].rule"
    assert cause.message.startswith(said)
