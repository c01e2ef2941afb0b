"""The zoomable schedule of the report: jobs as boxes of time by processors, and the use of the machine beneath.

Called by `report`. Last step of the flow: schedules to a part of a page. Invariants: the page needs no network; its
numbers are exactly those of the schedules; without scripts the page states that it needs them.

The data goes into the page as packed columns (`packed_columns`). ``schedule_view.js`` draws on a canvas: boxes while
few are in sight, else the share of the machine in use at each pixel's time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

import numpy as np

from cotide_lab.trace_replay.metrics import Figure
from cotide_lab.trace_replay.packed_columns import differences, packed
from cotide_lab.trace_replay.processor_map import pieces_of
from cotide_lab.trace_replay.runner import Schedule
from cotide_sim.pages.line_chart import COLOURS
from cotide_sim.traces.jobs.batch_jobs import BatchJobs

BEST_BY: Final = "bounded_slowdown_mean"
SCRIPT: Final = "schedule_view.js"
STYLE: Final = """
.view{display:flex;flex-wrap:wrap;gap:.4rem .8rem;align-items:center}
.view button,.view select{font:inherit;padding:.1rem .6rem}
.schedule{display:grid;grid-template-columns:3.2rem minmax(0,1fr);gap:.3rem 0}
canvas{width:100%;display:block}
#jobs,#use{border:1px solid #8884}#jobs{touch-action:pan-y;cursor:grab}
#jobs,#processors{height:min(420px,60vh)}#use,#percents{height:150px}
#said{min-height:3em;margin:.4rem 0;font-variant-numeric:tabular-nums}
"""


def view(jobs: BatchJobs, schedules: Sequence[Schedule], figures: Mapping[str, Mapping[str, Figure]]) -> str:
    """Return the part of the page."""
    # A closing tag inside a string would end the script.
    data = json.dumps(document(jobs, schedules, figures), separators=(",", ":")).replace("<", "\\u003c")
    script = (files("cotide_lab.trace_replay") / SCRIPT).read_text(encoding="utf-8")
    return (
        '<div class="view"><label>policy <select id="policy"></select></label>'
        '<button id="closer" type="button">zoom in</button><button id="wider" type="button">zoom out</button>'
        '<button id="whole" type="button">whole log</button></div>'
        '<p id="said"></p><div class="schedule"><canvas id="processors" aria-label="processors"></canvas>'
        '<canvas id="jobs" tabindex="0" aria-label="jobs by time and processors"></canvas>'
        '<canvas id="percents" aria-label="percent of the processors"></canvas>'
        '<canvas id="use" aria-label="share of processors in use by time, each policy"></canvas></div>'
        "<noscript><p>The zoomable schedule needs a browser that runs scripts.</p></noscript>"
        f'<script type="application/json" id="schedules">{data}</script>\n<script>\n{script}</script>'
    )


def document(
    jobs: BatchJobs, schedules: Sequence[Schedule], figures: Mapping[str, Mapping[str, Figure]]
) -> dict[str, Any]:
    """Return what the script reads; ``packed`` columns are as `packed_columns` writes them.

    ``submit`` and ``number`` are differences to the job before, a policy's ``wait`` is start - submit; ``count`` holds
    the pieces of each job in the order of the log, ``first`` (differences) and ``size`` the pieces themselves; ``best``
    is the policy that the page opens on, the one of the least mean bounded slowdown.
    """
    begin = int(jobs.submit[0])
    return {
        "begin": begin,
        "processors": jobs.processors,
        "jobs": len(jobs),
        "best": min(range(len(schedules)), key=lambda at: figures[schedules[at].policy][BEST_BY].value),
        "colours": COLOURS,
        "columns": {
            "number": packed(differences(jobs.numbers)),
            "submit": packed(differences(jobs.submit - begin)),
            "run": packed(jobs.run),
            "demand": packed(jobs.demand),
        },
        "policies": [
            {
                "name": schedule.policy,
                "figures": {name: figure.value for name, figure in figures[schedule.policy].items()},
                **_columns(jobs, schedule),
            }
            for schedule in schedules
        ],
    }


def _columns(jobs: BatchJobs, schedule: Schedule) -> dict[str, str]:
    pieces = pieces_of(schedule.start, jobs.run, jobs.demand, jobs.processors)
    order = np.argsort(pieces.job, kind="stable")
    return {
        "wait": packed(schedule.start - jobs.submit),
        "count": packed(np.bincount(pieces.job, minlength=len(jobs)).astype(np.int64)),
        "first": packed(differences(pieces.first[order])),
        "size": packed(pieces.size[order]),
    }
