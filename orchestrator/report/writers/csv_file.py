"""Write report.csv: one row per arm, setting and metric, at full precision."""

import csv
import io
from typing import Any

from orchestrator.report.results.statistics import Estimate
from orchestrator.report.results.types import ArmResult, Report
from search_spaces.wording import escape_unprintable

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
ESTIMATE_COLUMNS = ("n", "mean", "ci_low", "ci_high")
COPIED_COLUMNS = (
    "failed",
    "published",
    "published_std",
    "median",
    "published_median",
    "published_median_std",
)
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
    for cell in report.cells:
        role = {"role": _metric_role(report, cell.metric)}
        writer.writerow(_csv_row(report, cell) | _csv_difference(report, cell) | role)
    for cell in report.posthoc:
        writer.writerow(_csv_row(report, cell) | {"role": "posthoc"})
    return buffer.getvalue()


def _metric_role(report: Report, metric: str) -> str:
    if metric in report.outcomes:
        return "primary"
    return "selection" if report.splits.is_selection(metric) else "exploratory"


def _csv_row(report: Report, cell: ArmResult) -> dict[str, Any]:
    return {
        **{name: _csv_text(getattr(cell, name)) for name in ("arm", "setting", "metric", "published_source")},
        **_csv_estimate("", cell.estimate),
        "floor": report.floor(cell.arm, cell.metric),
        "record_ids": " ".join(cell.record_ids),
        **{name: getattr(cell, name) for name in COPIED_COLUMNS},
    }


def _csv_difference(report: Report, cell: ArmResult) -> dict[str, Any]:
    """Return the columns of the arm's difference to its reference."""
    effect = report.effect(cell.arm, cell.metric)
    arm_verdicts = (verdict for verdict in report.verdicts if verdict.arm == cell.arm)
    text = next((verdict.text for verdict in arm_verdicts if verdict.metric == cell.metric), "")
    row: dict[str, Any] = {"verdict": _csv_text(text)} if text else {}
    if effect is None:
        return row
    return row | {
        **_csv_estimate("difference_", effect.estimate),
        "p": effect.p,
        "p_sign_flips": effect.p_sign_flips,
    }


def _csv_estimate(prefix: str, estimate: Estimate) -> dict[str, Any]:
    values = (estimate.n, estimate.mean, estimate.low, estimate.high)
    return {f"{prefix}{name}": value for name, value in zip(ESTIMATE_COLUMNS, values, strict=True)}


def _csv_text(text: str) -> str:
    """Return the text, escaped if a spreadsheet would interpret it as a formula."""
    return f"'{escape_unprintable(text)}" if text.startswith(FORMULA_PREFIXES) else escape_unprintable(text)
