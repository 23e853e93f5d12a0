"""Compare arms with their references at the same settings, if `confirm.cross` asks for it.

In each comparison both arms run, on the same seeds, with the params that the search of each of them chose. A
difference at the settings of the reference, or of the arm, is thus caused by what the arm changes, given
these settings, and not by variance between searches. The verdict answers another question: whether the arm is
better if both are tuned. All of these differences form a separate family at the level of the verdicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product

from orchestrator.plan.crossing import crossed_pairs, searched_fields, shared_fields
from orchestrator.plan.types import AnswerPlan, Arm, ArmCheck, Plan
from orchestrator.report.comparisons.answers import pending_text
from orchestrator.report.comparisons.contrasts import outcome_goal, paired_seeds
from orchestrator.report.comparisons.untested import find_untested_reason
from orchestrator.report.results.number_formats import format_interval, format_p
from orchestrator.report.results.seed_results import SeedResults
from orchestrator.report.results.statistics import paired_estimate, paired_win_share
from orchestrator.report.results.types import CrossVerdict
from orchestrator.statistics.paired import Key, PairedEstimate, compare, resolution
from orchestrator.statistics.verdicts import Verdict, verdict
from orchestrator.trials import Record
from search_spaces.wording import amount

NamePair = tuple[str, str]
"""Names of an arm and its reference at the same settings, as used in the results."""


def cross_verdicts(
    plan: Plan, results: SeedResults, answer: AnswerPlan, records: Sequence[Record]
) -> Iterator[CrossVerdict]:
    """Yield the verdict on every arm at the settings of its reference, then at the arm's own settings."""
    if plan.confirm is None or not plan.confirm.cross:
        return
    settings_of = {trial.trial_id: trial.settings_of for trial in plan.trials if trial.phase == "cross"}
    crossed_records = [
        replace(record, arm=_name_at_settings(record.arm, settings_of[record.trial_id]))
        for record in records
        if record.trial_id in settings_of and record.outcome is not None
    ]
    results_with_crossed = replace(results, records=[*results.records, *crossed_records])
    plan = replace(plan, proofs=(*plan.proofs, *_checks_at_other_settings(plan)))
    family = 2 * len([*crossed_pairs(plan.arms)]) * len(answer.outcomes)
    for arms in plan.contexts:
        pairs = [*crossed_pairs(arms)]
        estimates = _compare_pairs(pairs, answer, results_with_crossed, family)
        for metric, (arm, reference), at_own_settings in product(answer.outcomes, pairs, (False, True)):
            pair_estimate = estimates.get((_comparison_name(arm, at_own_settings=at_own_settings), metric))
            yield _make_verdict(
                plan,
                answer,
                results_with_crossed,
                (arm, reference),
                metric,
                at_own_settings=at_own_settings,
                pair_estimate=pair_estimate,
                family=family,
            )


def _checks_at_other_settings(plan: Plan) -> Iterator[ArmCheck]:
    """Yield the ablation check of every arm at another arm's settings, with the arm's name in the results."""
    proofs = {arm_check.arm: arm_check for arm_check in plan.proofs}
    for pair in crossed_pairs(plan.arms):
        for arm_name, other_name in permutations(arm.name for arm in pair):
            if arm_name in proofs:
                yield replace(proofs[arm_name], arm=_name_at_settings(arm_name, other_name))


def _name_at_settings(arm: str, other_arm: str) -> str:
    return f"{arm} at the settings of {other_arm}"


def _comparison_name(arm: Arm, *, at_own_settings: bool) -> str:
    return _name_at_settings(arm.name, arm.name if at_own_settings else arm.reference)


def _compared_names(arm: Arm, reference: Arm, *, at_own_settings: bool) -> NamePair:
    """Return the two compared names, at the arm's own settings or at the settings of the reference."""
    names = arm.name, reference.name
    return (
        (names[0], _name_at_settings(names[1], names[0]))
        if at_own_settings
        else (_name_at_settings(*names), names[1])
    )


