"""Compute a report from records; equal records always give an equal report."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

from orchestrator.plan.answer import metric_splits
from orchestrator.plan.display.format import setting_words
from orchestrator.plan.types import Plan
from orchestrator.report.caveats.caveat_types import FailedReadings, RetriedTrial
from orchestrator.report.caveats.interval_scope import interval_scope
from orchestrator.report.comparisons import answers, equal_cost
from orchestrator.report.comparisons.answer_warnings import answer_warnings
from orchestrator.report.comparisons.contrasts import Comparisons
from orchestrator.report.comparisons.controls import control_rate, control_verdicts
from orchestrator.report.comparisons.crossed import cross_verdicts
from orchestrator.report.comparisons.factorial import factorial_effects
from orchestrator.report.results import extensions, published
from orchestrator.report.results.arm_changes import arm_changes
from orchestrator.report.results.origin import code_versions, data_versions
from orchestrator.report.results.searches import count_equal_searches, search_bests, splits_measured_by_search
from orchestrator.report.results.seed_results import (
    NOT_MEASURED_FAILURE,
    SeedResults,
    mean_by_seed,
    merge_late_splits,
    pending_splits,
)
from orchestrator.report.results.statistics import estimate
from orchestrator.report.results.types import ArmResult, ArmTally, Report, ReportContext, SearchBest
from orchestrator.spec.scalars import assignments
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import (
    OutcomeKind,
    Record,
    by_arm,
    is_usable,
    num_ended,
    skipped,
    with_usable_metrics,
)
from trainables.metrics import Metric, look_up, metric_name, split_and_quantity


def summarise(plan: Plan, records: Iterable[Record], budget_reason: str = "") -> Report:
    """Return the report: confirm results, paired differences to references, and how all trials ended.

    Args:
        plan: Plan of the sweep.
        records: Records of its trials.
        budget_reason: The exhausted part of the budget, if it ended the sweep.
    """
    usable_records = with_usable_metrics(all_records := list(records))
    complete_records = merge_late_splits(plan, usable_records)
    confirm_records, reevaluations = (
        _ended_trials(complete_records, phase) for phase in ("confirm", "posthoc")
    )
    known_metrics = declared_metrics(plan)
    measured_metrics = _displayed_metrics(plan, known_metrics, confirm_records)
    answer = answers.resolve_answer(plan, known_metrics, measured_metrics)
    has_front, expected_splits = has_confirmed_front(plan), pending_splits(plan, usable_records)
    splits_by_metric = metric_splits(plan.search, plan.confirm, answer)
    outcomes = answer.outcomes if answer else ()
    missing_outcomes = [name for name in outcomes if splits_by_metric.split(name) not in expected_splits]
    kept_records = [record for record in confirm_records if not (has_front and record.rank)]
    results = SeedResults(kept_records, known_metrics, missing_outcomes, plan.repeat_of)
    measured_outcomes = [name for name in outcomes if results.all_values(name)]
    metrics = tuple(dict.fromkeys((*measured_outcomes, *measured_metrics)))
    reevaluation_metrics = _displayed_metrics(plan, known_metrics, reevaluations)
    all_metrics = tuple(dict.fromkeys((*metrics, *reevaluation_metrics)))
    arms = tuple(arm.name for arm in plan.arms)
    tallies, search_results = _tallies(plan, usable_records, results), search_bests(plan, usable_records)
    cells = tuple(
        cell for arm in arms for metric in metrics if (cell := _make_cell(plan, arm, metric, results))
    )
    posthoc = tuple(_posthoc_cells(plan, all_metrics, reevaluations, results))
    report = Report(
        sweep=plan.name,
        question=plan.question,
        metrics=metrics,
        cells=cells,
        posthoc=posthoc,
        failed_readings=tuple(_failed_reevaluations(plan, reevaluations, results, posthoc)),
        effects=(),
        tallies=tallies,
        floors={} if plan.arms[0].context else _floors_by_metric(known_metrics, confirm_records),
        arms=arms,
        power=plan.power.sentence if plan.power else "",
        quantities=tuple(dict.fromkeys(look_up(known_metrics, metric) for metric in all_metrics)),
        headlines=_headline_quantities(plan, known_metrics, metrics, measured_outcomes),
        splits=splits_by_metric,
        **published.published_fields(plan, metrics, [*cells, *posthoc]),
        answer=answer,
        contexts=tuple(_report_contexts(plan, known_metrics, confirm_records)),
        points=tuple(_front_cells(plan, metrics, confirm_records, results)) if has_front else (),
        searched=search_results,
        changes=tuple(
            arm_changes(plan, _chosen_values(search_results, tallies), _chosen_values_by_repeat(tallies))
        ),
        equal_costs=tuple(equal_cost.equal_costs(plan, measured_outcomes, results, reevaluations)),
        setting_effects=tuple(equal_cost.setting_effects(plan, measured_outcomes, results, reevaluations)),
        unread=_unmeasured_splits(plan, confirm_records, expected_splits),
        left=max(0, len(plan.trials) - num_ended(usable_records)),
        spent=budget_reason,
    )
    report = _with_comparisons(report, plan, results, usable_records)
    report = replace(report, interval_scope=interval_scope(plan, report, results))
    return _with_caveats(report, plan, all_records)


def _with_comparisons(report: Report, plan: Plan, results: SeedResults, records: Sequence[Record]) -> Report:
    """Return the report with the differences between arms; unchanged if nothing is confirmed."""
    if report.answer is None:
        return report
    comparisons = Comparisons(plan, report.answer, results, answers.unended_seeds(plan, records))
    verdicts = tuple(answers.arm_verdicts(comparisons))
    controls = tuple(control_verdicts(comparisons))
    return replace(
        report,
        effects=tuple(answers.arm_effects(comparisons, report.metrics)),
        verdicts=tuple(verdict for verdict in verdicts if not verdict.pooled),
        pooled=tuple(verdict for verdict in verdicts if verdict.pooled),
        controls=controls,
        control_rate=control_rate(controls, report.answer.level),
        crossed=tuple(cross_verdicts(comparisons, records)),
        factorial=tuple(factorial_effects(comparisons)),
    )


def _with_caveats(report: Report, plan: Plan, records: Sequence[Record]) -> Report:
    """Return the report with warnings about its comparisons and about how the trials ran."""
    return replace(
        report,
        warnings=tuple(answer_warnings(plan, report, records)),
        **_search_fields(plan, records),
        assignments=plan.confirm.best if plan.confirm else 1,
        confirm_seeds=plan.confirm.seeds if plan.confirm else (),
        unit=plan.unit,
        repeats=plan.repeats,
        unit_seeds=tuple(plan.unit_seeds.items()),
        skipped=skipped(records),
        selected_on=plan.selected_on,
        code_versions=code_versions(records),
        data_versions=data_versions(records),
        retried=tuple(
            RetriedTrial(
                record.trial_id,
                record.arm,
                record.phase,
                record.number,
                record.seed,
                record.retried_at,
                record.repeat,
            )
            for record in records
            if record.retried_at
        ),
        attributes={record.trial_id: dict(record.attributes) for record in records if record.attributes},
        not_finite=_nonfinite_counts(records),
        extensions=tuple(extensions.extension_sentences(plan)),
    )


def _nonfinite_counts(records: Iterable[Record]) -> dict[str, int]:
    """Return the number of trials with an unusable value, for each metric displayed in the report."""
    last_measurements = [
        record.last for record in _finished_records(records) if record.phase != "search" and record.last
    ]
    values = (pair for measurement in last_measurements for pair in measurement.metrics.items())
    return dict(Counter(name for name, value in values if not is_usable(value)))


def _finished_records(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.outcome is OutcomeKind.FINISHED)


def _report_contexts(
    plan: Plan, declared: Sequence[Metric], confirmed: Sequence[Record]
) -> Iterator[ReportContext]:
    """Yield the contexts of the spec, each with its floors."""
    for arms in plan.contexts if plan.arms[0].context else ():
        context, names = arms[0].context, tuple(arm.name for arm in arms)
        floors = _floors_by_metric(declared, [record for record in confirmed if record.arm in names])
        yield ReportContext(assignments(context), dict(context), names, floors)


def _search_fields(plan: Plan, records: Sequence[Record]) -> dict[str, Any]:
    """Return the fields of a report that describe the objectives and reports of the search."""
    objectives = plan.objectives
    return {
        "objectives": tuple(map(counted_name, objectives)),
        "scopes": {
            objective.metric: objective.scope for objective in objectives if objective.scope != "last"
        },
        "search_reports": max((record.reports for record in records), default=0),
        "unranked": count_equal_searches(plan, records),
        "read_in_search": splits_measured_by_search(plan, records),
    }


def _chosen_values(
    bests: Iterable[SearchBest], tallies: Iterable[ArmTally]
) -> dict[str, Mapping[str, object]]:
    """Return the values that the search of each arm chose."""
    values_by_arm = {best.arm: best.assignment for best in bests}
    return values_by_arm | {tally.arm: tally.assignment for tally in tallies if tally.assignment}


def _chosen_values_by_repeat(tallies: Iterable[ArmTally]) -> dict[str, tuple[Mapping[str, object], ...]]:
    """Return the values that each repeat of each arm's search chose, if searches are repeated."""
    return {tally.arm: tuple(params for _, params in tally.chosen) for tally in tallies if tally.chosen}


