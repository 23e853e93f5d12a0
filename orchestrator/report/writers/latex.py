"""Write the report as a LaTeX document of booktabs tables and PDF figures, to be copied into a paper."""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.figures.style import Panel
from orchestrator.report.results.types import Grid, Report
from orchestrator.report.writers.tables import all_tables
from search_spaces.wording import one_line, visible

ROWS = 40
"""Maximum number of rows of a table; a longer one is continued in another."""
LONG_CELL = 42
"""Number of letters of a cell above which its column is wrapped."""
WRAPPED_COLUMN = r">{\raggedright\arraybackslash}p{0.34\linewidth}"
_MINUS = re.compile(r"(?<!\w)-(?=\d)")
_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{sign: f"\\{sign}" for sign in "{}$&#%"},
        "_": r"\_\allowbreak{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
        "[": "{[}",
        "]": "{]}",
        "±": r"$\pm$",
        "…": r"\ldots{}",
        "\u2212": "$-$",
    }
)
_IN_FONT = frozenset("łŁđĐıœŒŋŊ–—‘’“”„•€…\u2212")  # noqa: RUF001
"""Letters beyond Latin-1 that are written as themselves or by an escape, besides accented Latin ones."""
_GREEK_NAMES = (
    "alpha beta gamma delta varepsilon epsilon zeta eta theta iota kappa lambda mu nu xi pi rho varsigma "
    "sigma tau upsilon varphi phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_GREEK = dict(zip("αβγδεϵζηθικλμνξπρςστυφϕχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK_NAMES.split(), strict=True))
_SIGN_NAMES = "leq geq neq approx infty rightarrow leftarrow uparrow downarrow in partial nabla sum surd"
_MATHS = _GREEK | dict(zip("≤≥≠≈∞→←↑↓∈∂∇∑√", _SIGN_NAMES.split(), strict=True))
"""LaTeX's mathematical name of each Greek letter and sign."""
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


def latex_document(report: Report, figures: Sequence[Panel]) -> str:
    """Return the document of a report, with `figures` that are stored as `figures/NAME.pdf`."""
    parts = [_PREAMBLE, rf"\section*{{{escape(report.sweep)}}}"]
    if report.question:
        parts.append(escape(report.question))
    parts += [rf"\textbf{{{escape(notice)}}}" for notice in warning_texts(report)]
    if report.verdicts:
        items = "\n".join(rf"\item {escape(verdict.line)}" for verdict in (*report.verdicts, *report.pooled))
        parts.append(f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}")
    parts += [table for grid in all_tables(report) for table in _tables(grid)]
    parts += [_figure(panel) for panel in figures]
    return "\n\n".join([*parts, r"\end{document}"]) + "\n"


def escape(text: str) -> str:
    """Return `text` escaped for LaTeX; letters that LaTeX has no name for are written as code points."""
    # Braces keep two hyphens apart, which LaTeX would print as a dash.
    join_weights = "".join(map(_escape_letter, visible(one_line(text)))).replace("--", "{-}{-}")
    return _MINUS.sub("$-$", join_weights)


def _escape_letter(letter: str) -> str:
    is_accented = letter < "\u0180" and unicodedata.decomposition(letter)[:1] not in ("", "<")
    if ord(letter) < 256 or is_accented or letter in _IN_FONT:
        return letter.translate(_ESCAPES)
    if name := _MATHS.get(letter):
        return rf"$\{name}$"
    return rf"\texttt{{U+{ord(letter):04X}}}"


def _tables(grid: Grid) -> Iterator[str]:
    columns = zip(*grid.rows, strict=True)
    is_long = [any(len(cell) > LONG_CELL for cell in column) for column in columns]
    layout = "".join(WRAPPED_COLUMN if long else "l" for long in is_long or [False] * len(grid.headers))
    for first in range(0, max(1, len(grid.rows)), ROWS):
        title = escape(grid.title) + (" (continued)" if first else "")
        lines = [
            r"\begin{table}[H]",
            rf"\caption{{{title}}}",
            rf"\centering\fitted{{\begin{{tabular}}{{@{{}}{layout}@{{}}}}",
            r"\toprule",
            _format_row(grid.headers),
            r"\midrule",
            *map(_format_row, grid.rows[first : first + ROWS]),
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
        yield "\n".join(lines)


def _format_row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"


def _figure(panel: Panel) -> str:
    lines = (
        r"\begin{figure}[H]",
        rf"\centering\includegraphics{{figures/{panel.name}.pdf}}",
        rf"\caption{{{escape(panel.label)}}}",
        r"\end{figure}",
    )
    return "\n".join(lines)
