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
from orchestrator.plan.types import AnswerPlan, Arm, ArmProof, Plan
from orchestrator.report.comparisons.answers import no_result_words
from orchestrator.report.comparisons.contrasts import goal_of, paired_seeds
from orchestrator.report.comparisons.untested import why_untested
from orchestrator.report.results.number_words import interval_words, p_words
from orchestrator.report.results.readings import Readings
from orchestrator.report.results.statistics import of_paired, wins_of
from orchestrator.report.results.types import CrossVerdict
from orchestrator.statistics.paired import Key, Paired, compare, resolution
from orchestrator.statistics.verdicts import Verdict, verdict
from orchestrator.trials import Record
from search_spaces.wording import amount

Sides = tuple[str, str]
"""Names of an arm and its reference at the same settings, as used in the readings."""


def cross_verdicts(
    plan: Plan, readings: Readings, answer: AnswerPlan, records: Sequence[Record]
) -> Iterator[CrossVerdict]:
    """Yield the verdict on every arm at the settings of its reference, then at the arm's own settings."""
    if plan.confirm is None or not plan.confirm.cross:
        return
    settings_of = {each.trial_id: each.settings_of for each in plan.trials if each.phase == "cross"}
    crossed = [
        replace(each, arm=_at(each.arm, settings_of[each.trial_id]))
        for each in records
        if each.trial_id in settings_of and each.outcome is not None
    ]
    both = replace(readings, records=[*readings.records, *crossed])
    plan = replace(plan, proofs=(*plan.proofs, *_proofs_at_other_settings(plan)))
    family = 2 * len([*crossed_pairs(plan.arms)]) * len(answer.outcomes)
    for arms in plan.contexts:
        pairs = [*crossed_pairs(arms)]
        compared = _compared(pairs, answer, both, family)
        for metric, (arm, reference), own in product(answer.outcomes, pairs, (False, True)):
            found = compared.get((_key(arm, own=own), metric))
            yield _judged(plan, answer, both, (arm, reference), metric, own=own, found=found, family=family)


def _proofs_at_other_settings(plan: Plan) -> Iterator[ArmProof]:
    """Yield the ablation check of every arm at another arm's settings, under the name in the readings."""
    proofs = {each.arm: each for each in plan.proofs}
    for pair in crossed_pairs(plan.arms):
        for runs, other in permutations(each.name for each in pair):
            if runs in proofs:
                yield replace(proofs[runs], arm=_at(runs, other))


def _at(arm: str, other: str) -> str:
    return f"{arm} at the settings of {other}"


def _key(arm: Arm, *, own: bool) -> str:
    return _at(arm.name, arm.name if own else arm.reference)


def _sides(arm: Arm, reference: Arm, *, own: bool) -> Sides:
    """Return the two names compared at the arm's own settings, or at those of the reference."""
    names = arm.name, reference.name
    return (names[0], _at(names[1], names[0])) if own else (_at(*names), names[1])


def _compared(
    pairs: Sequence[tuple[Arm, Arm]], answer: AnswerPlan, readings: Readings, family: int
) -> Mapping[Key, Paired]:
    sides = {_key(arm, own=own): _sides(arm, other, own=own) for arm, other in pairs for own in (False, True)}
    differences = {
        (key, metric): by_unit
        for metric, (key, names) in product(answer.outcomes, sides.items())
        if (by_unit := paired_seeds((names,), metric, readings).by_unit)
    }
    arms = [*dict.fromkeys(name for names in sides.values() for name in names)]
    steps = {metric: resolution(readings.all_values(metric, arms)) for metric in answer.outcomes}
    found = compare(differences, family=family, level=answer.level, resolutions=steps)
    idle = {key for key, names in sides.items() if all(map(readings.same_in_every_seed, names))}
    return {key: each.without_chance if key[0] in idle else each for key, each in found.items()}


def _judged(
    plan: Plan,
    answer: AnswerPlan,
    readings: Readings,
    pair: tuple[Arm, Arm],
    metric: str,
    *,
    own: bool,
    found: Paired | None,
    family: int,
) -> CrossVerdict:
    arm, reference = pair
    sides, goal = _sides(arm, reference, own=own), goal_of(plan, answer, metric, readings)
    ended = [readings.finished_seeds(name) | {*readings.failed_seeds(name)} for name in sides]
    failed = {readings.unit_of(seed) for name in sides for seed in readings.failed_seeds(name)}
    waiting = {readings.unit_of(seed) for seed in plan.units if any(seed not in each for each in ended)}
    said = verdict(found, failed=len(failed), unit=plan.unit, **goal)
    untested = why_untested(plan, [sides], metric, readings)
    if waiting:
        said = Verdict("undecided", f"undecided: {amount(len(waiting), plan.unit)} not run")
    elif untested is not None:
        said = Verdict("undecided", f"{untested.name}: {untested.text}", untested.code)
    has_no_result = found is None and bool(waiting)
    tested = found is not None and not failed and not waiting and untested is None
    whole = plan.num_units - len(failed | waiting)
    shared, runs = shared_fields(arm, reference), reference if own else arm
    made = CrossVerdict(
        arm=arm.name,
        reference=reference.name,
        metric=metric,
        settings_of=arm.name if own else reference.name,
        exchanged=shared,
        kept=tuple(path for path in searched_fields(runs) if path not in shared),
        kind=None if has_no_result else said.kind,
        text=no_result_words(len(waiting), plan.unit) if has_no_result else said.text,
        difference=of_paired(found, readings.span_of_difference(metric, *sides)) if found else None,
        p=found.p if found and tested else None,
        family=family,
        level=answer.level,
        seeds=f"{whole} of {amount(plan.num_units, plan.unit)} finished",
    )
    wins = wins_of(found, goal["better"]) if found is not None else None
    return replace(made, line=_line(made, answer), wins=wins)


def _line(made: CrossVerdict, answer: AnswerPlan) -> str:
    arm = _at(made.arm, made.settings_of)
    if made.difference is None:
        return f"{arm}: {made.text} ({made.metric}, {made.seeds})"
    margin = answer.margin if made.metric == answer.outcomes[0] else None
    p = "" if made.p is None else f", p={p_words(made.p, made.level)}"
    difference = interval_words(made.difference, "+", margin)
    return f"{arm}: {made.text} ({made.metric} {difference} against {made.reference}{p}, {made.seeds})"