def _ended_trials(records: Iterable[Record], phase: str) -> list[Record]:
    return [record for record in records if record.phase == phase and record.outcome is not None]


def has_confirmed_front(plan: Plan) -> bool:
    """Return whether several points of a front are confirmed separately.

    Points of a front trade one objective for another, so the mean over them corresponds to no configuration.
    """
    return bool(plan.search and plan.confirm and len(plan.search.objectives) > 1 and plan.confirm.best > 1)


def declared_metrics(plan: Plan) -> tuple[Metric, ...]:
    """Return the metrics declared by the plan; for plans without any, those that every task has."""
    if plan.metrics or plan.trainable is not None:
        return plan.metrics
    from trainables.training import metric_catalog

    return metric_catalog.declared_metrics()


def _displayed_metrics(plan: Plan, declared: Sequence[Metric], records: Sequence[Record]) -> tuple[str, ...]:
    """Return the displayed metrics that any record measured, quantity by quantity."""
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    splits = (*splits_by_metric.test, *splits_by_metric.selection, "")
    names_by_place: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted({name for record in records if record.last for name in record.last.metrics}):
        names_by_place[splits_by_metric.quantity(name), splits_by_metric.split(name)].append(name)
    quantities = {quantity for quantity, split in names_by_place if split in splits}
    shown_metrics = [metric for metric in declared if metric.shown]
    unsplit_names = [metric.name for metric in shown_metrics if not metric.split]
    other_names = sorted(quantities.difference(metric.name for metric in declared))
    # An undeclared metric of a built-in task, such as BLEU, is the usual one of its field and comes first.
    ordered_quantities = (
        [*other_names, *unsplit_names] if plan.trainable is None else [*unsplit_names, *other_names]
    )
    places = [*product(ordered_quantities, splits)]
    places += [(metric.name, metric.split) for metric in shown_metrics if metric.split]
    return tuple(name for place in dict.fromkeys(places) for name in names_by_place.get(place, ()))


