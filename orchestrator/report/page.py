"""The report as a page of its own: one file with its figures inside, for browsers and for MLflow."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from html import escape

from orchestrator.report.notes import notes, unfinished, unread
from orchestrator.report.tables import Grid, grids
from orchestrator.report.types import Report
from search_spaces.wording import one_line, visible

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 0.3rem 0 1.5rem; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: 0.3rem 0 }
th, td { padding: 0.25rem 0.7rem; text-align: left; border-bottom: 1px solid #ddd; vertical-align: top }
thead th { border-bottom: 2px solid #888 }
div.wide { overflow-x: auto }
img { max-width: 100%; display: block; margin: 0.5rem 0 1.5rem }
.better, .higher { color: #00694c } .worse, .lower { color: #a03b00 }
"""


def page(report: Report, figures: Mapping[str, bytes]) -> str:
    """The report as HTML; `figures` are PNG files by name."""
    head = f'<meta charset="utf-8"><title>{_text(report.sweep)}</title><style>{STYLE}</style>'
    body = "\n".join(_body(report, figures))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _body(report: Report, figures: Mapping[str, bytes]) -> Iterator[str]:
    yield f"<h1>{_text(report.sweep)}</h1>"
    if report.question:
        yield f"<p>{_text(report.question)}</p>"
    if report.left:
        yield f"<p><strong>{_text(unfinished(report))}</strong></p>"
    if report.unread:
        yield f"<p><strong>{_text(unread(report))}</strong></p>"
    if report.verdicts:
        yield "<h2>Answer</h2>"
        yield from _listed((each.kind.split()[0], each.line) for each in report.verdicts)
    yield from (_table(grid) for grid in grids(report))
    for name, image in figures.items():
        data = base64.b64encode(image).decode()
        yield f'<img alt="{_text(name)}" src="data:image/png;base64,{data}">'
    yield "<h2>How to read this</h2>"
    yield from _listed(("", each) for each in notes(report))


def _listed(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A list of texts, each with its class."""
    yield "<ul>"
    for kind, line in lines:
        yield f'<li class="{kind}">{_text(line)}</li>' if kind else f"<li>{_text(line)}</li>"
    yield "</ul>"


def _table(grid: Grid) -> str:
    header = "".join(f"<th>{_text(each)}</th>" for each in grid.headers)
    rows = "\n".join(f"<tr>{''.join(f'<td>{_text(each)}</td>' for each in row)}</tr>" for row in grid.rows)
    caption = f"<caption>{_text(grid.title)}</caption>"
    table = f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _text(text: str) -> str:
    """Text as it stands: no mark-up, nothing that cannot be seen."""
    return escape(visible(one_line(text)))
