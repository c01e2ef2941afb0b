"""Names in the configuration file: of schedulers, and of PriorityClasses that stand for a class."""

from __future__ import annotations

import pytest

from cotide_core.classes import SHIPPED_PRIORITY_CLASSES, WorkloadClass
from cotide_core.errors import InputError
from cotide_operator.config.settings import parse_settings, with_changes

HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"
BY_NAME = "classes:\n  byPriorityClass:\n    nightly: batch\n"

MISTAKES = [
    ("schedulerNames: [a, b, a]\n", "c.yaml:3: schedulerNames: names a twice"),
    ("schedulerNames: []\n", "c.yaml:3: schedulerNames: tuple should have at least 1 item"),
    ("schedulerNames: cotide\n", "c.yaml:3: schedulerNames: is a list: write its items in brackets"),
    ("schedulerNames:\n- cotide\n- ''\n", "c.yaml:5: schedulerNames[1]: must not be empty"),
    (
        "schedulerNames:\n- cotide\n- Default\n",
        "c.yaml:5: schedulerNames[1]: 'Default' is no DNS name: at most 253 lower-case letters",
    ),
    (f"schedulerNames: [{'a' * 254}]\n", f"c.yaml:3: schedulerNames[0]: '{'a' * 253}' is no DNS name"),
    ("schedulerNames: [5]\n", "c.yaml:3: schedulerNames[0]: input should be a valid string"),
    ("schedulerName: ''\n", "c.yaml:3: schedulerName: must not be empty"),
    ("schedulerName: a..b\n", "c.yaml:3: schedulerName: 'a..b' is no DNS name"),
    (
        "schedulerName: a\nschedulerNames: [a, b]\n",
        "c.yaml:4: schedulerNames: is [a, b] and its alias schedulerName is a: give one of the two",
    ),
    (
        "schedulerNames: [cotide, cotide-assisted]\n",
        "c.yaml:3: schedulerNames: must not name cotide-assisted: Cotide binds its own pods",
    ),
    (
        "schedulerNames: [a, b]\nextender: {schedulerNames: [b]}\n",
        "c.yaml:4: extender.schedulerNames: must not name b: Cotide binds its own pods",
    ),
    ("extender: {schedulerNames: [b, b]}\n", "c.yaml:3: extender.schedulerNames: names b twice"),
    (BY_NAME + "    Weekly: batch\n", "c.yaml:6: classes.byPriorityClass.Weekly: 'Weekly' is no DNS name"),
    (BY_NAME + "    '': batch\n", "c.yaml:6: classes.byPriorityClass.: must not be empty"),
    (
        BY_NAME + "    weekly: btach\n",
        "c.yaml:6: classes.byPriorityClass.weekly: input should be 'online', 'batch' or 'gratis'",
    ),
    (
        BY_NAME + "    weekly:\n",
        "c.yaml:6: classes.byPriorityClass.weekly: input should be 'online', 'batch' or 'gratis'",
    ),
    (BY_NAME + "    nightly: gratis\n", "c.yaml:6: classes.byPriorityClass.nightly: is written twice"),
    (
        BY_NAME + "    system-critical: online\n",
        "c.yaml:6: classes.byPriorityClass.system-critical: no PriorityClass has this name: system- is reserved",
    ),
    (
        "classes: {byPriority: {}}\n",
        "c.yaml:3: classes.byPriority: is not a setting; there are byPriorityClass; did you mean byPriorityClass?",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), MISTAKES, ids=[one[1][9:70] for one in MISTAKES])
def test_a_bad_name_is_reported_with_file_line_and_field(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(HEAD + text, "c.yaml")
    assert str(caught.value).startswith(sentence)


def test_one_name_may_be_given_as_a_list_or_by_the_alias_or_equally_by_both() -> None:
    for text in ("schedulerName: a\n", "schedulerNames: [a]\n", "schedulerName: a\nschedulerNames: [a]\n"):
        assert with_changes(parse_settings(HEAD + text), policy="fifo").scheduler_names == ("a",)
    assert parse_settings(HEAD + "schedulerNames: [cotide, default-scheduler]\n").scheduler_names == (
        "cotide",
        "default-scheduler",
    )


def test_only_the_shipped_priority_classes_give_a_class_by_default() -> None:
    assert parse_settings(HEAD).classes.by_priority_class == SHIPPED_PRIORITY_CLASSES
    assert {name: str(one) for name, one in SHIPPED_PRIORITY_CLASSES.items()} == {
        "cotide-online": "online",
        "cotide-batch": "batch",
        "cotide-gratis": "gratis",
    }


def test_names_of_the_cluster_come_to_the_shipped_ones_and_may_take_over_from_them() -> None:
    found = parse_settings(HEAD + BY_NAME + "    cotide-gratis: batch\n    system-node-critical: online\n").classes
    assert found.by_priority_class == {
        **SHIPPED_PRIORITY_CLASSES,
        "nightly": WorkloadClass.BATCH,
        "cotide-gratis": WorkloadClass.BATCH,
        "system-node-critical": WorkloadClass.ONLINE,
    }