def _unmeasured_splits(
    plan: Plan, confirmed: Iterable[Record], expected_splits: Collection[str]
) -> tuple[str, ...]:
    """Return test splits without a value although some confirm trial finished; custom code may omit them.

    Splits in `expected_splits` have still to be evaluated and are left out.
    """
    finished_metrics = [record.last.metrics for record in _finished_records(confirmed) if record.last]
    if plan.confirm is None or not finished_metrics:
        return ()
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    known_splits = {splits_by_metric.split(name) for metrics in finished_metrics for name in metrics}.union(
        expected_splits
    )
    return tuple(split for split in plan.confirm.splits if split not in known_splits)


def _headline_quantities(
    plan: Plan, declared_metrics: Sequence[Metric], metrics: Sequence[str], primary: Sequence[str]
) -> tuple[str, ...]:
    """Return the headline quantities: the first applicable of the following.

    - The quantities of primary outcomes.
    - The first declared headline that was measured.
    - The objectives of the search.
    - The first declared or else measured quantity.
    """
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    if primary:
        return tuple(dict.fromkeys(map(names.quantity, primary)))
    quantities = [names.quantity(metric) for metric in metrics]
    if headline_names := [metric.name for metric in declared_metrics if "headline" in metric.shown]:
        return tuple(name for name in headline_names if name in quantities)[:1]
    searched = plan.objectives
    objectives = [names.quantity(objective.metric) for objective in searched]
    known_names = [metric.name for metric in declared_metrics if metric.name in quantities]
    return tuple(dict.fromkeys(objectives or [*known_names, *quantities][:1]))


def _floors_by_metric(declared_metrics: Sequence[Metric], confirmed: Sequence[Record]) -> dict[str, float]:
    """Return the floors by metric, as declared or as measured in the same trial."""
    floors: dict[str, float] = {}
    for record in confirmed:
        measured_values = record.last.metrics if record.last else {}
        for name in measured_values:
            metric = look_up(declared_metrics, name)
            floor_value = measured_values.get(metric_name(split_and_quantity(name)[0], metric.floor_from))
            if (floor := floor_value if metric.floor is None else metric.floor) is not None:
                floors[name] = floor
    return dict(sorted(floors.items()))


