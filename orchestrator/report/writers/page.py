"""Write the report as a single HTML file with its figures inside and without scripts."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.report.caveats.notes import notes
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.answer_summary import DECIDED_WORDS, answer_summary
from orchestrator.report.figures.interval_figures import outcome_panels
from orchestrator.report.results.details import Details
from orchestrator.report.results.searches import SEARCH_CLAIM_NOTE
from orchestrator.report.results.types import Report
from orchestrator.report.writers.first_arms import limit_arms, omission_notes
from orchestrator.report.writers.page_parts import draw_pictures
from orchestrator.report.writers.page_sections import (
    arm_reasons,
    arm_sentences,
    cost_sentence,
    outcome_caption,
    page_sections,
)
from search_spaces.wording import escape_unprintable, one_line

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE_FOLDER = Path(__file__).parent


def html_page(report: Report, details: Details | None = None) -> str:
    """Return the report as HTML; without `details` the page has only the content of the report."""
    template = page_environment().get_template("page.jinja")
    return template.render(_template_variables(report, details)) + "\n"


def _template_variables(report: Report, details: Details | None) -> Mapping[str, Any]:
    """Return the variables of the template."""
    from markupsafe import Markup

    shown_report, shown_details = limit_arms(report, details)
    sentences = [*arm_sentences(report, details)]
    panels = draw_pictures(outcome_panels(shown_report))
    return {
        "title": report.sweep,
        # The style sheet is a file of this package, not user text, and its quotes must not be escaped.
        "style": Markup((TEMPLATE_FOLDER / "page.css").read_text(encoding="utf-8")),  # noqa: S704  # nosec B704
        "question": report.question,
        "notices": [*warning_texts(report), *omission_notes(report)],
        "summary": answer_summary(report, arm_reasons(details)),
        "decided": [line for line in sentences if line[0] in DECIDED_WORDS],
        "panels": panels,
        "panels_text": outcome_caption(shown_report) if panels else "",
        "undecided": [line for line in sentences if line[0] not in DECIDED_WORDS],
        "caveat": SEARCH_CLAIM_NOTE if report.searched else "",
        "cost": cost_sentence(report, details),
        "sections": list(page_sections(shown_report, shown_details)),
        "notes": notes(report),
    }


@cache
def page_environment() -> "Environment":
    """Return the environment of the page's template, which escapes all inserted text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printable(value: Any) -> Any:
    """Return text without invisible characters; figures and the style sheet, being markup, are unchanged."""
    from markupsafe import Markup

    return (
        escape_unprintable(one_line(value))
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )
