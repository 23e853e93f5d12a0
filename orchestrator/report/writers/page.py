"""Write the report as a single HTML file with its figures inside and without scripts."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.report.caveats.notes import notes
from orchestrator.report.caveats.notices import notices
from orchestrator.report.comparisons.answer_summary import DECIDED, answer_summary
from orchestrator.report.figures.interval_figures import outcome_panels
from orchestrator.report.results.details import Details
from orchestrator.report.results.searches import NO_CLAIM
from orchestrator.report.results.types import Report
from orchestrator.report.writers.first_arms import left_out, shown_arms
from orchestrator.report.writers.page_parts import pictures
from orchestrator.report.writers.page_sections import (
    arms_answered,
    cost_words,
    outcome_words,
    reasons,
    sections,
)
from search_spaces.wording import one_line, visible

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent


def page(report: Report, details: Details | None = None) -> str:
    """Return the report as HTML; without `details` the page has only the content of the report."""
    return str(_template().render(_known(report, details))) + "\n"


def _known(report: Report, details: Details | None) -> Mapping[str, Any]:
    """Return the variables of the template."""
    from markupsafe import Markup

    shown, of_shown = shown_arms(report, details)
    answered = [*arms_answered(report, details)]
    panels = pictures(outcome_panels(shown))
    return {
        "title": report.sweep,
        # The style sheet is a file of this package, not user text, and its quotes must not be escaped.
        "style": Markup((HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704  # nosec B704
        "question": report.question,
        "notices": [*notices(report), *left_out(report)],
        "summary": answer_summary(report, reasons(details)),
        "decided": [each for each in answered if each[0] in DECIDED],
        "panels": panels,
        "panels_text": outcome_words(shown) if panels else "",
        "undecided": [each for each in answered if each[0] not in DECIDED],
        "caveat": NO_CLAIM if report.searched else "",
        "cost": cost_words(report, details),
        "sections": list(sections(shown, of_shown)),
        "notes": notes(report),
    }


@cache
def _template() -> "Template":
    """Return the template of the page, which escapes all inserted text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.jinja")


def _shown(value: Any) -> Any:
    """Return text without invisible characters; figures and the style sheet, which are markup, unchanged."""
    from markupsafe import Markup

    return visible(one_line(value)) if isinstance(value, str) and not isinstance(value, Markup) else value
