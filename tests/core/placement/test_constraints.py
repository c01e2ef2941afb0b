"""Rules about other pods: what is counted as events come equals a recount, and decides as the documentation says."""

from __future__ import annotations

from collections import Counter

import engine_objects
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.events import (
    Event,
    Namespace,
    NamespaceUpserted,
    Node,
    NodeDeleted,
    NodeUpserted,
    Pod,
    PodDeleted,
    PodRules,
    PodTerm,
    PodUpserted,
    Requirement,
    Spread,
    Taint,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from cotide_core.events import NodeTerm as Term
from cotide_core.placement.candidates import Candidates
from cotide_core.placement.feasibility import FITS, Feasibility
from cotide_core.placement.scoring import LeastAllocated
from cotide_core.placement.top_rows import Ties
from cotide_core.state.cluster_state import ClusterState
from cotide_core.state.shapes import ShapeTable
from cotide_core.state.snapshot import Snapshot

WEB = (Requirement("app", "In", ("web",)),)
ZONES = {"a1": "a", "a2": "a", "b1": "b", "bare": ""}


def node(name: str, zone: str | None = None) -> Node:
    """A node of its zone, with its own name as another label."""
    zone = ZONES.get(name, "") if zone is None else zone
    labels = (("host", name), *((("zone", zone),) if zone else ()))
    return engine_objects.node(name, 10_000, labels=labels)


def pod(name: str, at: str | None = None, app: str = "web", **fields: object) -> Pod:
    """A small pod of an app, placed where that is said."""
    return engine_objects.pod(name, 100, **{"uid": name, "node": at, "labels": (("app", app),), **fields})


def rules(**fields: object) -> PodRules:
    return PodRules(**fields)  # type: ignore[arg-type]  # fields are named by each test


def apart(key: str = "zone") -> PodRules:
    return rules(anti_affinity=(PodTerm(key, WEB),))


def near(key: str = "zone") -> PodRules:
    return rules(affinity=(PodTerm(key, WEB),))


def having(*events: Event) -> ClusterState:
    state = ClusterState()
    for event in (*(NodeUpserted(node(name)) for name in ZONES), *events):
        state.apply(event)
    return state


def why(state: ClusterState, waiting: Pod) -> dict[str, str]:
    """Return why each node refuses a pod; an empty string where it fits."""
    fit = ShapeTable().of(waiting, state).fit
    feasibility, snapshot = Feasibility(), Snapshot.of(state)
    codes = feasibility.codes(fit, snapshot, slice(0, snapshot.size))
    return {
        snapshot.name(row): feasibility.reasons.messages[code] for row, code in enumerate(codes) if snapshot.alive[row]
    }


def fits(state: ClusterState, waiting: Pod) -> set[str]:
    return {name for name, refusal in why(state, waiting).items() if not refusal}


def test_a_pod_that_keeps_apart_gets_no_domain_of_the_others() -> None:
    state = having(PodUpserted(pod("w", "a1")), PodUpserted(pod("d", "b1", app="db")))
    assert why(state, pod("p", rules=apart())) == {
        "a1": "node(s) didn't match pod anti-affinity rules",
        "a2": "node(s) didn't match pod anti-affinity rules",
        "b1": "",
        "bare": "",
    }
    assert fits(state, pod("p", rules=apart("host"))) == {"a2", "b1", "bare"}


def test_a_placed_pod_keeps_off_others_that_ask_for_nothing() -> None:
    state = having(PodUpserted(pod("w", "a1", app="db", rules=apart())))
    assert why(state, pod("p"))["a2"] == "node(s) didn't satisfy existing pods anti-affinity rules"
    assert fits(state, pod("p")) == {"b1", "bare"}
    assert fits(state, pod("p", app="db")) == set(ZONES)
    state.apply(PodDeleted("d/w", "w"))
    assert fits(state, pod("p")) == set(ZONES)


def test_the_first_of_a_group_that_selects_itself_may_start_where_there_are_domains() -> None:
    state = having()
    assert fits(state, pod("p", rules=near())) == {"a1", "a2", "b1"}
    assert fits(state, pod("p", app="db", rules=near())) == set()
    state.apply(PodUpserted(pod("w", "b1")))
    assert fits(state, pod("q", rules=near())) == {"b1"}
    assert fits(state, pod("q", app="db", rules=near())) == {"b1"}


def test_one_pod_must_satisfy_all_terms_of_an_affinity_together() -> None:
    two = rules(affinity=(PodTerm("zone", WEB), PodTerm("host", (Requirement("track", "Exists"),))))
    state = having(PodUpserted(pod("w", "a1")), PodUpserted(pod("t", "a1", labels=(("track", "x"),))))
    assert fits(state, pod("p", app="db", rules=two)) == set()
    state.apply(PodUpserted(pod("both", "b1", labels=(("app", "web"), ("track", "x")))))
    assert fits(state, pod("p", app="db", rules=two)) == {"b1"}


def test_namespaces_are_named_or_selected_and_else_the_pods_own() -> None:
    other = pod("w", "a1")._replace(key="e/w")
    state = having(PodUpserted(other), NamespaceUpserted(Namespace("e", labels=(("team", "red"),))))
    red = (Requirement("team", "In", ("red",)),)
    for term, blocked in (
        (PodTerm("zone", WEB), False),
        (PodTerm("zone", WEB, ("e",)), True),
        (PodTerm("zone", WEB, (), ()), True),
        (PodTerm("zone", WEB, (), red), True),
    ):
        assert (fits(state, pod("p", rules=rules(anti_affinity=(term,)))) == {"b1", "bare"}) is blocked
    waiting = pod("p", rules=rules(anti_affinity=(PodTerm("zone", WEB, (), red),)))
    state.apply(NamespaceUpserted(Namespace("e", labels=(("team", "blue"),))))
    assert fits(state, waiting) == set(ZONES)


def test_label_keys_compare_with_the_pods_own_value_unless_the_server_wrote_them() -> None:
    stable = pod("w", "a1", labels=(("app", "web"), ("track", "stable")))
    state = having(PodUpserted(stable))
    same = rules(anti_affinity=(PodTerm("zone", WEB, match_label_keys=("track",)),))
    canary = (("app", "web"), ("track", "canary"))
    assert fits(state, pod("p", labels=stable.labels, rules=same)) == {"b1", "bare"}
    assert fits(state, pod("p", labels=canary, rules=same)) == set(ZONES)
    other = rules(anti_affinity=(PodTerm("zone", WEB, mismatch_label_keys=("track",)),))
    assert fits(state, pod("p", labels=canary, rules=other)) == {"b1", "bare"}
    written = (*WEB, Requirement("track", "In", ("stable",)))
    merged = rules(anti_affinity=(PodTerm("zone", written, match_label_keys=("track",)),))
    assert fits(state, pod("p", labels=canary, rules=merged)) == {"b1", "bare"}


def spread(**fields: object) -> PodRules:
    base: dict[str, object] = {"topology_key": "zone", "max_skew": 1, "selector": WEB, **fields}
    return rules(spreads=(Spread(**base),))  # type: ignore[arg-type]  # fields are named by each test


def test_a_spread_refuses_what_would_skew_it() -> None:
    state = having(PodUpserted(pod("w", "a1")))
    # a has one and b none: one more in a would be 2 - 0 > 1.
    assert why(state, pod("p", rules=spread())) == {
        "a1": "node(s) didn't match pod topology spread constraints",
        "a2": "node(s) didn't match pod topology spread constraints",
        "b1": "",
        "bare": "node(s) didn't match pod topology spread constraints (missing required label)",
    }
    assert fits(state, pod("p", rules=spread(max_skew=2))) == {"a1", "a2", "b1"}
    # Three domains are wanted and there are two: the least counts as none, and 1 + 1 - 0 > 1 in a.
    state.apply(PodUpserted(pod("v", "b1")))
    assert fits(state, pod("p", rules=spread())) == {"a1", "a2", "b1"}
    assert fits(state, pod("p", rules=spread(min_domains=3))) == set()


def test_a_spread_counts_the_domains_of_nodes_that_the_pod_may_have_and_no_dying_pods() -> None:
    state = having(PodUpserted(pod("w", "a1")), PodUpserted(pod("gone", "b1", terminating=True)))
    only = (("host", "a1"),)
    assert fits(state, pod("p", rules=spread(), node_selector=only)) == {"a1"}
    assert fits(state, pod("p", rules=spread(honors_affinity=False), node_selector=only)) == set()
    assert fits(state, pod("p", rules=spread())) == {"b1"}


def test_wishes_order_the_nodes_and_forbid_none() -> None:
    state = having(PodUpserted(pod("w", "b1")))
    preferences = (
        rules(pod_preferences=(WeightedPodTerm(5, PodTerm("zone", WEB)),)),
        rules(node_preferences=(WeightedNodeTerm(1, Term((Requirement("zone", "In", ("b",)),))),)),
        rules(spreads=(Spread("zone", 1, (Requirement("app", "In", ("db",)),), required=False),)),
        rules(pod_preferences=(WeightedPodTerm(-5, PodTerm("zone", WEB)),)),
    )
    state.apply(PodUpserted(pod("d", "a1", app="db")))
    for wished, best in zip(preferences, ({"b1"}, {"b1"}, {"b1"}, {"a1", "a2", "bare"}), strict=True):
        snapshot = Snapshot.of(state)
        candidates = Candidates(
            ShapeTable().of(pod("p", rules=wished), state).fit, Feasibility(), LeastAllocated(), Ties(0)
        )
        candidates.refresh(snapshot)
        assert (candidates.codes == FITS).all()
        found = [snapshot.name(row) for row in candidates.best(len(best))]
        assert set(found) == best


def likes(weight: int) -> PodRules:
    return rules(pod_preferences=(WeightedPodTerm(weight, PodTerm("zone", WEB)),))


def scores(state: ClusterState, waiting: Pod) -> dict[str, float]:
    """Return what preferences add to the score of each node."""
    fit, snapshot = ShapeTable().of(waiting, state).fit, Snapshot.of(state)
    found = Feasibility().preferences(fit, snapshot, snapshot.alive.copy())
    named = [(row, snapshot.name(row)) for row in range(snapshot.size) if snapshot.alive[row]]
    return {name: 0.0 if found is None else round(float(found[row]), 9) for row, name in named}


def test_placed_pods_say_where_they_would_have_those_that_come() -> None:
    # zone a: one that likes web with 3, and one that must have web near it, which weighs 1: 4.
    # zone b: one that dislikes web with 2: -2. A node without the label: 0. Scaled to 0 to 2: (n + 2) / 6 x 2.
    placed = (
        pod("l", "a1", "db", rules=likes(3)),
        pod("d", "b1", "db", rules=likes(-2)),
        pod("n", "a2", "db", rules=near()),
    )
    state = having(*map(PodUpserted, placed))
    wanted = {"a1": 2.0, "a2": 2.0, "b1": 0.0, "bare": round(2 / 6 * 2, 9)}
    assert scores(state, pod("p")) == wanted
    assert scores(state, pod("p", app="db")) == dict.fromkeys(ZONES, 0.0)  # none of them means it
    assert why(state, pod("p")) == dict.fromkeys(ZONES, "")
    # Its own preference for zone b, where a web pod runs, is added to theirs: a 4, b -2 + 4.
    state.apply(PodUpserted(pod("w", "b1")))
    own = pod("p", rules=likes(4))
    assert scores(state, own) == {"a1": 2.0, "a2": 2.0, "b1": 1.0, "bare": 0.0}
    for gone in placed:
        state.apply(PodDeleted(gone.key, gone.uid))
    assert scores(state, pod("p")) == dict.fromkeys(ZONES, 0.0)


names = st.sampled_from(["p1", "p2", "p3", "p4", "p5"])
nodes = st.sampled_from(sorted(ZONES))
apps = st.sampled_from(["web", "db"])
steps = st.one_of(
    st.tuples(
        st.just("put"), names, nodes, apps, st.sampled_from([None, apart(), near(), likes(2), likes(-3)]), st.booleans()
    ),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("label"), nodes, st.sampled_from(["a", "b", ""])),
    st.tuples(st.just("leave"), nodes),
    st.tuples(st.just("count"), apps),
)
WAITING = (
    pod("p", rules=apart()),
    pod("p", rules=near()),
    pod("p", rules=spread()),
    pod("p"),
    pod("p", rules=apart("host")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=25))
