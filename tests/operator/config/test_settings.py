# ruff: noqa: E501 - tables of cases read best with one case a line
"""The configuration file: what is accepted, and what each mistake is called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from annotated_types import Le, Lt
from hooks import configuration_page
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from repository import ROOT

from cotide_core.config import SYSTEM_SPREADS, DefaultSpread, HierarchicalConfig, PlansConfig, SchedulerConfig
from cotide_core.consolidation.removal.stays import MoveRules
from cotide_core.errors import InputError
from cotide_operator.config.section import Section
from cotide_operator.config.settings import Settings, engine_config, parse_settings, read_settings, with_changes
from cotide_operator.provisioning.placing import PlaceSettings

EXAMPLES = ROOT / "examples" / "configuration"
HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\n"

MISTAKES = [
    ("polcy: fifo\n", "c.yaml:3: polcy: is not a setting; there are apiVersion, kind, policy"),
    ("queue:\n  backoffInitialSecs: 1\n", "c.yaml:4: queue.backoffInitialSecs: is not a setting"),
    ("policy: best\n", "c.yaml:3: policy: there is no 'best'; there are qpsm, hierarchical, predictive"),
    ("queue:\n  backoffMaxSeconds: 0.5\n", "c.yaml:3: queue: backoffMaxSeconds must not be below backoffInitialSeconds"),
    ("qos: {riskThresholdProbability: 1.5}\n", "c.yaml:3: qos.riskThresholdProbability: input should be less than or equal to 1"),
    ("metricsSource: {prometheus: {url: 'http://p'}, scrape: {url: 'http://s'}}\n", "c.yaml:3: metricsSource: name exactly one of"),
    ("metricsSource: {intervalSeconds: 3}\n", "c.yaml:3: metricsSource: name exactly one of"),
    ("metricsSource:\n  prometheus:\n    url: prometheus:9090\n", "c.yaml:5: metricsSource.prometheus.url: must begin with http"),
    ("plans: {quantile: 0.995}\n", "c.yaml:3: plans.quantile: input should be less than or equal to 0.99"),
    ("plans:\n  quantile: 0.4\n", "c.yaml:4: plans.quantile: input should be greater than or equal to 0.5"),
    ("policy: easy\nplans:\n  depth: 0\n", "c.yaml:5: plans.depth: input should be greater than or equal to 1"),
    ("plans: {depth: 70000}\n", "c.yaml:3: plans.depth: input should be less than or equal to 65536"),
    ("plans: {depth: many}\n", "c.yaml:3: plans.depth: input should be a valid integer"),
    ("plans: {deph: 10}\n", "c.yaml:3: plans.deph: is not a setting; there are quantile, depth"),
    ("overload: {cpuThreshold: 1}\n", "c.yaml:3: overload.cpuThreshold: is not a setting; there are share, relievedShare, observationSeconds"),
    ("overlod: {share: 1}\n", "c.yaml:3: overlod: is not a setting; there are apiVersion"),
    ("overload: {share: 1.2}\n", "c.yaml:3: overload.share: input should be less than or equal to 1"),
    ("overload: {share: 0}\n", "c.yaml:3: overload.share: input should be greater than 0"),
    ("overload:\n  share: 0.8\n", "c.yaml:3: overload: relievedShare must not be above share"),
    ("overload: {pauseSeconds: -1}\n", "c.yaml:3: overload.pauseSeconds: input should be greater than or equal to 0"),
    ("overload: {maximumEvictions: 0}\n", "c.yaml:3: overload.maximumEvictions: input should be greater than or equal to 1"),
    ("overload: {maximumEvictions: 1.5}\n", "c.yaml:3: overload.maximumEvictions: input should be a valid integer"),
    ("overload: {flapEpisodes: 0}\n", "c.yaml:3: overload.flapEpisodes: input should be greater than or equal to 1"),
    ("hierarchical: {victims: oldest}\n", "c.yaml:3: hierarchical.victims: input should be 'cheapest', 'random' or 'none'"),
    ("hierarchical: {gratisSubtracts: none}\n", "c.yaml:3: hierarchical.gratisSubtracts: input should be 'highest', 'both' or 'held'"),
    ("hierarchical: {capacityShare: 95}\n", "c.yaml:3: hierarchical.capacityShare: input should be less than or equal to 1"),
    ("hierarchical: {usageStaleSeconds: 9}\n", "c.yaml:3: hierarchical.usageStaleSeconds: is not a setting; there are victims"),
    ("hierarchical:\n  nominationSeconds: 30\n", "c.yaml:3: hierarchical: nominationSeconds must not be below evictionTimeoutSeconds"),
    ("hostLoad: {quantile: 0.95}\n", "c.yaml:3: hostLoad.quantile: must be one of 0.5, 0.9, 0.99"),
    ("hostLoad: {quantile: high}\n", "c.yaml:3: hostLoad.quantile: input should be a valid number"),
    ("hostLoad: {predictor: oracle}\n", "c.yaml:3: hostLoad.predictor: input should be 'mixture' or 'sigma-percentile'"),
    ("hostLoad: {challenger: mixture}\n", "c.yaml:3: hostLoad: challenger must differ from predictor"),
    ("hostLoad: {historySeconds: 200}\n", "c.yaml:3: hostLoad.historySeconds: must not be below slotSeconds"),
    ("slotSeconds: 600\nhostLoad:\n  quantile: 0.5\n  refitSeconds: 300\n", "c.yaml:6: hostLoad.refitSeconds: must not be below slotSeconds"),
    ("hostLoad:\n  enabled: true\n", "c.yaml:4: hostLoad.enabled: needs a metricsSource"),
    ("policy: hierarchical\nhostLoad: {enabled: false}\nreclaimed: {publish: true}\n", "c.yaml:5: reclaimed.publish: needs hostLoad"),
    ("reclaimed: {jobPods: true}\n", "c.yaml:3: reclaimed.jobPods: needs reclaimed.publish"),
    ("provisioning:\n  machineTypes: [{name: a, cpu: '4', memory: 1Gi, count: 1}]\n  energyPrices: {priceQuery: up}\n", "c.yaml:5: provisioning.energyPrices: its queries need metricsSource.prometheus"),
    ("provisioning:\n  machineTypes:\n    - {name: a, cpu: '4', memory: 1Gi, count: 1, idleWats: 9}\n", "c.yaml:5: provisioning.machineTypes[0].idleWats: is not a setting; there are name, cpu, memory, count, "),
    ("provisioning:\n  machineTypes:\n    - {name: a, cpus: '4', memory: 1Gi, count: 1}\n", "did you mean cpu? (and 1 more)"),
    ("provisioning:\n  machineTypes:\n    - {name: a, memory: 1Gi, count: 1}\n", "c.yaml:5: provisioning.machineTypes[0].cpu: is missing"),
    ("provisioning:\n  machineTypes: [{name: a, cpu: '4', memory: 1Gi, count: 1}]\n  actuator:\n    scales: {a: apis/x}\n", "provisioning.actuator.scales.a"),
    ("policy: hierarchical\nreclaimed: {publish: false, jobPods: true}\n", "c.yaml:4: reclaimed.jobPods: needs reclaimed.publish"),
    ("reclaimed: {minimumChangeShare: 5}\n", "c.yaml:3: reclaimed.minimumChangeShare: input should be less than or equal to 1"),
    ("reclaimed: {patchesPerSecond: 0}\n", "c.yaml:3: reclaimed.patchesPerSecond: input should be greater than 0"),
    ("reclaimed: {publish: sometimes}\n", "c.yaml:3: reclaimed.publish: input should be a valid boolean"),
    ("admission: {enabled: true}\n", "c.yaml:3: admission.enabled: needs reclaimed.publish"),
    ("admission: {port: 70000}\n", "c.yaml:3: admission.port: input should be less than or equal to 65535"),
    ("admission: {serviceName: Cotide_Admission}\n", "c.yaml:3: admission.serviceName: string should match pattern"),
    ("metricsSource: {prometheus: {url: 'http://p', podCpuQuery: ' '}}\n", "c.yaml:3: metricsSource.prometheus.podCpuQuery: must be a PromQL query"),
    ("metricsSource: {prometheus: {url: 'http://p', cpuQuery: up}}\n", "c.yaml:3: metricsSource.prometheus.cpuQuery: is not a setting; there are url, podCpuQuery, podMemoryQuery"),
    ("metricsSource: {prometheus: {url: 'http://p', workloadQueries: {rps: 'rate('}}}\n", "c.yaml:3: metricsSource.prometheus.workloadQueries.rps: it is no PromQL"),
    ("metricsSource: {prometheus: {url: 'http://p', workloadQueries: {latency: 'x offset 5m'}}}\n", "workloadQueries.latency: offset and @ are not supported"),
    ("metricsSource: {prometheus: {url: 'http://p', workloadQueries: {free: {'*': unrestricted}}}}\n", "workloadQueries.free: only a namespace that is named can be unrestricted"),
    ("metricsSource: {prometheus: {url: 'http://p', workloadQueries: {free: {shop: yes}}}}\n", "workloadQueries.free.shop: input should be 'enforced' or 'unrestricted'"),
    ("metricsSource: {prometheus: {url: 'http://p', headers: {Host: a}}}\n", "metricsSource.prometheus.headers: header Host is set by Cotide"),
    ("metricsSource: {prometheus: {url: 'http://p', headers: {'X A': a}}}\n", "'X A' is not the name of a header"),
    ("metricsSource: {prometheus: {url: 'http://p', headers: {X-A: a, x-a: b}}}\n", "names a header more than once"),
    ("metricsSource: {prometheus: {url: 'http://p', headers: {X-A: {file: /f, env: E}}}}\n", "name exactly one of value, file, env"),
    ("metricsSource: {prometheus: {url: 'http://p', headers: {X-A: {file: /f}}}}\n", "secret headers go with an https:// url"),
    ("metricsSource: {prometheus: {url: 'http://p', headers: {Authorization: Basic x}}}\n", "secret headers go with an https:// url"),
    ("metricsSource: {prometheus: {url: 'https://p', bearerTokenFile: /t, headers: {authorization: b}}}\n", "are one header"),
    ("metricsSource: {prometheus: {url: 'http://p', bearerTokenFile: /token}}\n", "metricsSource.prometheus: bearerTokenFile goes with an https:// url"),
    ("metricsSource: {prometheus: {url: 'http://p', tls: {caFile: /ca}}}\n", "metricsSource.prometheus: tls goes with an https:// url"),
    ("metricsSource: {prometheus: {url: 'https://p', tls: {certificateFile: /crt}}}\n", "metricsSource.prometheus.tls: certificateFile and keyFile go together"),
    ("metricsSource: {scrape: {url: 'http://s'}, intervalSeconds: 90}\n", "c.yaml:3: metricsSource: staleAfterSeconds must not be below"),
    ("seed: 1\nleaderElection: 5\n", "c.yaml:4: leaderElection: is a section: write its settings below it"),
    ("seed: 1\nseed: 2\n", "c.yaml:4: seed: is written twice"),
    ("models: {retraining: {enabled: true}}\n", "c.yaml:3: models: retraining needs a directory"),
    ("models: {directory: /m, retraining: {enabled: true, ownModelsMost: 0}}\n", "c.yaml:3: models: retraining needs pooledNamespaces"),
    ("tenancy: {maxClassWithoutLabel: vip}\n", "c.yaml:3: tenancy.maxClassWithoutLabel: input should be 'unraised'"),
    ("leaderElection: {renewDeadlineSeconds: 20}\n", "c.yaml:3: leaderElection: must be ordered: retryPeriodSeconds"),
    ("seed: [\n", "c.yaml:4: is not YAML"),
    ("queue: {maxPods: 99999999999999999999}\n", "c.yaml:3: queue.maxPods: input should be less than or equal to"),
    ("seed: 99999999999999999999\n", "c.yaml:3: seed: input should be less than or equal to"),
    ("slotSeconds: .inf\n", "c.yaml:3: slotSeconds: input should be a finite number"),
    ("simulatedTime: {originSeconds: .nan, speed: 1}\n", "c.yaml:3: simulatedTime.originSeconds: input should be a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"), MISTAKES, ids=[case[0].split(":")[0] + str(i) for i, case in enumerate(MISTAKES)]
)
def test_a_mistake_is_named_with_file_line_and_field(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_settings(HEAD + text, "c.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: CotideConfiguration\n", "c.yaml:1: apiVersion: must be cotide.dev/v1alpha1"),
        ("apiVersion: cotide.dev/v1alpha1\nkind: Pod\n", "c.yaml:2: kind: must be CotideConfiguration"),
        ("- a\n", "c.yaml: must be a mapping"),
        ("", "c.yaml: must be a mapping"),
    ],
)
def test_another_kind_of_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("[", r"\[")):
        parse_settings(text, "c.yaml")


def test_several_mistakes_are_counted_and_the_first_is_told() -> None:
    with pytest.raises(InputError, match=r"a: is not a setting; .* \(and 1 more\)"):
        parse_settings(HEAD + "a: 1\nb: 2\n")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the configuration file can't be read: no such file or directory"):
        read_settings(tmp_path / "none.yaml")


def test_without_a_file_the_engine_keeps_its_own_defaults() -> None:
    # Only live does a place stay taken for as long as an outage may last, is room kept for gangs, and is a cycle held up
    # by what it asks.
    assert engine_config(read_settings(None)) == SchedulerConfig(
        assume_timeout_seconds=3600, gang_reserve_seconds=120, effort_per_decision=40, preempts_by_priority=True
    )


def test_every_engine_knob_comes_through() -> None:
    text = (
        "policy: fifo-guarded\nseed: 7\nqos: {riskThresholdProbability: 0.2}\n"
        "queue: {backoffInitialSeconds: 2, backoffMaxSeconds: 20, unschedulableFlushSeconds: 30, ageBackSeconds: 40,"
        " overtakingSeconds: 50, maxDecisionsPerCycle: 60, maxPods: 70, fairHalfLifeSeconds: 80}\n"
        "gangs: {reserveAfterSeconds: 90}\nsimulatedTime: {originSeconds: 100, speed: 20}\n"
    )
    assert engine_config(parse_settings(HEAD + text)) == SchedulerConfig(
        policy="fifo-guarded",
        seed=7,
        qos_risk_threshold=0.2,
        backoff_initial_seconds=2,
        backoff_max_seconds=20,
        unschedulable_flush_seconds=30,
        age_back_seconds=40,
        overtaking_seconds=50,
        max_decisions_per_cycle=60,
        # an unconfirmed binding is a matter of wall time: an hour is 72,000 s of a clock that runs 20 times as fast
        assume_timeout_seconds=72_000,
        max_queue=70,
        gang_reserve_seconds=90,
        effort_per_decision=40,
        preempts_by_priority=True,
        fair_half_life_seconds=80,
    )


def test_every_knob_of_the_policy_hierarchical_comes_through_and_what_waits_for_a_kubelet_in_wall_seconds() -> None:
    text = (
        "policy: hierarchical\nmetricsSource: {scrape: {url: 'http://s'}, staleAfterSeconds: 9}\n"
        "hierarchical: {victims: random, gratisSubtracts: both, capacityShare: 0.5, nominationSeconds: 40,"
        " evictionTimeoutSeconds: 20, evictionRetrySeconds: 10}\n"
        "overload: {share: 0.9, relievedShare: 0.8, observationSeconds: 1, pauseSeconds: 2, maximumEvictions: 3,"
        " flapEpisodes: 4, flapWindowSeconds: 5, cordonSeconds: 6}\n"
        "simulatedTime: {originSeconds: 100, speed: 20}\n"
    )
    assert engine_config(parse_settings(HEAD + text)).hierarchical == HierarchicalConfig(
        victims="random",
        gratis_subtracts="both",
        capacity_share=0.5,
        usage_stale_seconds=180,  # 9 s of a scrape x 20
        nomination_seconds=800,
        eviction_timeout_seconds=400,
        eviction_retry_seconds=200,
        overload_share=0.9,
        relieved_share=0.8,
        overload_observation_seconds=1,
        overload_pause_seconds=2,
        overload_evictions=3,
        flap_episodes=4,
        flap_window_seconds=5,
        cordon_seconds=6,
    )


def test_the_policy_hierarchical_has_the_engines_defaults_and_other_policies_none_of_its_knobs() -> None:
    hierarchical = SchedulerConfig(
        policy="hierarchical",
        assume_timeout_seconds=3600,
        gang_reserve_seconds=120,
        effort_per_decision=40,
        preempts_by_priority=True,
    )
    assert engine_config(parse_settings(HEAD + "policy: hierarchical\n")) == hierarchical
    assert engine_config(parse_settings(HEAD + "overload: {share: 0.95}\n")).hierarchical is None


def test_what_plans_plan_with_reaches_the_engine_and_defaults_leave_the_ledger_s_header_alone() -> None:
    plans = engine_config(parse_settings(HEAD + "plans: {quantile: 0.8, depth: 100}\n")).plans
    assert plans == PlansConfig(quantile=0.8, depth=100)
    assert engine_config(parse_settings(HEAD + "plans: {quantile: 0.9, depth: 2048}\n")).plans is None


def test_zero_seconds_keep_no_room_for_gangs() -> None:
    assert engine_config(parse_settings(HEAD + "gangs: {reserveAfterSeconds: 0}\n")).gang_reserve_seconds is None


@pytest.mark.parametrize(
    ("text", "forecasts", "publishes", "reclaim"),
    [
        ("", False, False, False),
        ("policy: hierarchical\n", True, True, True),
        ("policy: predictive\n", True, True, True),
        ("policy: hierarchical\nreclaimed: {publish: false}\n", True, False, False),
        ("policy: hierarchical\nreclaimed: {jobPods: false}\n", True, True, False),
        ("policy: hierarchical\nhostLoad: {enabled: false}\n", False, False, False),
        ("reclaimed: {publish: true}\n", True, True, True),
        ("metricsSource: {scrape: {url: 'http://s'}}\nhostLoad: {enabled: true}\n", True, False, False),
    ],
)
def test_what_is_left_open_follows_the_policy_and_what_is_published(
    text: str, forecasts: bool, publishes: bool, reclaim: bool
) -> None:
    settings = parse_settings(HEAD + text)
    assert (settings.forecasts_host_load, settings.publishes_reclaimed, settings.job_pods_reclaim) == (
        forecasts,
        publishes,
        reclaim,
    )


def test_the_command_line_may_name_a_policy_that_the_file_did_not_think_of() -> None:
    settings = parse_settings(HEAD + "policy: hierarchical\noverload: {share: 0.95}\n")
    assert not with_changes(settings, policy="fifo").publishes_reclaimed
    with pytest.raises(InputError, match=r"^reclaimed\.jobPods: needs reclaimed\.publish"):
        with_changes(parse_settings(HEAD + "policy: hierarchical\nreclaimed: {jobPods: true}\n"), policy="fifo")


def test_the_command_line_is_checked_like_the_file(tmp_path: Path) -> None:
    settings = with_changes(read_settings(None), policy="fifo", ledger={"directory": tmp_path}, models=None)
    assert (settings.policy, settings.ledger.directory if settings.ledger else None) == ("fifo", tmp_path)
    with pytest.raises(InputError, match="policy: there is no 'best'"):
        with_changes(settings, policy="best")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_accepted_with_each_default_that_they_name_in_a_comment(path: Path, tmp_path: Path) -> None:
    assert read_settings(path).policy in ("hierarchical", "qpsm")
    # `  # key: value` of a section becomes a setting, and that setting is what it is without being written.
    spelled_out = tmp_path / path.name
    spelled_out.write_text(re.sub(r"^  # (\w+: )", r"  \1", path.read_text(), flags=re.MULTILINE))
    assert read_settings(spelled_out) == read_settings(path)


def test_the_reference_gives_a_meaning_of_each_setting() -> None:
    rows = [line.split(" | ") for line in configuration_page().splitlines() if line.startswith("| `")]
    meanings = {cells[0].removeprefix("| `").rstrip("`"): cells[-1].rstrip("| ") for cells in rows}
    assert [key for key in _keys_of(Settings) if not meanings.get(key)] == []


def _keys_of(section: type[BaseModel], above: str = "") -> list[str]:
    """Return the paths of all plain settings, as the document writes them."""
    found = []
    for name, field in section.model_fields.items():
        key = above + (field.alias or name)
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if isinstance(kind, type)]
        inner = [kind for kind in kinds if issubclass(kind, BaseModel)]
        found += _keys_of(inner[0], f"{key}.") if inner else [key]
    return found


def test_in_shadow_the_clusters_own_scheduler_is_meant_and_nothing_that_writes_may_be_on() -> None:
    text = HEAD + "mode: shadow\nledger: {directory: x}\n"
    assert parse_settings(text).scheduler_names == ("default-scheduler",)
    assert parse_settings(text + "schedulerName: other\n").scheduler_names == ("other",)
    assert with_changes(parse_settings(text), policy="fifo").scheduler_names == ("default-scheduler",)
    assert parse_settings(HEAD).scheduler_names == ("cotide",)
    with pytest.raises(InputError, match="mode: shadow needs a ledger"):
        parse_settings(HEAD + "mode: shadow\n")
    with pytest.raises(InputError, match=r"extender\.enabled: must be off in shadow"):
        parse_settings(text + "extender: {enabled: true}\n")


def test_whose_pods_are_cotides_own_is_not_for_the_extender_and_binding_needs_to_know_who_asks() -> None:
    with pytest.raises(InputError, match=r"extender\.schedulerNames: must not name cotide"):
        parse_settings(HEAD + "extender: {schedulerNames: [cotide]}\n")
    with pytest.raises(InputError, match=r"extender: binds needs clientAuthority"):
        parse_settings(HEAD + "extender: {enabled: true, binds: true}\n")


def test_pods_are_packed_only_where_nodes_are_freed_and_nobody_says_otherwise() -> None:
    assert not engine_config(parse_settings(HEAD)).packs
    assert engine_config(parse_settings(HEAD + "consolidation: {enabled: true}\n")).packs
    assert not engine_config(parse_settings(HEAD + "consolidation: {enabled: true, packs: false}\n")).packs


def test_gangs_are_moved_whole_only_on_request_and_within_what_may_move_at_once() -> None:
    def rules(text: str) -> MoveRules:
        return parse_settings(f"{HEAD}consolidation: {{{text}}}\n").consolidation.moves()

    assert rules("movesAtOnce: 8").gang_most == 0
    assert rules("movesAtOnce: 8, moveGangs: true").gang_most == 8
    with pytest.raises(InputError, match="moveGangs moves gangs of up to movesAtOnce pods: set that to 2 or more"):
        rules("moveGangs: true")


def whole_numbers(section: type[Section], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The settings below a section that are whole numbers."""
    for name, field in section.model_fields.items():
        kinds = [field.annotation, *_inside(field.annotation)]
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from whole_numbers(kind, f"{path}{name}.")
        if int in kinds:
            yield f"{path}{name}", field


