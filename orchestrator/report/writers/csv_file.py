"""Write report.csv: one row per arm, setting and metric, at full precision."""

import csv
import io
from typing import Any

from orchestrator.report.results.statistics import Estimate
from orchestrator.report.results.types import Cell, Effect, Report
from search_spaces.wording import visible

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
ESTIMATE_COLUMNS = ("n", "mean", "ci_low", "ci_high")
CSV_COLUMNS = (
    *("arm", "setting", "metric", *ESTIMATE_COLUMNS, "failed", "floor", "published", "published_source"),
    *("published_std", "median", "published_median", "published_median_std"),
    *(f"difference_{name}" for name in ESTIMATE_COLUMNS),
    *("role", "p", "p_sign_flips", "verdict", "record_ids"),
)


def as_csv(report: Report) -> str:
    """Return the text of the file, starting with its header."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, restval=None, lineterminator="\n")
    writer.writeheader()
    for cell in (*report.cells, *report.posthoc):
        effect = None if cell.setting else report.effect(cell.arm, cell.metric)
        role = {"role": "posthoc" if cell.setting else _role(report, cell.metric)}
        writer.writerow(
            _csv_row(cell, report.floor(cell.arm, cell.metric), effect) | role | _csv_verdict(report, cell)
        )
    return buffer.getvalue()


def _role(report: Report, metric: str) -> str:
    if metric in report.outcomes:
        return "primary"
    return "selection" if report.splits.is_selection(metric) else "exploratory"


def _csv_verdict(report: Report, cell: Cell) -> dict[str, str]:
    verdict_texts = (
        verdict.text
        for verdict in report.verdicts
        if (verdict.arm, verdict.metric) == (cell.arm, cell.metric)
    )
    return {} if cell.setting or not (text := next(verdict_texts, "")) else {"verdict": _csv_text(text)}


def _csv_row(cell: Cell, floor: float | None, effect: Effect | None) -> dict[str, Any]:
    row = {
        "arm": _csv_text(cell.arm),
        "setting": _csv_text(cell.setting),
        "metric": _csv_text(cell.metric),
        **_csv_estimate("", cell.estimate),
        "failed": cell.failed,
        "floor": floor,
        "published": cell.published,
        "published_source": _csv_text(cell.published_source),
        "published_std": cell.published_std,
        "median": cell.median,
        "published_median": cell.published_median,
        "published_median_std": cell.published_median_std,
        "record_ids": " ".join(cell.record_ids),
    }
    if effect is not None:
        row |= {
            **_csv_estimate("difference_", effect.estimate),
            "p": effect.p,
            "p_sign_flips": effect.p_sign_flips,
        }
    return row


def _csv_estimate(prefix: str, estimate: Estimate) -> dict[str, Any]:
    values = (estimate.n, estimate.mean, estimate.low, estimate.high)
    return {f"{prefix}{name}": value for name, value in zip(ESTIMATE_COLUMNS, values, strict=True)}


def _csv_text(text: str) -> str:
    """Return the text, escaped if a spreadsheet would interpret it as a formula."""
    return f"'{visible(text)}" if text.startswith(FORMULA_STARTS) else visible(text)