def test_what_is_kept_as_events_come_is_what_a_new_engine_would_count(taken: list[tuple[object, ...]]) -> None:
    state = having()
    pods: dict[str, Pod] = {}
    there = {name: node(name) for name in ZONES}
    for kind, *rest in taken:
        if kind == "put":
            name, at, app, says, dying = rest
            upserted = pod(str(name), str(at), str(app), rules=says, terminating=bool(dying))
            pods[upserted.key] = upserted
            state.apply(PodUpserted(upserted))
        elif kind == "drop":
            gone = pods.pop(f"d/{rest[0]}", None)
            if gone is not None:
                state.apply(PodDeleted(gone.key, gone.uid))
        elif kind == "label":
            there[str(rest[0])] = node(str(rest[0]), str(rest[1]))
            state.apply(NodeUpserted(there[str(rest[0])]))
        elif kind == "leave":
            there.pop(str(rest[0]), None)
            state.apply(NodeDeleted(str(rest[0])))
        else:  # somebody asks, so that from now on these are counted
            for waiting in WAITING:
                why(state, waiting)
                scores(state, waiting)
    fresh = ClusterState()
    for one in there.values():
        fresh.apply(NodeUpserted(one))
    for placed in pods.values():
        fresh.apply(PodUpserted(placed))
    for waiting in WAITING:
        assert why(state, waiting) == why(fresh, waiting)
        assert scores(state, waiting) == scores(fresh, waiting)


