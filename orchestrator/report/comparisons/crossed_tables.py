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
    own = [each for each in report.crossed if each.metric == metric]
    rows = tuple(
        (
            f"{each.arm} - {each.reference}",
            each.settings_of,
            each.seeds.replace(" finished", ""),
            "-" if each.difference is None else format_interval(each.difference, "+", report.margin(metric)),
            format_win_share(each.wins),
            "-" if each.p is None else format_p(each.p, each.level),
            each.text,
        )
        for each in own
    )
    if rows:
        together = f"{amount(own[0].family, 'comparison')} together at level {own[0].level:g}"
        share = win_share_title(each.wins for each in own)
        headers = ("arm", "at the settings of", "finished", "difference", share, "p", "verdict")
        title = f"{metric}, both at the same settings: mean difference, {together}"
        yield Grid(title, headers, rows, stacked=True)