def _inside(kind: Any) -> list[Any]:
    return [found for part in get_args(kind) for found in (part, *_inside(part))]


@pytest.mark.parametrize("section", [Settings, PlaceSettings])
def test_every_whole_number_has_a_largest_value(section: type[Section]) -> None:
    unbounded = [
        path for path, field in whole_numbers(section) if not any(isinstance(one, Le | Lt) for one in field.metadata)
    ]
    assert unbounded == []


SPREAD_HEAD = "apiVersion: cotide.dev/v1alpha1\nkind: CotideConfiguration\npodTopologySpread:\n"


def test_default_spreads_are_kube_schedulers_unless_a_list_says_otherwise() -> None:
    assert engine_config(Settings()).default_spreads == SYSTEM_SPREADS
    text = (
        f"{SPREAD_HEAD}  defaultingType: List\n  defaultConstraints:\n"
        "    - {maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}\n"
    )
    assert engine_config(parse_settings(text)).default_spreads == (DefaultSpread("rack", 2, required=True),)
    assert engine_config(parse_settings(f"{SPREAD_HEAD}  defaultingType: List\n")).default_spreads == ()


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (
            "  defaultConstraints:\n    - {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}\n",
            "configuration:3: podTopologySpread.defaultingType: must be List with defaultConstraints",
        ),
        (
            "  defaultingType: List\n  defaultConstraints:\n"
            "    - {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}\n"
            "    - {maxSkew: 2, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}\n",
            "configuration:7: podTopologySpread.defaultConstraints[1]: repeats the constraint of a with ScheduleAnyway",
        ),
        (
            "  defaultingType: List\n  defaultConstraints:\n    - maxSkew: 0\n      topologyKey: a\n"
            "      whenUnsatisfiable: ScheduleAnyway\n",
            "configuration:6: podTopologySpread.defaultConstraints[0].maxSkew: input should be greater than or equal",
        ),
        (
            "  defaultingType: List\n  defaultConstraints:\n    - maxSkew: 1\n      topologyKey: a b\n"
            "      whenUnsatisfiable: ScheduleAnyway\n",
            "configuration:7: podTopologySpread.defaultConstraints[0].topologyKey: 'a b' is not the key of a label",
        ),
        (
            "  defaultingType: List\n  defaultConstraints:\n    - maxSkew: 1\n      topologyKey: a\n"
            "      whenUnsatisfiable: ScheduleAnyway\n      labelSelector: {}\n",
            "configuration:9: podTopologySpread.defaultConstraints[0].labelSelector: must be left out",
        ),
    ],
)
def test_default_constraints_are_checked_as_kube_scheduler_checks_them(lines: str, fault: str) -> None:
    with pytest.raises(InputError) as error:
        parse_settings(SPREAD_HEAD + lines)
    assert str(error.value).startswith(fault)