def test_nothing_is_counted_while_no_pod_has_rules() -> None:
    state = having(*(PodUpserted(pod(f"w{number}", "a1")) for number in range(3)))
    assert not state.matches.active
    assert len(state.matches) == 0
    assert ShapeTable().of(pod("p"), state).fit.peers is None


def test_selectors_that_no_pod_has_any_more_are_dropped() -> None:
    state = having(PodUpserted(pod("w", "a1")))
    table = ShapeTable()
    shapes = [
        table.of(pod("p", rules=rules(anti_affinity=(PodTerm(f"k{n}", WEB, (f"n{n}",)),))), state) for n in range(5)
    ]
    assert len(state.matches) == 5
    kept = shapes[2].fit.peers
    assert kept is not None
    state.matches.prune({kept})
    assert len(state.matches) == 1
    assert Counter(fits(state, pod("p", rules=apart()))) == Counter({"b1": 1, "bare": 1})


def test_a_tolerated_taint_counts_no_node_that_the_pod_s_selector_leaves_out() -> None:
    labels = (("zone", "a"), ("disk", "ssd"))
    soft = engine_objects.node("soft", 10_000, labels=labels, taints=(Taint("k", "v", "PreferNoSchedule"),))
    state = ClusterState()
    state.apply(NodeUpserted(soft))
    state.apply(NodeUpserted(engine_objects.node("hard", 10_000, labels=(("zone", "a"), ("disk", "hdd")))))
    for number in range(2):
        state.apply(PodUpserted(pod(f"p{number}", "soft")))
    # Two domains are asked for and there is one, so least is 0: with the two pods on ssd a third would be too many.
    spread = Spread("zone", 2, WEB, min_domains=2, honors_taints=True)
    waiting = pod("w", rules=rules(spreads=(spread,)), node_selector=(("disk", "hdd"),))
    assert why(state, waiting)["hard"] == ""
