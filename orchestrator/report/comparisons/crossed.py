"""Compare arms with their references at the same settings, if `confirm.cross` asks for it.

In each comparison both arms run, on the same seeds, with the params that the search of each of them chose. A
difference at given settings is therefore caused by what the arm changes, and not by variance between
searches. The verdict answers another question: whether the arm is better if both are tuned. All of these
differences form a separate family at the level of the verdicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from orchestrator.plan.crossing import crossed_pairs, searched_fields, shared_fields
from orchestrator.plan.types import Arm, ArmCheck, Plan
from orchestrator.report.comparisons.answers import pending_text
from orchestrator.report.comparisons.contrasts import Comparisons, paired_seeds
from orchestrator.report.comparisons.untested import find_untested_reason
from orchestrator.report.results.number_formats import format_interval, format_p
from orchestrator.report.results.statistics import paired_estimate, paired_win_share
from orchestrator.report.results.types import CrossVerdict
from orchestrator.statistics.paired import Key, PairedEstimate, estimate_differences, resolution
from orchestrator.statistics.verdicts import Verdict, verdict
from orchestrator.trials import Record
from search_spaces.wording import amount


def cross_verdicts(comparisons: Comparisons, records: Sequence[Record]) -> Iterator[CrossVerdict]:
    """Yield the verdict on every arm at the settings of its reference, then at the arm's own settings."""
    plan, results, outcomes = comparisons.plan, comparisons.results, comparisons.answer.outcomes
    if plan.confirm is None or not plan.confirm.cross:
        return
    settings_of = {trial.trial_id: trial.settings_of for trial in plan.trials if trial.phase == "cross"}
    crossed_records = [
        replace(record, arm=_name_at_settings(record.arm, settings_of[record.trial_id]))
        for record in records
        if record.trial_id in settings_of and record.outcome is not None
    ]
    crossed = replace(
        comparisons,
        plan=replace(plan, proofs=(*plan.proofs, *_checks_at_other_settings(plan))),
        results=replace(results, records=[*results.records, *crossed_records]),
    )
    family = 2 * len([*crossed_pairs(plan.arms)]) * len(outcomes)
    for arms in plan.contexts:
        pairs = [_SettingsPair(*pair, of_arm) for pair in crossed_pairs(arms) for of_arm in (False, True)]
        estimates = _compare_pairs(pairs, crossed, family)
        for metric in outcomes:
            for pair in pairs:
                yield _make_verdict(crossed, pair, metric, estimates.get((pair.key, metric)), family)


@dataclass(frozen=True, slots=True)
class _SettingsPair:
    """An arm and its reference at the settings of one of them."""

    arm: Arm
    reference: Arm
    has_arm_settings: bool
    """True if the settings are those of the arm, false if they are those of the reference."""

    @property
    def settings_of(self) -> str:
        """Return the name of the arm whose search chose the settings."""
        return self.arm.name if self.has_arm_settings else self.reference.name

    @property
    def key(self) -> str:
        """Return the name of the comparison."""
        return _name_at_settings(self.arm.name, self.settings_of)

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of arm and reference in the results."""
        arm, reference = self.arm.name, self.reference.name
        return (arm, _name_at_settings(reference, arm)) if self.has_arm_settings else (self.key, reference)


def _checks_at_other_settings(plan: Plan) -> Iterator[ArmCheck]:
    """Yield the ablation check of every arm at another arm's settings, with the arm's name in the results."""
    proofs = {check.arm: check for check in plan.proofs}
    for pair in crossed_pairs(plan.arms):
        for arm_name, other_name in permutations(arm.name for arm in pair):
            if arm_name in proofs:
                yield replace(proofs[arm_name], arm=_name_at_settings(arm_name, other_name))


def _name_at_settings(arm: str, other_arm: str) -> str:
    return f"{arm} at the settings of {other_arm}"


def _compare_pairs(
    pairs: Sequence[_SettingsPair], comparisons: Comparisons, family: int
) -> Mapping[Key, PairedEstimate]:
    results, answer = comparisons.results, comparisons.answer
    differences = {
        (pair.key, metric): by_unit
        for metric, pair in product(answer.outcomes, pairs)
        if (by_unit := paired_seeds((pair.names,), metric, results).by_unit)
    }
    arms = [*dict.fromkeys(name for pair in pairs for name in pair.names)]
    steps = {metric: resolution(results.all_values(metric, arms)) for metric in answer.outcomes}
    estimates = estimate_differences(differences, family=family, level=answer.level, resolutions=steps)
    unvaried_keys = {pair.key for pair in pairs if all(map(results.is_equal_in_all_seeds, pair.names))}
    return {
        key: paired.drop_interval if key[0] in unvaried_keys else paired for key, paired in estimates.items()
    }


def _make_verdict(
    comparisons: Comparisons, pair: _SettingsPair, metric: str, paired: PairedEstimate | None, family: int
) -> CrossVerdict:
    plan, results, names = comparisons.plan, comparisons.results, pair.names
    margin, better = comparisons.margin(metric), comparisons.goal(metric)
    ended_seeds = [results.finished_seeds(name) | {*results.failed_seeds(name)} for name in names]
    failed_units = {results.unit_of(seed) for name in names for seed in results.failed_seeds(name)}
    ended_in_both = set.intersection(*ended_seeds)
    waiting_units = {results.unit_of(seed) for seed in plan.units if seed not in ended_in_both}
    untested_reason = find_untested_reason(plan, [names], metric, results)
    has_no_result = paired is None and bool(waiting_units)
    if waiting_units:
        statement = Verdict("undecided", f"undecided: {amount(len(waiting_units), plan.unit)} not run")
    elif untested_reason is not None:
        statement = Verdict(
            "undecided", f"{untested_reason.name}: {untested_reason.text}", untested_reason.code
        )
    else:
        num_failed = len(failed_units)
        statement = verdict(paired, margin=margin, better=better, num_failed=num_failed, unit=plan.unit)
    is_tested = not failed_units and not waiting_units and untested_reason is None
    num_complete = plan.num_units - len(failed_units | waiting_units)
    shared_paths = shared_fields(pair.arm, pair.reference)
    trained_arm = pair.reference if pair.has_arm_settings else pair.arm
    cross_verdict = CrossVerdict(
        arm=pair.arm.name,
        reference=pair.reference.name,
        metric=metric,
        settings_of=pair.settings_of,
        exchanged=shared_paths,
        kept=tuple(path for path in searched_fields(trained_arm) if path not in shared_paths),
        kind=None if has_no_result else statement.kind,
        text=pending_text(len(waiting_units), plan.unit) if has_no_result else statement.text,
        difference=paired_estimate(paired, results.span_of_difference(metric, *names)) if paired else None,
        p=paired.p if paired and is_tested else None,
        family=family,
        level=comparisons.answer.level,
        seeds=f"{num_complete} of {amount(plan.num_units, plan.unit)} finished",
        wins=paired_win_share(paired, better) if paired else None,
    )
    return replace(cross_verdict, line=_verdict_line(cross_verdict, pair.key, margin))


def _verdict_line(verdict: CrossVerdict, name: str, margin: float | None) -> str:
    if verdict.difference is None:
        return f"{name}: {verdict.text} ({verdict.metric}, {verdict.seeds})"
    p = "" if verdict.p is None else f", p={format_p(verdict.p, verdict.level)}"
    difference = format_interval(verdict.difference, "+", margin)
    against_text = f"against {verdict.reference}{p}, {verdict.seeds}"
    return f"{name}: {verdict.text} ({verdict.metric} {difference} {against_text})"
