"""The frame of every page: its style, its head, and at its foot how it was made.

Called by the report of a replay and by the demo. Pure: text to text. Invariant: nothing is loaded from anywhere; title
and foot are escaped here, sections are markup already. The style fits a phone: charts stand side by side where there is
room, tables scroll by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.1rem;margin:2rem 0 .4rem}h3{font-size:1rem;margin:0}
.lead{font-size:1.15rem;border-left:.25rem solid #0072b2;padding:.2rem 0 .2rem .8rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .6rem;border-bottom:1px solid #8884;vertical-align:top;white-space:nowrap}
th{font-weight:600;vertical-align:bottom;white-space:normal}
th:first-child,td:first-child{text-align:left}
td small{display:block;opacity:.7}td:first-child small{white-space:normal;min-width:9rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:1.2rem}
figure{margin:0;min-width:0}figcaption{opacity:.75;font-size:.9rem}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:currentColor}
svg polyline{fill:none;stroke-width:1.8}svg .grid{stroke:#8883;fill:none}svg .axis{stroke:#8888;fill:none}
svg .gap{fill:Canvas}
@media (max-width:520px){svg text{font-size:14px}th,td{padding:.3rem .4rem}}
.legend{list-style:none;padding:0;margin:.2rem 0;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;font-size:.9rem}
.legend i{display:inline-block;width:1em;height:.3em;margin-right:.4em;vertical-align:middle}
footer{margin-top:3rem;border-top:1px solid #8884;padding-top:.6rem;opacity:.75;font-size:.85rem;overflow-wrap:anywhere}
"""


@dataclass(frozen=True, slots=True)
class Made:
    """How a page was made: the command as it was typed, the version of Cotide, the date."""

    command: str
    version: str
    date: str


def page(title: str, sections: Sequence[str], made: Made, *, style: str = "") -> str:
    """Return the page; ``style`` is added to the common one."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style>"
    )
    made_by = f"Made by Cotide {escape(made.version)} on {escape(made.date)}: <code>{escape(made.command)}</code>"
    body = "\n".join([f"<h1>{escape(title)}</h1>", *sections, f"<footer>{made_by}</footer>"])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def chart(title: str, words: str, drawn: str) -> str:
    """Return a chart with its title above and what it shows below."""
    return f"<figure><h3>{escape(title)}</h3>{drawn}<figcaption>{escape(words)}</figcaption></figure>"


def charts(*found: str) -> str:
    """Return charts that stand side by side where the screen is wide enough."""
    return f'<div class="charts">{"".join(found)}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are markup already; it scrolls where it is wider than the screen.

    A head's unit, behind a comma, is not broken off from it.
    """
    top = "".join(f"<th>{escape(head).replace(', ', ',&nbsp;')}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
