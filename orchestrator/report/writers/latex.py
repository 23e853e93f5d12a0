"""Write the report as a LaTeX document of booktabs tables and PDF figures, to be copied into a paper."""

import re
from collections.abc import Sequence

from pylatexenc.latexencode import RULE_REGEX, UnicodeToLatexConversionRule, UnicodeToLatexEncoder

from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.figures.style import Panel
from orchestrator.report.results.types import Report
from orchestrator.report.writers.page import page_environment
from orchestrator.report.writers.tables import all_tables
from search_spaces.wording import escape_unprintable, one_line


def latex_document(report: Report, figures: Sequence[Panel]) -> str:
    """Return the document of a report, with `figures` that are stored as `figures/NAME.pdf`."""
    environment = page_environment().overlay(
        autoescape=False, finalize=escape, variable_start_string="<<", variable_end_string=">>"
    )
    content = {"report": report, "warnings": warning_texts(report), "tables": all_tables(report)}
    return environment.get_template("latex.jinja").render(**content, figures=figures) + "\n"


def escape(value: object) -> str:
    """Return `value` escaped for LaTeX; letters that LaTeX has no name for are written as code points."""
    return str(_ENCODER.unicode_to_latex(escape_unprintable(one_line(str(value)))))


def _code_point(letter: str) -> str:
    return rf"\texttt{{U+{ord(letter):04X}}}"


_WITHOUT_NAME = re.compile(
    r"[^\x20-\u0148\u014a-\u017f\u0391-\u03c9\u2012-\u20ff\u2190-\u2199\u2200-\u221e\u2220-\u222b\u2248\u2260-\u2277]"
)
"""Letter for which LaTeX has no name in the packages that the document loads."""
_RULES = [
    (_WITHOUT_NAME, lambda match: _code_point(match[0])),
    (re.compile(r"(?<!\w)-(?=\d)"), "$-$"),
    (re.compile("-(?=-)"), "{-}"),  # LaTeX would print two hyphens as a dash
    (re.compile(r"[\[\]]"), r"{\g<0>}"),  # LaTeX would read an option after the end of a row
    (re.compile("_"), r"\\_\\allowbreak{}"),
    (re.compile('"'), r"\\textquotedbl{}"),
    (re.compile("'"), r"\\textquotesingle{}"),
    (re.compile("`"), r"\\textasciigrave{}"),
]
_ENCODER = UnicodeToLatexEncoder(
    conversion_rules=[UnicodeToLatexConversionRule(RULE_REGEX, _RULES), "defaults"],
    unknown_char_policy=_code_point,
    unknown_char_warning=False,
)