def _compare_pairs(
    pairs: Sequence[tuple[Arm, Arm]], answer: AnswerPlan, results: SeedResults, family: int
) -> Mapping[Key, PairedEstimate]:
    compared_names = {
        _comparison_name(arm, at_own_settings=at_own_settings): _compared_names(
            arm, other_arm, at_own_settings=at_own_settings
        )
        for arm, other_arm in pairs
        for at_own_settings in (False, True)
    }
    differences = {
        (key, metric): by_unit
        for metric, (key, names) in product(answer.outcomes, compared_names.items())
        if (by_unit := paired_seeds((names,), metric, results).by_unit)
    }
    arms = [*dict.fromkeys(name for names in compared_names.values() for name in names)]
    steps = {metric: resolution(results.all_values(metric, arms)) for metric in answer.outcomes}
    estimates = compare(differences, family=family, level=answer.level, resolutions=steps)
    equal_comparisons = {
        key for key, names in compared_names.items() if all(map(results.same_in_every_seed, names))
    }
    return {
        key: estimate.without_chance if key[0] in equal_comparisons else estimate
        for key, estimate in estimates.items()
    }


def _make_verdict(
    plan: Plan,
    answer: AnswerPlan,
    results: SeedResults,
    pair: tuple[Arm, Arm],
    metric: str,
    *,
    at_own_settings: bool,
    pair_estimate: PairedEstimate | None,
    family: int,
) -> CrossVerdict:
    arm, reference = pair
    compared_names, goal = (
        _compared_names(arm, reference, at_own_settings=at_own_settings),
        outcome_goal(plan, answer, metric, results),
    )
    ended_seeds = [results.finished_seeds(name) | {*results.failed_seeds(name)} for name in compared_names]
    failed_units = {results.unit_of(seed) for name in compared_names for seed in results.failed_seeds(name)}
    waiting_units = {
        results.unit_of(seed) for seed in plan.units if any(seed not in seeds for seeds in ended_seeds)
    }
    statement = verdict(pair_estimate, num_failed=len(failed_units), unit=plan.unit, **goal)
    untested = find_untested_reason(plan, [compared_names], metric, results)
    if waiting_units:
        statement = Verdict("undecided", f"undecided: {amount(len(waiting_units), plan.unit)} not run")
    elif untested is not None:
        statement = Verdict("undecided", f"{untested.name}: {untested.text}", untested.code)
    has_no_result = pair_estimate is None and bool(waiting_units)
    is_tested = pair_estimate is not None and not failed_units and not waiting_units and untested is None
    num_complete = plan.num_units - len(failed_units | waiting_units)
    shared_paths, trained_arm = shared_fields(arm, reference), reference if at_own_settings else arm
    cross_verdict = CrossVerdict(
        arm=arm.name,
        reference=reference.name,
        metric=metric,
        settings_of=arm.name if at_own_settings else reference.name,
        exchanged=shared_paths,
        kept=tuple(path for path in searched_fields(trained_arm) if path not in shared_paths),
        kind=None if has_no_result else statement.kind,
        text=pending_text(len(waiting_units), plan.unit) if has_no_result else statement.text,
        difference=paired_estimate(pair_estimate, results.span_of_difference(metric, *compared_names))
        if pair_estimate
        else None,
        p=pair_estimate.p if pair_estimate and is_tested else None,
        family=family,
        level=answer.level,
        seeds=f"{num_complete} of {amount(plan.num_units, plan.unit)} finished",
    )
    wins = paired_win_share(pair_estimate, goal["better"]) if pair_estimate is not None else None
    return replace(cross_verdict, line=_verdict_line(cross_verdict, answer), wins=wins)


def _verdict_line(verdict: CrossVerdict, answer: AnswerPlan) -> str:
    arm = _name_at_settings(verdict.arm, verdict.settings_of)
    if verdict.difference is None:
        return f"{arm}: {verdict.text} ({verdict.metric}, {verdict.seeds})"
    margin = answer.margin if verdict.metric == answer.outcomes[0] else None
    p = "" if verdict.p is None else f", p={format_p(verdict.p, verdict.level)}"
    difference = format_interval(verdict.difference, "+", margin)
    against_text = f"against {verdict.reference}{p}, {verdict.seeds}"
    return f"{arm}: {verdict.text} ({verdict.metric} {difference} {against_text})"
