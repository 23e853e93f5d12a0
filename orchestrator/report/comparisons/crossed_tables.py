"""Create tables of arms at the settings of their references, as rows of text."""

from collections.abc import Iterator

from orchestrator.report.results.number_formats import (
    format_interval,
    format_p,
    format_win_share,
    win_share_title,
)
from orchestrator.report.results.types import Grid, Report
from search_spaces.wording import amount


def tables(report: Report, metric: str) -> Iterator[Grid]:
    """Yield the table of all differences at given settings in one primary outcome."""
    metric_verdicts = [verdict for verdict in report.crossed if verdict.metric == metric]
    rows = tuple(
        (
            f"{verdict.arm} - {verdict.reference}",
            verdict.settings_of,
            verdict.seeds.replace(" finished", ""),
            "-"
            if verdict.difference is None
            else format_interval(verdict.difference, "+", report.margin(metric)),
            format_win_share(verdict.wins),
            "-" if verdict.p is None else format_p(verdict.p, verdict.level),
            verdict.text,
        )
        for verdict in metric_verdicts
    )
    if rows:
        first = metric_verdicts[0]
        family_text = f"{amount(first.family, 'comparison')} together at level {first.level:g}"
        share = win_share_title(verdict.wins for verdict in metric_verdicts)
        headers = ("arm", "at the settings of", "finished", "difference", share, "p", "verdict")
        title = f"{metric}, both at the same settings: mean difference, {family_text}"
        yield Grid(title, headers, rows, stacked=True)
