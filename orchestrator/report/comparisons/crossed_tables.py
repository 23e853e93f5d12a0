"""Create tables of arms at the settings of their references, as rows of text."""

from collections.abc import Iterator

from orchestrator.report.results.number_formats import (
    format_interval,
    format_p,
    format_win_share,
    win_share_title,
)
from orchestrator.report.results.types import ArmVerdict, CrossVerdict, Report, TextTable
from search_spaces.wording import amount


def crossed_tables(report: Report, metric: str) -> Iterator[TextTable]:
    """Yield the table of all differences at given settings in one primary outcome."""
    verdicts = [verdict for verdict in report.crossed if verdict.metric == metric]
    if not verdicts:
        return
    rows = tuple(
        (
            f"{verdict.arm} - {verdict.reference}",
            verdict.settings_of,
            *result_cells(verdict, report.margin(metric)),
        )
        for verdict in verdicts
    )
    family_text = f"{amount(verdicts[0].family, 'comparison')} together at level {verdicts[0].level:g}"
    share = win_share_title(verdict.wins for verdict in verdicts)
    headers = ("arm", "at the settings of", "finished", "difference", share, "p", "verdict")
    title = f"{metric}, both at the same settings: mean difference, {family_text}"
    yield TextTable(title, headers, rows, stacked=True)


def result_cells(verdict: ArmVerdict | CrossVerdict, margin: float | None) -> tuple[str, ...]:
    """Return finished seeds, difference, share of wins, p and verdict as cells of a table."""
    difference = verdict.difference
    return (
        verdict.seeds.replace(" finished", ""),
        "-" if difference is None else format_interval(difference, "+", margin),
        format_win_share(verdict.wins),
        "-" if verdict.p is None else format_p(verdict.p, verdict.level),
        verdict.text,
    )
