"""Traces that are no batch logs: each is read as one, with its conversion said and its broken rows named."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest
from engine_objects import pod_upserted
from repository import DATA

from cotide_core.classes import WorkloadClass
from cotide_core.config import SchedulerConfig
from cotide_core.errors import InputError
from cotide_core.events import Node, NodeUpserted, PodDeleted, PodPhase
from cotide_core.recording.ledger import LedgerWriter
from cotide_core.units import CPU, MEMORY, RECLAIMED_CPU
from cotide_sim.traces.jobs.any_log import format_of, read_any_log
from cotide_sim.traces.jobs.machines import read_machines
from cotide_sim.traces.jobs.pool import Pool
from cotide_sim.traces.jobs.swf import Field
from cotide_sim.traces.jobs.swf_cleaning import Cleaning, clean

ALIBABA = (
    "task_create_time, task_end_time, job_id, task_id,number_of_instances, status, "
    "number_of_cpus_requested_per_instance_in_the_task,normalized_memory_requested_per_instance_in_the_task\n"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
GOOGLE = (
    "job_ID,priority,requestCPU,requestRAM,requestDisk,user_name,scheduling_class,logical_job_name,task_duration,"
    "task_number\n"
)
ALIBABA_ROW = "100,160,3,4,7,Terminated,50,0.01\n"
OPENB_ROW = "pod-1,12000,24576,1,1000,,BE,Succeeded,50,400,60\n"
GOOGLE_ROW = "6251668761.0,2,0.65,0.0155,9e-07,me,1,sort,0.08666666666666667,3\n"


def write(directory, text, name="trace.csv"):
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def jobs_of(path, **options):
    trace = read_any_log(path, **options)
    return trace, clean(trace.log, Cleaning())[0]


def test_alibaba_tasks_take_all_their_instances_at_once_in_tenths_of_a_core(tmp_path):
    text = ALIBABA + "100,160,3,4,7,Terminated,50,0.01\n90,95,3,5,1,Running,50,0.01\n95,99,3,6,2,Terminated,,\n"
    trace, jobs = jobs_of(write(tmp_path, text))
    # 7 x 0.5 cores = 35 tenths; the task that still runs has no run time, the last one asks for nothing.
    assert (trace.format, jobs.processors) == ("alibaba2017", 1313 * 640)
    assert (jobs.demand.tolist(), jobs.run.tolist(), jobs.submit.tolist()) == ([35], [60], [10])
    assert "one processor is a tenth of a core; 840,320 of them in one pool" in trace.conversion
    assert "memory is ignored" in trace.conversion


def test_alibabas_own_files_have_no_header(tmp_path):
    path = write(tmp_path, ALIBABA_ROW + "101,103,3,5,1,Terminated,100,0.1\n")
    assert format_of(path) == "alibaba2017"
    assert jobs_of(path)[1].demand.tolist() == [35, 10]


def test_openb_pods_run_from_scheduling_to_deletion_and_pods_never_scheduled_do_not(tmp_path):
    text = OPENB + OPENB_ROW + "pod-2,500,1024,0,0,,LS,Pending,60,70,\n"
    trace = read_any_log(write(tmp_path, text))
    row = trace.log.table
    assert (trace.format, row[0, Field.RUN], row[0, Field.WAIT], row[0, Field.REQUESTED]) == ("openb", 340, 10, 120)
    assert (row[1, Field.RUN], row[1, Field.QUEUE]) == (-1, 1)


def test_the_dominant_share_counts_when_it_is_asked_for(tmp_path):
    path = write(tmp_path, OPENB + OPENB_ROW)
    _, by_cpu = jobs_of(path)
    trace, by_share = jobs_of(path, demand="dominant")
    # 12 cores are 120 tenths; 1 GPU of 6,212 is as much of the pool as 1,255,140 / 6,212 = 202.05 tenths.
    assert (by_cpu.demand.tolist(), by_share.demand.tolist()) == ([120], [203])
    assert "the largest of its shares of cpu, memory and GPUs" in trace.conversion


def test_google_jobs_come_in_the_order_of_their_numbers_over_29_days(tmp_path):
    text = GOOGLE + GOOGLE_ROW + GOOGLE_ROW.replace("8761.0", "8001.0") + GOOGLE_ROW.replace("8761.0", "8381.0")
    trace, jobs = jobs_of(write(tmp_path, text))
    assert (trace.format, jobs.processors) == ("google2011", 6_659_000)
    assert jobs.submit.tolist() == [0, 29 * 43_200, 29 * 86_400]
    # 0.0866... x 300 s = 26 s; 3 x 0.65 % of the largest machine are 19.5 thousandths.
    assert (set(jobs.run.tolist()), set(jobs.demand.tolist()), set(jobs.user.tolist())) == ({26}, {20}, {1})


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (ALIBABA + ALIBABA_ROW + "100,x,3,5,7,Terminated,50,0.01\n", 3, "task_end_time: 'x' is not a number"),
        (ALIBABA + ALIBABA_ROW + "100,101,3,5,-7,Terminated,50,0.01\n", 3, "'-7' is not a finite number >= 0"),
        (ALIBABA + ALIBABA_ROW + "100,101\n", 3, "2 cells where the header has 8"),
        (ALIBABA + ALIBABA_ROW + "100,101,3,5,7,,50,0.01\n", 3, "status: is empty"),
        (OPENB + OPENB_ROW + "pod-2,many,1,0,0,,BE,Running,1,2,1\n", 3, "cpu_milli: 'many' is not a number"),
        (GOOGLE + GOOGLE_ROW + GOOGLE_ROW.replace(",2,", ",12,"), 3, "priority: '12' is not a whole number from 0"),
    ],
)
def test_a_broken_row_is_named_and_skipped_or_fatal(tmp_path, text, line, words):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_any_log(path)
    assert f"{path}:{line}: " in str(caught.value)
    assert words in str(caught.value)
    found = read_any_log(path, on_bad="skip").log
    assert [(fault.line, words in fault.message) for fault in found.faults] == [(line, True)]
    assert len(found.table) == 1


@pytest.mark.parametrize("text", [ALIBABA + ALIBABA_ROW * 3000, OPENB + OPENB_ROW * 3000, GOOGLE + GOOGLE_ROW * 3000])
def test_a_cut_off_archive_keeps_what_could_be_read(tmp_path, text):
    whole = gzip.compress(text.encode(), compresslevel=0)
    path = write(tmp_path, whole[: len(whole) // 2], "trace.csv.gz")
    with pytest.raises(InputError, match=r"trace.csv.gz:\d+: the compressed file is damaged or cut off here"):
        read_any_log(path)
    log = read_any_log(path, on_bad="skip").log
    assert 100 < len(log.table) < 3000
    assert len(log.faults) == 1


def test_a_job_that_stands_twice_is_a_duplicate_and_no_order_is_promised(tmp_path):
    trace = read_any_log(write(tmp_path, OPENB + OPENB_ROW + OPENB_ROW))
    with pytest.raises(InputError, match=r"trace.csv:3: job number seen before"):
        clean(trace.log, Cleaning(duplicates="fail"))
    assert not trace.in_order


def test_a_header_that_lacks_a_column_is_named_when_the_format_is_forced(tmp_path):
    path = write(tmp_path, OPENB.replace("cpu_milli", "cpu") + OPENB_ROW)
    with pytest.raises(InputError, match=r"trace.csv:1: the header lacks column 'cpu_milli' of the OpenB pods"):
        read_any_log(path, form="openb")
    with pytest.raises(InputError, match=r"trace.csv:1: the first line fits none of the formats swf, alibaba2017"):
        read_any_log(path)
    with pytest.raises(InputError, match=r"trace.csv:1: 1 field where the format has 18"):
        read_any_log(path, form="swf")


def test_a_demand_is_rounded_up_but_not_by_the_noise_of_a_division():
    pool = Pool("here", "a tenth of a core", 0.1, {"cpu": 6.4, "memory": 1.0})
    assert pool.processors == 64
    assert [pool.processors_for({"cpu": cpu}) for cpu in (0.3, 0.31, 0.0)] == [3, 4, 0]


def pod(name, phase, created, started=None, ended=None, *, cls=WorkloadClass.BATCH, requests=((CPU, 500),), **more):
    """A pod at a moment of its life."""
    times = {"created_seconds": created, "started_seconds": started, "finished_seconds": ended}
    return pod_upserted(f"team/{name}", cls=cls, requests=requests, uid=name, ours=False, phase=phase, **times, **more)


def ledger(directory, *calls):
    writer = LedgerWriter(SchedulerConfig())
    text = writer.header() + b"".join(writer.entry(now, events, ()) for now, events in calls)
    return write(directory, text, "ledger.jsonl")


def two_days(directory):
    """One node of 8 cores on which an online pod holds 2 cores half of the time; three jobs, one of them evicted."""
    node = Node("a", ((CPU, 8000), (MEMORY, 1 << 30)))
    web = {"cls": WorkloadClass.ONLINE, "requests": ((CPU, 2000),), "node": "a"}
    return ledger(
        directory,
        (1000.0, [NodeUpserted(node), pod("web", PodPhase.RUNNING, 990.0, 990.0, **web)]),
        (1010.5, [pod("one", PodPhase.PENDING, 1010.5, requested_seconds=90.0, type="sort")]),
        (1020.0, [pod("one", PodPhase.RUNNING, 1010.5, 1020.0, requested_seconds=90.0, type="sort")]),
        (1050.0, [PodDeleted("team/web", "web"), pod("two", PodPhase.RUNNING, 1040.0, 1050.0)]),
        (1060.0, [pod("one", PodPhase.SUCCEEDED, 1010.5, 1020.0, 1060.0, requested_seconds=90.0, type="sort")]),
        (1070.0, [PodDeleted("team/two", "two")]),
        (1100.0, [pod("six", PodPhase.FAILED, 1075.0, 1080.0, 1100.0, requests=((RECLAIMED_CPU, 1250),))]),
    )


def test_a_recorded_ledger_is_a_trace_of_what_its_jobs_asked_for_and_ran(tmp_path):
    path = two_days(tmp_path)
    trace, jobs = jobs_of(path)
    # Submitted at 1010.5 and 1075 on a clock that begins at 1010; runs of 40 s and 20 s; 500 and 1,250 millicores.
    assert trace.format == format_of(path) == format_of(tmp_path) == "ledger"
    assert (jobs.submit.tolist(), jobs.run.tolist(), jobs.demand.tolist()) == ([1, 65], [40, 20], [5, 13])
    assert jobs.request.tolist()[0] == 90
    # 8 cores, less 2 for 50 s of 100.
    assert jobs.processors == 70
    assert "1 node less what online pods asked for on average, 1.0 cores" in trace.conversion
    row = trace.log.table[1]
    assert (row[Field.RUN], row[Field.WAIT]) == (-1, 10), "what was evicted has no run time"


def test_a_ledger_that_was_changed_or_cut_is_read_up_to_there(tmp_path):
    path = two_days(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(InputError, match=r"ledger.jsonl:8: is cut short, the writer stopped"):
        read_any_log(path)
    log = read_any_log(path, on_bad="skip").log
    assert ([fault.line for fault in log.faults], len(log.table)) == ([8], 2)
    path.write_bytes(whole.replace(b'"now":1050.0', b'"now":1049.0'))
    with pytest.raises(InputError, match=r"ledger.jsonl:5: was changed"):
        read_any_log(path)


def test_a_ledger_may_be_packed_and_its_cut_off_archive_is_read_up_to_there(tmp_path):
    whole = two_days(tmp_path).read_bytes()
    packed = write(tmp_path, gzip.compress(whole, compresslevel=0), "month.gz")
    assert (format_of(packed), len(jobs_of(packed)[1])) == ("ledger", 2)
    packed.write_bytes(packed.read_bytes()[:-60])
    with pytest.raises(InputError, match=r"month.gz:\d: "):
        read_any_log(packed)
    assert len(read_any_log(packed, on_bad="skip").log.faults) == 1


def test_a_ledger_without_jobs_is_no_trace(tmp_path):
    with pytest.raises(InputError, match="holds no batch or gratis pod"):
        read_any_log(ledger(tmp_path, (1.0, [NodeUpserted(Node("a", ((CPU, 8000),)))])))


@pytest.mark.parametrize("text", [ALIBABA, OPENB, GOOGLE])
def test_a_trace_of_no_rows_holds_no_job(tmp_path, text):
    with pytest.raises(InputError, match="holds no job"):
        read_any_log(write(tmp_path, text))


def test_what_was_written_as_swf_reads_back_as_the_same_jobs(tmp_path):
    from cotide_sim.traces.jobs.swf_write import log_of_jobs, write_swf

    rows = "".join(f"{at},{at + 9},1,{task},{task},Terminated,50,0.1\n" for task, at in enumerate((5, 3, 8), start=1))
    _, jobs = jobs_of(write(tmp_path, ALIBABA + rows))
    write_swf(log_of_jobs(jobs, "from Alibaba"), tmp_path / "out.swf.gz")
    trace, again = jobs_of(tmp_path / "out.swf.gz")
    assert trace.format == "swf"
    for name in ("submit", "run", "demand", "request"):
        assert np.array_equal(getattr(again, name), getattr(jobs, name)), name
    assert all(a <= b for a, b in itertools.pairwise(again.submit))


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no traces at {DATA}; name their directory in COTIDE_DATA")
@pytest.mark.parametrize(
    ("file", "form", "rows", "jobs"),
    [
        ("alibaba/alibaba2017_batch_task.csv.gz", "alibaba2017", 80_553, 66_982),
        ("alibaba/openb_pod_list_default.csv", "openb", 8_152, 7_255),
        ("swf/lublin_256.swf.gz", "swf", 10_000, 10_000),
    ],
)
def test_real_traces_are_known_by_their_content_and_read_to_the_last_row(file, form, rows, jobs):
    trace = read_any_log(DATA / file)
    assert (trace.format, len(trace.log.table), len(clean(trace.log)[0])) == (form, rows, jobs)


@pytest.mark.parametrize("large", ["1e308", "1e300", "1e17"])
@pytest.mark.parametrize(
    ("header", "cells", "column"),
    [
        (GOOGLE, GOOGLE_ROW, 2),
        (GOOGLE, GOOGLE_ROW, 8),
        (GOOGLE, GOOGLE_ROW, 9),
        (OPENB, OPENB_ROW, 1),
        (OPENB, OPENB_ROW, 4),
        (ALIBABA, ALIBABA_ROW, 4),
        (ALIBABA, ALIBABA_ROW, 6),
        (ALIBABA, ALIBABA_ROW, 7),
    ],
)
def test_a_number_that_nothing_is_counted_by_is_named_and_not_overflowed(tmp_path, header, cells, column, large):
    row = cells.strip().split(",")
    row[column] = large
    path = write(tmp_path, header + ",".join(row) + "\n")
    with pytest.raises(InputError, match="is beyond 2"):
        read_any_log(path)


def test_amounts_that_are_too_large_together_are_named(tmp_path):
    many = OPENB_ROW.replace(",1,1000,,", ",1e15,1e15,,")
    with pytest.raises(InputError, match="gpu_milli: 1e15 GPUs of 1e15 are beyond"):
        read_any_log(write(tmp_path, OPENB + many))
    with pytest.raises(InputError, match="more than is counted"):
        read_any_log(write(tmp_path, ALIBABA + ALIBABA_ROW.replace("0.01", "1e15")))


@pytest.mark.parametrize("large", ["1e308", "1e300", "1e17", "9e15"])
def test_a_machine_beyond_all_others_is_refused_with_its_file(tmp_path, large):
    path = write(tmp_path, f"sn,cpu_milli,memory_mib,gpu,model\nn,100,100,{large},m\n")
    with pytest.raises(InputError, match=r"trace\.csv.*(beyond 2|more than is counted|above 62)"):
        read_machines("openb", path)


def test_a_column_that_stands_twice_in_the_header_is_named(tmp_path):
    path = write(tmp_path, OPENB.replace("cpu_milli,", "cpu_milli,cpu_milli,") + OPENB_ROW.replace("12000", "1,12000"))
    with pytest.raises(InputError, match=r"trace.csv:1: cpu_milli: the header names this column more than once"):
        read_any_log(path)
