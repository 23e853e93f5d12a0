"""Write the report as a LaTeX document of booktabs tables and PDF figures, to be copied into a paper."""

# ruff: noqa: RUF001 - look-alike letters are escaped here

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator.report.caveats.notices import notices
from orchestrator.report.figures.style import Panel
from orchestrator.report.results.types import Report
from orchestrator.report.writers.tables import Grid, grids
from search_spaces.wording import one_line, visible

ROWS = 40
"""Maximum number of rows of a table; a longer one is continued in another."""
LONG = 42
"""Number of letters of a cell above which its column is wrapped."""
WRAPPED = r">{\raggedright\arraybackslash}p{0.34\linewidth}"
_MINUS = re.compile(r"(?<!\w)\{-\}(?=\d)")
_HYPHEN = re.compile(r"(?<=[^\W\d_])\{-\}(?=\w)")
"""A hyphen between the parts of a name, after which a line may break, unlike after a minus."""
WIDEST = 130
"""Maximum number of letters of a row, a wrapped column counted as `LONG`. A wider table is split."""
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
    "−": "$-$",
}
_GREEK = (
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho varsigma sigma tau "
    "upsilon varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega epsilon phi"
)
_SIGNS = "leq geq neq approx infty rightarrow leftarrow uparrow downarrow in partial nabla sum surd"
_COMMANDS = dict(
    zip(
        "αβγδεζηθικλμνξπρςστυφχψωΓΔΘΛΞΠΣΥΦΨΩϵϕ≤≥≠≈∞→←↑↓∈∂∇∑√",
        f"{_GREEK} {_SIGNS}".split(),
        strict=True,
    )
)
_IN_FONT = frozenset("łŁđĐıœŒŋŊ–—‘’“”„•€")
"""Letters beyond Latin-1 that LaTeX's fonts have, besides the accented ones of Latin Extended-A."""
_PREAMBLE = r"""\documentclass[a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage{textcomp,array,booktabs,graphicx,float}
\usepackage[margin=2cm]{geometry}
\newcommand{\fitted}[1]{\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{#1}}
\sloppy
\begin{document}
"""


def document(report: Report, figures: Sequence[Panel]) -> str:
    """Return the document of a report, with `figures` that are stored as `figures/NAME.pdf`."""
    parts = [_PREAMBLE, rf"\section*{{{escaped(report.sweep)}}}"]
    if report.question:
        parts.append(escaped(report.question))
    parts += [rf"\textbf{{{escaped(each)}}}" for each in notices(report)]
    if report.verdicts:
        items = "\n".join(rf"\item {escaped(each.line)}" for each in (*report.verdicts, *report.pooled))
        parts.append(f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}")
    parts += [table for grid in grids(report) for part in side_by_side(grid) for table in _tables(part)]
    parts += [_figure(each) for each in figures]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"


def escaped(text: str) -> str:
    """Return `text` escaped for LaTeX; letters that its usual fonts lack are written as code points."""
    joined = "".join(map(_letter, visible(one_line(text)))).replace(r"{-}\textgreater{}", r"$\rightarrow$")
    return _MINUS.sub("$-$", _HYPHEN.sub(r"\g<0>\\allowbreak{}", joined))


def _letter(one: str) -> str:
    if known := _NAMED.get(one):
        return known
    is_accented = one < "\u0180" and unicodedata.decomposition(one)[:1] not in ("", "<")
    if ord(one) < 256 or is_accented or one in _IN_FONT:
        return one
    return rf"$\{_COMMANDS[one]}$" if one in _COMMANDS else rf"\texttt{{U+{ord(one):04X}}}"


def side_by_side(grid: Grid) -> Iterator[Grid]:
    """Yield the table, or, if it is too wide, tables of some of its columns.

    Each part has the columns that name the rows: the first ones, up to the first column of numbers.
    """
    widths = [
        min(LONG, max(len(line[place]) for line in (grid.headers, *grid.rows))) + 2
        for place in range(len(grid.headers))
    ]
    if sum(widths) <= WIDEST:
        yield grid
        return
    numbers = (place for place in range(1, len(widths)) if any(_is_number(row[place]) for row in grid.rows))
    named = next(numbers, 1)
    groups: list[list[int]] = [[]]
    room = WIDEST - sum(widths[:named])
    for place in range(named, len(widths)):
        if groups[-1] and sum(widths[each] for each in groups[-1]) + widths[place] > room:
            groups.append([])
        groups[-1].append(place)
    for number, group in enumerate(groups, start=1):
        places = [*range(named), *group]
        rows = tuple(tuple(row[place] for place in places) for row in grid.rows)
        of = f", part {number} of {len(groups)}" if len(groups) > 1 else ""
        yield replace(
            grid, title=grid.title + of, headers=tuple(grid.headers[place] for place in places), rows=rows
        )


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "+-" and text[1:2].isdigit())


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
