"""The report for a paper: booktabs tables and PDF figures, as one document to take them from."""

from collections.abc import Iterator, Sequence

from orchestrator.report.style import Panel
from orchestrator.report.tables import Grid, grids
from orchestrator.report.types import Report
from search_spaces.wording import one_line, visible

ROWS = 40
"""Of one table; a longer one goes on in another."""
LONG = 42
"""Letters of a cell from which its column is wrapped."""
WRAPPED = r"p{0.34\linewidth}"
_NAMED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_\allowbreak{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "-": r"{-}",
    "[": r"{[}",
    "]": r"{]}",
    "±": r"$\pm$",
    "…": r"\ldots{}",
}
_PREAMBLE = r"""\documentclass[a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp,array,booktabs,graphicx,float}
\usepackage[margin=2cm]{geometry}
\newcommand{\fitted}[1]{\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{#1}}
\begin{document}
"""


def document(report: Report, figures: Sequence[Panel]) -> str:
    """A whole document; `figures` lie beside it as `figures/NAME.pdf`."""
    parts = [_PREAMBLE, rf"\section*{{{escaped(report.sweep)}}}"]
    if report.question:
        parts.append(escaped(report.question))
    if report.verdicts:
        items = "\n".join(rf"\item {escaped(each.line)}" for each in report.verdicts)
        parts.append(f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}")
    parts += [table for grid in grids(report) for table in _tables(grid)]
    parts += [_figure(each) for each in figures]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"


def escaped(text: str) -> str:
    """Text as it stands. Letters that LaTeX's usual fonts lack are written as their code points."""
    return "".join(
        _NAMED.get(one) or (one if ord(one) < 256 else rf"\texttt{{U+{ord(one):04X}}}")
        for one in visible(one_line(text))
    )


def _tables(grid: Grid) -> Iterator[str]:
    wide = [any(len(row[place]) > LONG for row in grid.rows) for place in range(len(grid.headers))]
    columns = "".join(WRAPPED if each else "l" for each in wide)
    for first in range(0, max(1, len(grid.rows)), ROWS):
        title = escaped(grid.title) + (" (continued)" if first else "")
        rows = [
            r"\begin{table}[H]",
            rf"\caption{{{title}}}",
            rf"\centering\fitted{{\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            r"\toprule",
            _row(grid.headers),
            r"\midrule",
            *map(_row, grid.rows[first : first + ROWS]),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
        yield "\n".join(rows)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(escaped, cells)) + r" \\"


def _figure(panel: Panel) -> str:
    lines = (
        r"\begin{figure}[H]",
        rf"\centering\includegraphics{{figures/{panel.name}.pdf}}",
        rf"\caption{{{escaped(panel.label)}}}",
        r"\end{figure}",
    )
    return "\n".join(lines)
