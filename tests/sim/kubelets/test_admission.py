import msgspec
import pytest

from cotide_kube.objects import Container, PodSpec, Resources, TaintObject, TolerationObject
from cotide_sim.kubelets.admission import NodeRoom, pod_requests, tolerates

GI = 2**30


def container(cpu=None, memory=None, restart=None, limits=None):
    requests = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return Container(name="c", resources=Resources(requests=requests, limits=limits or {}), restart_policy=restart)


def room(**more):
    return NodeRoom("n0", {"cpu": 4000, "memory": 8 * GI, "pods": 3}, **more)


def refusal(node, spec):
    return node.refusal(spec, pod_requests(spec))


def test_containers_run_together():
    spec = PodSpec(containers=[container("500m", "1Gi"), container("1", "1Gi")])
    assert pod_requests(spec) == {"cpu": 1500, "memory": 2 * GI}


def test_init_containers_run_before_and_only_their_peak_counts():
    spec = PodSpec(containers=[container("1")], init_containers=[container("3"), container("2")])
    assert pod_requests(spec) == {"cpu": 3000}


def test_a_sidecar_counts_beside_what_starts_after_it():
    # Before: max(3 alone, then sidecar 1 + init 2.5 = 3.5); together: 1 + sidecar 1 = 2.
    inits = [container("3"), container("1", restart="Always"), container("2500m")]
    assert pod_requests(PodSpec(containers=[container("1")], init_containers=inits)) == {"cpu": 3500}


def test_overhead_comes_on_top():
    spec = PodSpec(containers=[container("1")], init_containers=[container("2")], overhead={"cpu": "250m"})
    assert pod_requests(spec) == {"cpu": 2250}


def test_a_limit_stands_for_a_missing_request():
    assert pod_requests(PodSpec(containers=[container(limits={"cpu": "2"})])) == {"cpu": 2000}


def test_a_pod_that_just_fits_is_taken_and_one_more_millicore_is_not():
    node = room()
    node.take({"cpu": 3000})
    assert refusal(node, PodSpec(containers=[container("1")])) is None
    found = refusal(node, PodSpec(containers=[container("1001m")]))
    assert found.reason == "OutOfcpu"
    assert found.message == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 1001, used: 3000, capacity: 4000"
    )


def test_memory_is_said_in_bytes():
    found = refusal(room(), PodSpec(containers=[container("1", "9Gi")]))
    assert found.reason == "OutOfmemory"
    assert f"requested: {9 * GI}, used: 0, capacity: {8 * GI}" in found.message


def test_the_number_of_pods_is_looked_at_first():
    node = room()
    for _ in range(3):
        node.take({})
    assert refusal(node, PodSpec(containers=[container("9")])).reason == "OutOfpods"
    node.give_back({})
    assert refusal(node, PodSpec(containers=[container("1")])) is None


def test_an_extended_resource_counts_only_where_the_node_offers_it():
    spec = PodSpec(containers=[Container(resources=Resources(requests={"cotide.dev/reclaimed-cpu": "500"}))])
    assert refusal(room(), spec) is None
    node = room()
    node.allocatable["cotide.dev/reclaimed-cpu"] = 400
    assert refusal(node, spec).reason == "OutOfcotide.dev/reclaimed-cpu"


def test_a_node_selector_that_does_not_match_is_node_affinity():
    found = refusal(room(labels={"disk": "hdd"}), PodSpec(node_selector={"disk": "ssd"}))
    assert found.reason == "NodeAffinity"
    assert "didn't match Pod's node affinity/selector" in found.message


def requiring(*expressions, fields=()):
    terms = [{"matchExpressions": list(expressions), "matchFields": list(fields)}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return msgspec.convert({"affinity": {"nodeAffinity": required}}, PodSpec)


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ["a", "b"], True),
        ("In", ["b"], False),
        ("NotIn", ["b"], True),
        ("NotIn", ["a"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["1"], False),
        ("Like", ["a"], False),
    ],
)
def test_required_node_affinity_is_looked_at(operator, values, matches):
    spec = requiring({"key": "zone", "operator": operator, "values": values})
    found = refusal(room(labels={"zone": "a"}), spec)
    assert (found is None) is matches
    assert matches or found.reason == "NodeAffinity"


def test_numbers_are_compared_as_numbers():
    node = room(labels={"gpus": "10"})
    assert refusal(node, requiring({"key": "gpus", "operator": "Gt", "values": ["9"]})) is None
    assert refusal(node, requiring({"key": "gpus", "operator": "Lt", "values": ["9"]})) is not None


def test_affinity_may_name_the_node():
    field = {"key": "metadata.name", "operator": "In"}
    assert refusal(room(), requiring(fields=[{**field, "values": ["n0"]}])) is None
    assert refusal(room(), requiring(fields=[{**field, "values": ["n1"]}])) is not None


def test_an_empty_term_matches_no_node():
    assert refusal(room(), requiring()).reason == "NodeAffinity"


def test_only_no_execute_taints_are_a_kubelets_business():
    execute, schedule = TaintObject("k", "v", "NoExecute"), TaintObject("k", "v", "NoSchedule")
    assert refusal(room(taints=(schedule,)), PodSpec()) is None
    assert refusal(room(taints=(execute,)), PodSpec()).reason == "TaintToleration"
    tolerated = PodSpec(tolerations=[TolerationObject(key="k", operator="Exists")])
    assert refusal(room(taints=(execute,)), tolerated) is None


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (TolerationObject(operator="Exists"), True),
        (TolerationObject(key="k", value="v"), True),
        (TolerationObject(key="k", value="other"), False),
        (TolerationObject(key="k", value="v", effect="NoSchedule"), False),
        (TolerationObject(key="other", operator="Exists"), False),
    ],
)
def test_tolerations_cover_by_key_value_and_effect(toleration, covers):
    assert tolerates(toleration, TaintObject("k", "v", "NoExecute")) is covers


def test_a_kubelet_under_pressure_refuses_as_a_real_one_does():
    best_effort, burstable = PodSpec(containers=[container()]), PodSpec(containers=[container("1")])
    for pressure, refuses_burstable in (("MemoryPressure", False), ("DiskPressure", True)):
        node = room(pressure=pressure)
        found = refusal(node, best_effort)
        assert (found.reason, found.message) == (
            "Evicted", f"Pod was rejected: The node had condition: [{pressure}]. "
        )  # fmt: skip
        assert (refusal(node, burstable) is not None) is refuses_burstable
