"""The report as a page: one file with its figures inside, for browsers, phones and paper; it runs no code."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.report.caveats.notes import notes
from orchestrator.report.caveats.notices import notices
from orchestrator.report.results.details import Details
from orchestrator.report.results.searches import NO_CLAIM
from orchestrator.report.results.types import Report
from orchestrator.report.writers.first_arms import left_out, shown_arms
from orchestrator.report.writers.page_sections import arms_answered, cost_words, sections
from search_spaces.wording import one_line, visible

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent


def page(report: Report, details: Details | None = None) -> str:
    """The report as HTML. Without `details` it shows what the report itself holds."""
    return str(_template().render(_known(report, details))) + "\n"


def _known(report: Report, details: Details | None) -> Mapping[str, Any]:
    """What the template names."""
    from markupsafe import Markup

    shown, of_shown = shown_arms(report, details)
    return {
        "title": report.sweep,
        # Ours, and no text of others: a style sheet's quotes must stay quotes.
        "style": Markup((HERE / "page.css").read_text(encoding="utf-8")),  # noqa: S704  # nosec B704
        "question": report.question,
        "notices": [*notices(report), *left_out(report)],
        "verdicts": list(arms_answered(report, details)),
        "caveat": NO_CLAIM if report.searched else "",
        "cost": cost_words(report, details),
        "sections": list(sections(shown, of_shown)),
        "notes": notes(report),
    }


@cache
def _template() -> "Template":
    """Of the page; whatever is put into it is text."""
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
    """Text as it stands: nothing that cannot be seen. Pictures and the style sheet are mark-up of ours."""
    from markupsafe import Markup

    return visible(one_line(value)) if isinstance(value, str) and not isinstance(value, Markup) else value