def _make_cell(
    plan: Plan,
    arm: str,
    metric: str,
    results: SeedResults,
    *,
    overrides: Mapping[str, object] = MappingProxyType({}),
    setting: str = "",
) -> ArmResult | None:
    values = results.by_seed(arm, metric)
    by_seed = mean_by_seed(values)
    units = results.by_unit(by_seed)
    if not units:
        return None
    failures = {
        seed: kind
        for seed, kind in results.failed_seeds(arm).items()
        if kind != NOT_MEASURED_FAILURE or seed not in by_seed
    }
    unit_values = list(units.values())
    cell = ArmResult(
        arm=arm,
        metric=metric,
        estimate=estimate(unit_values, span=results.value_range(metric, arm)),
        failed=len({*map(results.unit_of, failures)}),
        record_ids=tuple(trial_id for _, trial_id in values.values()),
        setting=setting,
        by_seed=tuple(by_seed.items()),
        by_unit=tuple(units.items()),
        failures=tuple(failures.items()),
    )
    return published.with_published_values(plan, cell, overrides, unit_values)


def _posthoc_cells(
    plan: Plan, metrics: Sequence[str], reevaluations: Sequence[Record], results: SeedResults
) -> Iterator[ArmResult]:
    """Yield the results under every setting of re-evaluations, in the order of the plan."""
    for arm, setting, overrides, records in _reevaluations_by_setting(plan, reevaluations):
        setting_results = replace(results, records=records)
        for metric in metrics:
            if cell := _make_cell(plan, arm, metric, setting_results, overrides=overrides, setting=setting):
                yield cell


def _failed_reevaluations(
    plan: Plan, reevaluations: Sequence[Record], results: SeedResults, shown_cells: Sequence[ArmResult]
) -> Iterator[FailedReadings]:
    """Yield the re-evaluations of arms in which every seed failed."""
    shown_keys = {(cell.arm, cell.setting) for cell in shown_cells}
    for arm, setting, _, records in _reevaluations_by_setting(plan, reevaluations):
        if (arm, setting) not in shown_keys and replace(results, records=records).failed_seeds(arm):
            yield FailedReadings(arm, setting, len({record.seed for record in records}))


def _reevaluations_by_setting(
    plan: Plan, reevaluations: Sequence[Record]
) -> Iterator[tuple[str, str, Mapping[str, object], Sequence[Record]]]:
    """Yield arm, setting as text, overrides and records of re-evaluations; for fronts, one item per point."""
    has_front = has_confirmed_front(plan)
    ranks = range(plan.confirm.best) if has_front and plan.confirm else (None,)
    for arm, overrides, rank in product(plan.arms, plan.posthoc, ranks):
        setting = setting_words(overrides)
        records = [
            record
            for record in reevaluations
            if record.arm == arm.name
            and dict(record.overrides) == dict(overrides)
            and rank in (None, record.rank)
        ]
        setting_text = setting if rank is None else f"{setting}, {_point_name(rank)}"
        yield arm.name, setting_text, overrides, records


def _front_cells(
    plan: Plan, metrics: Sequence[str], confirmed: Sequence[Record], results: SeedResults
) -> Iterator[ArmResult]:
    """Yield the results of every confirmed point of every arm's front."""
    assert plan.confirm is not None
    for arm, rank in product(plan.arms, range(plan.confirm.best)):
        records = [record for record in confirmed if record.arm == arm.name and record.rank == rank]
        setting = f"{_point_name(rank)}: {setting_words(records[0].assignment)}" if records else ""
        point_results = replace(results, records=records)
        for metric in metrics:
            if cell := _make_cell(plan, arm.name, metric, point_results, setting=setting):
                yield cell


def _point_name(rank: int) -> str:
    return f"point {rank + 1}"


def _tallies(plan: Plan, records: Sequence[Record], results: SeedResults) -> tuple[ArmTally, ...]:
    records_by_arm = by_arm(records)
    return tuple(_make_tally(plan, arm.name, records_by_arm[arm.name], results) for arm in plan.arms)


def _make_tally(plan: Plan, arm: str, records: Sequence[Record], results: SeedResults) -> ArmTally:
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        outcomes[record.phase][record.outcome.value if record.outcome else "open"] += 1
    best_records = [record for record in records if record.phase == "confirm" and not record.rank]
    best_params = [(record.repeat, record.assignment) for record in best_records]
    finished_seeds, failures = results.finished_seeds(arm), results.failed_seeds(arm)
    return ArmTally(
        arm=arm,
        outcomes={phase: dict(sorted(counts.items())) for phase, counts in sorted(outcomes.items())},
        seconds=sum(record.last.seconds for record in records if record.last),
        assignment=dict(best_params[0][1]) if best_params and plan.repeats == 1 else {},
        chosen=tuple(sorted(dict(best_params).items())) if plan.repeats > 1 else (),
        seeds=(len(finished_seeds), len(failures)),
        units=(len(results.complete_units(finished_seeds)), len({*map(results.unit_of, failures)})),
        failures=tuple(failures.items()),
    )
