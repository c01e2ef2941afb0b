"""HYBRID, Block-Scheduling and the single-machine algorithm: what they do, and the bounds that are proved for them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotide_core.errors import InputError
from cotide_core.planning.high_demand_partition import machine_shares
from cotide_lab.offline import bounds
from cotide_lab.offline.algorithms import ALGORITHMS
from cotide_lab.offline.block_scheduling import block_schedule, gamma, size_classes
from cotide_lab.offline.hybrid import hybrid
from cotide_lab.offline.job_list import JobList
from cotide_lab.offline.lists.list_scheduling import list_schedule, on_given
from cotide_lab.offline.schedule import first_fault, total_completion
from cotide_lab.offline.single_machine import completable, single_machine
from cotide_lab.offline.strip_packing import pack_levels
from cotide_lab.offline.worst_cases import WorstCase, sdf_worst_case, sjf_worst_case, svf_worst_case

ROUNDING = 1e-9


def jobs_of(*pairs: tuple[int, int], capacity: int = 10) -> JobList:
    """Jobs as (size, demand)."""
    return JobList(np.array([p for p, _ in pairs], np.int64), np.array([d for _, d in pairs], np.int64), capacity)


@st.composite
def instances(draw: st.DrawFn, most_demand: int = 20) -> JobList:
    """Jobs of 20-unit machines; sizes of very different magnitude, often equal."""
    sizes = st.one_of(st.integers(1, 8), st.integers(1, 2000))
    pairs = draw(st.lists(st.tuples(sizes, st.integers(1, most_demand)), max_size=40))
    return jobs_of(*pairs, capacity=20)


def brute_force_optimum(jobs: JobList, machines: int) -> int:
    """The least total completion over all orders and all machines.

    The jobs of an optimal schedule, taken by start on the machines they have there, start no later.
    """
    return min(
        total_completion(jobs, on_given(jobs, machines, np.array(order, np.int64), np.array(chosen, np.int64)))
        for order in itertools.permutations(range(len(jobs)))
        for chosen in itertools.product(range(machines), repeat=len(jobs))
    )


@given(instances(), st.integers(1, 7))
@settings(deadline=None)  # the first example compiles the kernels
def test_every_algorithm_gives_a_feasible_schedule(jobs: JobList, machines: int) -> None:
    for name, algorithm in ALGORITHMS.items():
        if (name == "single" and machines > 1) or (name.startswith("hybrid") and machines < 2):
            continue
        assert first_fault(jobs, machines, algorithm(jobs, machines, np.random.default_rng(0))) is None, name


@given(instances(most_demand=19), st.integers(1, 7))
@settings(deadline=None)
def test_theorem_2_holds_for_svf_ef(jobs: JobList, machines: int) -> None:
    cost = total_completion(jobs, list_schedule(jobs, machines, "svf", "ef"))
    promise = bounds.svf_ef_promise(jobs, machines)
    assert cost <= promise * (1 + ROUNDING)
    if len(jobs):
        alpha = int(jobs.demands.max()) / 20
        assert promise <= (3 * alpha / (1 - alpha) + 3) * bounds.optimum_floor(jobs, machines) * (1 + ROUNDING)


@given(instances(), st.integers(2, 12))
@settings(deadline=None)
def test_theorem_3_holds_for_hybrid(jobs: JobList, machines: int) -> None:
    cost = total_completion(jobs, hybrid(jobs, machines))
    assert cost <= bounds.hybrid_promise(jobs, machines) * (1 + ROUNDING)


@given(instances())
@settings(deadline=None)
def test_theorem_3_holds_on_one_machine(jobs: JobList) -> None:
    cost = total_completion(jobs, single_machine(jobs))
    promise = bounds.single_machine_promise(jobs)
    assert cost <= promise
    assert promise <= 12 * bounds.single_machine_floor(jobs)
    compact = single_machine(jobs, compact=True)
    assert (compact.starts <= single_machine(jobs).starts).all()
    assert first_fault(jobs, 1, compact) is None


@given(instances(), st.integers(1, 9))
@settings(deadline=None)
def test_theorem_4_holds_for_block_scheduling(jobs: JobList, machines: int) -> None:
    printed, trimmed = block_schedule(jobs, machines), block_schedule(jobs, machines, trim=True)
    assert total_completion(jobs, printed) <= bounds.block_promise(jobs, machines)
    assert (trimmed.starts <= printed.starts).all()
    for trim in (False, True):
        spread = block_schedule(jobs, machines, trim=trim, spread=True)
        assert total_completion(jobs, spread) <= bounds.block_promise(jobs, machines)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10)), min_size=1, max_size=4), st.integers(1, 2))
@settings(deadline=None, max_examples=40)
def test_the_floors_are_no_higher_than_the_optimum(pairs: list[tuple[int, int]], machines: int) -> None:
    jobs = jobs_of(*pairs)
    optimum = brute_force_optimum(jobs, machines)
    assert bounds.optimum_floor(jobs, machines) <= optimum
    assert bounds.alive_area(jobs, machines) <= bounds.alive_area(jobs, machines, above=True)
    if machines == 1:
        assert bounds.single_machine_floor(jobs) <= optimum


@given(instances(), st.integers(1, 5000))
@settings(deadline=None)
def test_a_strip_is_no_longer_than_twice_the_area_and_the_longest_job(jobs: JobList, length: int) -> None:
    chosen = jobs.taken(completable(jobs, length))
    _, lasts = pack_levels(chosen)
    if len(chosen):
        assert lasts * 20 <= 2 * int(chosen.volumes.sum()) + 20 * int(chosen.sizes.max())
    assert lasts <= 3 * length  # Lemma 5


@pytest.mark.parametrize("case", [sjf_worst_case(4096), sdf_worst_case(200), svf_worst_case(200)])
def test_the_worst_cases_of_table_3_1_are_as_bad_as_printed(case: WorstCase) -> None:
    # SJF at N = 4096: at least 4032 x 32 against at most 4032 x 1.001 + 64 x 33.501, a ratio of 20.9 (sqrt(N) / 3);
    # SDF and SVF at N = 200: at least N (N - 1) against 2 N, a ratio of 99.5.
    assert first_fault(case.jobs, 1, case.better) is None
    cost = total_completion(case.jobs, list_schedule(case.jobs, 1, case.order, "ef"))
    ratio = cost / total_completion(case.jobs, case.better)
    assert ratio >= case.least_ratio
    assert case.least_ratio == pytest.approx({"sjf": 20.87, "sdf": 99.5, "svf": 99.5}[case.order], abs=0.01)


def test_the_gap_grows_as_the_root_of_n_for_sjf_and_as_n_for_the_others() -> None:
    def ratio(case: WorstCase) -> float:
        cost = total_completion(case.jobs, list_schedule(case.jobs, 1, case.order, "ef"))
        return cost / total_completion(case.jobs, case.better)

    assert ratio(sjf_worst_case(16 * 1024)) / ratio(sjf_worst_case(1024)) == pytest.approx(4, rel=0.1)
    for worst in (sdf_worst_case, svf_worst_case):
        assert ratio(worst(400)) / ratio(worst(100)) == pytest.approx(4, rel=0.05)


def test_the_constant_approximations_are_not_fooled_by_the_worst_cases() -> None:
    for case in (sjf_worst_case(4096), sdf_worst_case(200), svf_worst_case(200)):
        best = total_completion(case.jobs, case.better)
        assert total_completion(case.jobs, single_machine(case.jobs)) <= 12 * best
        assert total_completion(case.jobs, block_schedule(case.jobs, 1)) <= 4 * gamma(1) * best


def test_hybrid_uses_every_machine() -> None:
    # Printed, M = 4 gives 1 + 2 machines: the spare one goes to the low-demand jobs.
    assert [machine_shares(machines) for machines in (2, 3, 4, 5, 6, 10, 50)] == [
        (1, 1), (1, 2), (1, 3), (1, 4), (2, 4), (3, 7), (13, 37),
    ]  # fmt: skip


def test_hybrid_keeps_high_demand_jobs_apart() -> None:
    # 6 of 10 is more than half, 5 of 10 is not; machine 0 runs the former one by one, shortest first.
    schedule = hybrid(jobs_of((5, 6), (2, 10), (3, 5), (3, 5), (1, 9)), 2)
    assert schedule.machines.tolist() == [0, 0, 1, 1, 0]
    assert schedule.starts.tolist() == [3, 1, 0, 0, 0]


@given(instances(), st.integers(2, 6))
@settings(deadline=None, max_examples=40)
def test_relisting_never_costs_more(jobs: JobList, machines: int) -> None:
    relisted = total_completion(jobs, hybrid(jobs, machines, relist=True))
    assert relisted <= total_completion(jobs, hybrid(jobs, machines))


def test_relisting_lets_jobs_run_on_the_other_sets_machines() -> None:
    # Both jobs need more than half, machine 1 idles in HYBRID: 2 + 4 there, 2 + 2 when listed over both.
    jobs = jobs_of((2, 6), (2, 6))
    assert total_completion(jobs, hybrid(jobs, 2)) == 6
    assert total_completion(jobs, hybrid(jobs, 2, relist=True)) == 4


def test_size_classes_are_exact_at_powers_of_two() -> None:
    sizes = np.array([1, 2, 3, 4, 5, 8, 9, (1 << 40) - 1, 1 << 40, (1 << 40) + 1])
    assert size_classes(sizes).tolist() == [0, 1, 2, 2, 3, 3, 4, 40, 40, 41]


def test_gamma_is_nine_and_six_over_m_rounded_up() -> None:
    assert [gamma(machines) for machines in (1, 2, 4, 5, 6, 7, 50)] == [15, 12, 11, 11, 10, 10, 10]


def test_blocks_run_densest_first() -> None:
    # Class 2 (size 4): demands 3, 3, 4 make one block of density 3/4; class 0: 9 and 9 do not share, density 1 each.
    jobs = jobs_of((4, 3), (4, 3), (4, 4), (1, 9), (1, 9))
    assert block_schedule(jobs, 1).starts.tolist() == [2, 2, 2, 0, 1]


def test_a_trimmed_block_ends_with_its_longest_job() -> None:
    # Sizes 5 and 6 are of class 3: as printed the next block waits until 8, trimmed until 6.
    jobs = jobs_of((5, 4), (6, 4), (7, 9))
    assert block_schedule(jobs, 1).starts.tolist() == [0, 0, 8]
    assert block_schedule(jobs, 1, trim=True).starts.tolist() == [0, 0, 6]


def test_a_step_gives_the_next_machine_the_less_dense_blocks() -> None:
    # gamma = 12 for two machines: step 0 takes 12 blocks of size 1 for machine 0 and the other 3 for machine 1.
    schedule = block_schedule(jobs_of(*[(1, 10)] * 15), 2)
    assert np.bincount(schedule.machines).tolist() == [12, 3]


def test_a_spread_step_deals_its_blocks_over_the_machines() -> None:
    schedule = block_schedule(jobs_of(*[(1, 10)] * 15), 2, spread=True)
    assert np.bincount(schedule.machines).tolist() == [8, 7]


@given(instances(), st.integers(1, 9))
@settings(deadline=None)
def test_a_spread_step_ends_by_the_time_that_the_proof_gives_it(jobs: JobList, machines: int) -> None:
    # Blocks of class k are all scheduled in the end; the last step K ends by 2 gamma 2^K on every machine.
    schedule = block_schedule(jobs, machines, spread=True)
    held = schedule.starts + (1 << size_classes(jobs.sizes))
    total = (1 << size_classes(jobs.sizes)).sum()
    step = 0
    while (1 << step) < (jobs.sizes.max() if len(jobs) else 1) or (machines * (gamma(machines) - 1)) << step < total:
        step += 1
    assert (held <= 2 * gamma(machines) << step).all()


def test_the_single_machine_algorithm_completes_the_small_ones_of_a_doubling_length_first() -> None:
    # L = 1 takes the job of size 1; L = 2 nothing new (the others are longer); L = 4 both others, on one level.
    assert single_machine(jobs_of((3, 5), (1, 1), (4, 5))).starts.tolist() == [1, 0, 1]
    # Whole machines: 1 + 2 slots of work fit into L = 4 but not into 2, all 7 into L = 8; no packing puts 4 before 2.
    assert single_machine(jobs_of((4, 10), (1, 10), (2, 10))).starts.tolist() == [3, 0, 1]


def test_machines_that_an_algorithm_can_not_use_are_refused() -> None:
    jobs = jobs_of((1, 1))
    with pytest.raises(InputError, match="at least 2"):
        hybrid(jobs, 1)
    with pytest.raises(InputError, match="2 machines"):
        ALGORITHMS["single"](jobs, 2, np.random.default_rng(0))
    with pytest.raises(InputError, match="Block-Scheduling"):
        block_schedule(jobs_of((1 << 41, 1)), 1)
