"""Collect the content of the page beyond the tables: arms, searches, curves, costs, depth, origin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from orchestrator.plan.types import Plan
from orchestrator.report.halting.depth_curves import DepthCurve, depth_curves
from orchestrator.report.halting.halting_maps import HaltingMaps, halting_maps
from orchestrator.report.halting.tallies import BinnedDepth, ExpertUse, binned_depths, expert_uses
from orchestrator.report.results.arm_facts import ArmFacts, arm_facts, baseline_settings
from orchestrator.report.results.cost_curves import CostCurve, cost_curves
from orchestrator.report.results.curves import ArmCurve, learning_curves
from orchestrator.report.results.origin import provenance_lines, provenance_listings
from orchestrator.report.results.searches import SearchHistory, search_courses
from orchestrator.report.results.seed_results import MeasurementsByTrial, SeedResults, merge_late_splits
from orchestrator.report.results.summary import declared_metrics
from orchestrator.report.results.types import Report
from orchestrator.trials import Record, with_usable, with_usable_metrics
from trainables.metrics import metric_name


@dataclass(frozen=True, slots=True)
class Details:
    """Content of the page beyond the tables; a pure function of plan, records and measurements."""

    arms: tuple[ArmFacts, ...]
    settings: tuple[str, ...]
    """Every setting of the first arm, one per line; changes of other arms are listed with these arms."""
    searches: tuple[SearchHistory, ...]
    curves: tuple[ArmCurve, ...]
    costs: tuple[CostCurve, ...]
    depths: tuple[DepthCurve, ...]
    maps: HaltingMaps
    lengths: tuple[BinnedDepth, ...]
    operators: tuple[BinnedDepth, ...]
    experts: tuple[ExpertUse, ...]
    origin: tuple[tuple[str, str], ...]
    listings: tuple[tuple[str, tuple[str, ...]], ...]
    """Parts of the provenance that are too long for a line: name and lines."""
    wall_clock_s: float | None
    """Seconds from the first start of a trial to the last end of one."""


def details(
    plan: Plan, report: Report, records: Sequence[Record], measurements: MeasurementsByTrial
) -> Details:
    """Return the details of a report.

    Args:
        plan: Plan of the sweep.
        report: The report of these records.
        records: Records of all trials.
        measurements: Measurements of confirm trials.
    """
    records = with_usable_metrics(records)
    usable_measurements = {
        trial_id: [*map(with_usable, reports)] for trial_id, reports in measurements.items()
    }
    ended_records = [
        record for record in merge_late_splits(plan, records) if record.outcome and not record.rank
    ]
    confirm_records, reevaluations = (
        [record for record in ended_records if record.phase == phase] for phase in ("confirm", "posthoc")
    )
    results = SeedResults(confirm_records, declared_metrics(plan))
    outcomes = [*report.outcomes, *_reevaluation_metrics(plan, report)]
    return Details(
        arms=tuple(arm_facts(plan, records)),
        settings=tuple(baseline_settings(plan)),
        searches=tuple(search_courses(plan, records)),
        curves=tuple(learning_curves(plan, records, usable_measurements)),
        costs=tuple(cost_curves(plan, outcomes, results, reevaluations)),
        depths=tuple(depth_curves(plan, results, plan.test_splits)),
        maps=halting_maps(plan, confirm_records, usable_measurements),
        lengths=tuple(binned_depths("lengths", plan, confirm_records, usable_measurements)),
        operators=tuple(binned_depths("operators", plan, confirm_records, usable_measurements)),
        experts=tuple(expert_uses(plan, confirm_records, usable_measurements)),
        origin=tuple(provenance_lines(plan, records)),
        listings=tuple(provenance_listings(records)),
        wall_clock_s=_wall_clock_seconds(records),
    )


def _reevaluation_metrics(plan: Plan, report: Report) -> Iterator[str]:
    """Yield metrics that are displayed only for re-evaluations under other settings."""
    if not plan.posthoc:
        return
    quantities = [metric.name for metric in report.quantities if metric.shown == ("posthoc",)]
    for outcome, quantity in product(report.outcomes, quantities):
        yield metric_name(report.splits.split(outcome), quantity)


def _wall_clock_seconds(records: Sequence[Record]) -> float | None:
    starts = [record.started_at for record in records if record.started_at is not None]
    ends = [record.ended_at for record in records if record.ended_at is not None]
    return max(ends) - min(starts) if starts and ends else None
