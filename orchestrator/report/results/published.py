"""Attach published values to the results they correspond to: by arm, cell, setting, split and metric."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.published.published_rows import Row, matches_cell, matches_overrides, row_name
from orchestrator.plan.types import Arm, Plan
from orchestrator.report.results.types import ArmResult, PriorWork, PublishedSize
from orchestrator.spec.metric_splits import MetricSplits

MEDIAN_STATISTIC = "median"


def with_published_values(
    plan: Plan, cell: ArmResult, overrides: Mapping[str, Any], values: Sequence[float]
) -> ArmResult:
    """Return the cell with its published values.

    Args:
        plan: Plan with the published rows.
        cell: The result of an arm in a metric.
        overrides: Settings under which the checkpoints were evaluated.
        values: Measured values, one per unit.
    """
    splits_by_metric, arm = metric_splits(plan.search, plan.confirm, plan.answer), plan.arm(cell.arm)
    split_and_quantity = (splits_by_metric.split(cell.metric), splits_by_metric.quantity(cell.metric))
    rows = [row for row in plan.published if (row["split"], row["metric"]) == split_and_quantity]
    rows = [row for row in rows if _matches_row(row, arm, overrides)]
    fields: dict[str, Any] = {}
    for row in rows:
        value, std = float(row["value"]), row.get("std")
        if row.get("statistic") == MEDIAN_STATISTIC:
            fields |= {"median": median(values), "published_median": value, "published_median_std": std}
        else:
            fields |= {"published": value, "published_std": std}
    sources = dict.fromkeys(str(row.get("source", "")) for row in rows)
    return replace(cell, **fields, published_source="; ".join(filter(None, sources)))


def _matches_row(row: Row, arm: Arm, overrides: Mapping[str, Any]) -> bool:
    if row.get("alone") or row["arm"] not in (arm.name, arm.name.partition("[")[0]):
        return False
    return matches_overrides(row, overrides) and matches_cell(row, arm.settings)


def published_fields(plan: Plan, metrics: Collection[str], cells: Iterable[ArmResult]) -> dict[str, Any]:
    """Return the fields of a report about published sizes and published rows without a measured result."""
    return {
        "prior_work": tuple(prior_work(plan)),
        "published_sizes": tuple(published_sizes(plan)),
        "unmet_published": tuple(unmatched_rows(plan, metrics, cells)),
    }


def prior_work(plan: Plan) -> Iterator[PriorWork]:
    """Yield the published rows of systems that are not arms."""
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    return (_prior_work(row, splits_by_metric) for row in plan.published if row.get("alone"))


def published_sizes(plan: Plan) -> Iterator[PublishedSize]:
    """Yield each published size of a system once."""
    seen_keys = set()
    for row in plan.published:
        size = row.get("parameters"), row.get("macs")
        if any(size) and (row["arm"], *size) not in seen_keys:
            seen_keys.add((row["arm"], *size))
            yield PublishedSize(str(row["arm"]), *size, str(row.get("source", "")))


def unmatched_rows(plan: Plan, metrics: Collection[str], cells: Iterable[ArmResult]) -> Iterator[PriorWork]:
    """Yield published rows that appear nowhere in a report.

    A row is missing if nothing was measured there, or if every seed failed.

    Args:
        plan: Plan with the published rows.
        metrics: Metrics of the report.
        cells: Results of the report, re-evaluations included.
    """
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    shown_keys = {(cell.arm, cell.metric, cell.setting) for cell in cells}
    for row in plan.published:
        metric = splits_by_metric.name(row["split"], row["metric"])
        result_keys = [
            (arm.name, metric, setting_words(overrides))
            for arm in plan.arms
            for overrides in ({}, *plan.posthoc)
            if _matches_row(row, arm, overrides)
        ]
        has_result = any(_has_result(place, shown_keys) for place in result_keys)
        if not (metric in metrics if row.get("alone") else has_result):
            yield _prior_work(row, splits_by_metric)


def _has_result(result_key: tuple[str, str, str], shown_keys: Collection[tuple[str, str, str]]) -> bool:
    """Return whether a result exists; in a sweep with a front, each point of an arm has its own result."""
    arm, metric, setting = result_key
    return result_key in shown_keys or any(
        (arm, metric) == cell_key[:2] and cell_key[2].startswith(f"{setting}, ")
        for cell_key in shown_keys
        if setting
    )


def _prior_work(row: Row, splits_by_metric: MetricSplits) -> PriorWork:
    return PriorWork(
        system=row_name(row),
        metric=splits_by_metric.name(row["split"], row["metric"]),
        value=float(row["value"]),
        std=row.get("std"),
        statistic=row.get("statistic", "mean"),
        source=str(row.get("source", "")),
        cell=dict(row.get("cell", {})),
    )
