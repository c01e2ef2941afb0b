"""Of a node no more is looked at than the engine can hold, and nothing that is left out lets a pod in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.events import NodeImage
from cotide_core.limits import (
    IMAGE_CHARACTERS,
    MAX_EXACT_INT,
    MAX_IMAGE_NAMES,
    MAX_IMAGES_NAMED,
    MAX_NODE_IMAGES,
    MAX_NODE_LABELS,
    MAX_NODE_RESOURCES,
    MAX_NODE_TAINTS,
)
from cotide_core.units import bounded_amount, parse_quantity, resource_amount
from cotide_kube.objects import (
    Container,
    Metadata,
    NodeImageObject,
    NodeObject,
    NodeSpec,
    NodeStatus,
    PodSpec,
    TaintObject,
)
from cotide_operator.translation.constraints import asked_images
from cotide_operator.translation.pods_and_nodes import node_faults, translate_node


def test_of_too_many_resources_those_that_pods_are_sure_to_ask_for_are_counted() -> None:
    many = {f"a.example.com/r{number:05}": "1" for number in range(20_000)}
    node = NodeObject(Metadata(name="n"), status=NodeStatus(allocatable={**many, "cpu": "4", "pods": "110"}))
    translated = dict(translate_node(node).allocatable)
    assert len(translated) == MAX_NODE_RESOURCES
    assert (translated["cpu"], translated["pods"]) == (4000, 110)
    assert node_faults(node) == [f"20002 resources, at most {MAX_NODE_RESOURCES} are read: others are not counted"]


def images_of(*images: NodeImageObject) -> tuple[NodeImage, ...]:
    return translate_node(NodeObject(Metadata(name="n"), status=NodeStatus(images=images))).images


def test_images_of_a_node_are_told_once_by_each_name_with_the_size_that_comes_first() -> None:
    translated = images_of(NodeImageObject(("web@sha256:1", "web:1"), 200), NodeImageObject(("db:1", "web:1"), 100))
    assert translated == (NodeImage("db:1", 100), NodeImage("web:1", 200), NodeImage("web@sha256:1", 200))
    assert images_of(NodeImageObject(("a:1",), -1), NodeImageObject(("b:1",), 2**63 - 1)) == (
        NodeImage("a:1", 0),
        NodeImage("b:1", MAX_EXACT_INT),
    )


def test_of_too_many_images_the_first_are_told_and_names_that_nobody_can_ask_for_are_not() -> None:
    many = [NodeImageObject((f"i{number:03}:1",), 1000 - number) for number in range(MAX_NODE_IMAGES + 5)]
    assert len(images_of(*many)) == MAX_NODE_IMAGES
    assert images_of(*many)[-1].name == f"i{MAX_NODE_IMAGES - 1:03}:1"
    assert images_of(NodeImageObject(("x" * (IMAGE_CHARACTERS + 1), ""), 1)) == ()
    assert len(images_of(NodeImageObject(tuple(f"i:{number}" for number in range(100)), 1))) == MAX_IMAGE_NAMES


def test_images_that_are_asked_for_have_the_tag_that_is_meant() -> None:
    names = ("web", "host:5000/web", "host:5000/web:2", "web@sha256:1", "web:1", "x" * (IMAGE_CHARACTERS + 1))
    spec = PodSpec(
        containers=tuple(Container(image=name) for name in names), init_containers=(Container(image="web:1"),)
    )
    wanted = ("", "host:5000/web:2", "host:5000/web:latest", "web:1", "web:1", "web:latest", "web@sha256:1")
    assert asked_images(spec) == wanted
    assert asked_images(PodSpec(containers=(Container(image="a"),) * (MAX_IMAGES_NAMED + 1))) == ()


@pytest.mark.parametrize(
    "node",
    [
        NodeObject(Metadata(name="n", labels={f"l{number}": "x" for number in range(MAX_NODE_LABELS + 1)})),
        NodeObject(
            Metadata(name="n"),
            NodeSpec(
                taints=tuple(TaintObject(f"t{number}", "", "NoSchedule") for number in range(MAX_NODE_TAINTS + 1))
            ),
        ),
    ],
)
def test_a_node_with_more_labels_or_taints_than_are_looked_at_takes_no_pods(node: NodeObject) -> None:
    translated = translate_node(node)
    assert translated.unschedulable
    assert (translated.labels, translated.taints) == ((), ())
    assert "it takes no pods" in node_faults(node)[0]


@given(
    st.sampled_from(("cpu", "memory", "pods")),
    st.one_of(
        st.builds("{}{}".format, st.integers(0, 10**20), st.sampled_from(("", "m", "Ki", "Mi", "Gi", "Ti", "M", "Pi"))),
        st.text("0123456789mKGTi.-+ ٣", max_size=8),
    ),
)
def test_a_plain_quantity_is_read_as_any_other(resource: str, text: str) -> None:
    """A space in front makes it no plain one, and means nothing."""
    for read in (resource_amount, bounded_amount):
        outcomes = []
        for written in (text, f" {text}"):
            try:
                outcomes.append(read(resource, written))
            except InputError as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1]
    if text.isascii() and text.isdecimal() and len(text) < 15:
        assert resource_amount("memory", text) == parse_quantity(text)
