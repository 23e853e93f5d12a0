"""Write the warnings printed before the results: reasons why claims may be misleading."""

from datetime import UTC, datetime

from orchestrator.plan.answer import SEEN
from orchestrator.plan.display.format import format_amount as quantity_words
from orchestrator.plan.display.format import value_words
from orchestrator.plan.planned_trials import SEARCH
from orchestrator.report.comparisons.answer_warnings import warning_lines
from orchestrator.report.results.arm_changes import ArmChanges
from orchestrator.report.results.contexts import split_by_context
from orchestrator.report.results.number_formats import format_interval
from orchestrator.report.results.types import UNRUN, ArmTally, ArmVerdict, Report
from orchestrator.statistics.verdicts import SEEDS_LEAST
from orchestrator.trials import OutcomeKind, numbered
from search_spaces.dimensions import same
from search_spaces.wording import amount

DIVERGED = OutcomeKind.DIVERGED.value
FAILED = frozenset(outcome_kind.value for outcome_kind in OutcomeKind if outcome_kind.failed)
BySeed = tuple[tuple[int, float], ...]
IDENTICAL_RESULTS = (
    "{arms} measured identical {metrics} in each of {seeds}, although seeds differ. The differing "
    "settings of these arms affect at most their cost, or training was too short for a difference."
)
SAME_CONFIG = (
    "{arm} and {reference} were confirmed with identical settings, because the search chose the values "
    "that {arm} sets: {sets}. One configuration was run twice, so their difference is no effect of "
    "{arm}."
)
FRONT_POINTS = (
    "Several points of the front of each arm were confirmed and are reported separately. Verdicts, "
    "differences and means are those of point 1, the best in the first objective, regardless of the "
    "other objectives."
)
SEVERAL_ASSIGNMENTS = (
    "The {best} best params of each arm were confirmed. Verdicts, differences and means are of their "
    "average, seed by seed. The reported choice of an arm is the first of these params."
)
CONSTANT_OUTCOME = (
    "{arms}: all seeds measured the same {metric}, and so did all seeds of the reference, so there is "
    "no information about chance. The verdict holds only if seeds change the training. If they do not, "
    "each arm is a single run."
)
NO_ROOM = "{arms} are within {margin:g} of {bound:g} in {metric}, {what}, whatever these arms change."
AT_BOUND = "the {which} possible value: no larger difference could show there"
AT_FLOOR = "the value without any learning: arms that have learnt nothing do not differ"
FEWER_SHARE = 0.8
"""An arm whose share of usable search trials is at most this part of the other's may be tuned less well."""
CHOSEN_FROM_FEWER = (
    "The settings of {fewer} were chosen from {kept} of its {all} search trials, because the others "
    "failed, and those of {other} from {theirs}. This alone may explain that {claim}."
)

EQUAL_SEARCH_TRIALS = (
    "All {trials} that finished in the search of {arm} measured identical {objectives}, so the choice "
    "among them was arbitrary. This alone may explain that {claim}."
)

MAX_LISTED = 8
RETRIED = "{trials} ran again ({when}): {which}. The newest attempt of each counts."
FAILED_SEEDS = (
    "Confirm seeds failed ({which}). `haltsweep resume {sweep} --retry {asked}` runs them again. If a "
    "seed keeps failing, `haltsweep extend {sweep} --seeds 1` gives all arms another seed. Without a "
    "value of the failed seed, an arm has a verdict only if every value in the declared range gives the "
    "same verdict."
)
NOT_FINITE = "{metric} of {trials} was NaN or infinite at the last report: means and n exclude these trials."
READ_IN_SEARCH = (
    "Search trials measured {splits}, which only confirm trials should measure. The author of the code "
    "or the spec may have seen these values. Choices of the code by these values (weights, the end of "
    "training) are choices by test data."
)

NO_OUTCOME = (
    "No verdicts: confirm trials measure only validation data, and the search has chosen the settings on "
    "these data. Add a test split: report a metric such as test/accuracy from the training code, and add "
    "the split to the spec, e.g. confirm: {splits: [test]}. If a metric of test data has another name, set "
    "answer: {metric: NAME, split: test}."
)
SPENDS_MORE = (
    "{arm} is better than {reference} in {metric} as trained, where it spends {own} of {cost} and "
    "{reference} {theirs}. At the cost of {reference}, with other {path}, the difference is "
    "{difference}. The gain of {arm} may come from its higher cost."
)


def warning_texts(report: Report, *, of_verdicts: bool = False) -> list[str]:
    """Return the warnings printed before the results, one to a few sentences each, as plain text.

    Args:
        report: The report.
        of_verdicts: Whether the warnings accompany verdicts, each of which already states unfinished trials.
    """
    warnings_found = [versions for versions in (report.code_versions, report.data_versions) if versions]
    warnings_found += [*_retried_trials(report), *_failed_seeds(report), *_nonfinite_values(report)]
    warnings_found += [_unfinished_trials(report)] if report.left and not of_verdicts else []
    warnings_found += [SEEN.format(splits=" and ".join(report.selected_on))] if report.selected_on else []
    splits_text = " and ".join(report.read_in_search)
    warnings_found += [READ_IN_SEARCH.format(splits=splits_text)] if splits_text else []
    warnings_found += [FRONT_POINTS] if report.points else []
    averaged = report.assignments > 1 and report.cells and not report.points
    warnings_found += [SEVERAL_ASSIGNMENTS.format(best=report.assignments)] if averaged else []
    warnings_found += [
        *_same_configs(report),
        *(text for _, part in split_by_context(report) for text in _identical_results(part)),
        *_constant_outcomes(report),
        *(text for _, part in split_by_context(report) for text in _bounded_outcomes(part)),
        *_chosen_from_fewer(report),
        *_equal_search_trials(report),
        *_higher_costs(report),
        *warning_lines(report),
    ]
    warnings_found += [_unmeasured_splits(report)] if report.unread else []
    return [*warnings_found, *([NO_OUTCOME] if _lacks_test_split(report) else [])]


def _lacks_test_split(report: Report) -> bool:
    """Return whether arms are compared, but the search has used all data that confirm trials measure."""
    answer = report.answer
    return bool(answer is not None and answer.family and not answer.outcomes and report.cells)


def _retried_trials(report: Report) -> list[str]:
    """Return a warning that failed trials were retried, with the trials and the times of the retries."""
    if not report.retried:
        return []
    times = [datetime.fromtimestamp(at, UTC) for retried_trial in report.retried for at in retried_trial.at]
    days = sorted({f"{at:%Y-%m-%d %H:%M} UTC" for at in times})
    trial_texts = [
        f"{retried_trial.arm} {retried_trial.phase} {numbered(retried_trial.repeat, retried_trial.number)}"
        for retried_trial in report.retried[:MAX_LISTED]
    ]
    num_omitted = len(report.retried) - len(trial_texts)
    trials_text = ", ".join([*trial_texts, *([f"{num_omitted} more"] if num_omitted else [])])
    return [
        RETRIED.format(
            trials=amount(len(report.retried), "failed trial"), when=", ".join(days), which=trials_text
        )
    ]


def _failed_seeds(report: Report) -> list[str]:
    """Return a warning on failed confirm seeds, with the commands that run them again."""
    kinds = {kind for tally in report.tallies for _, kind in tally.failures}
    retry_words = ",".join(["failed"] * bool(kinds - {DIVERGED}) + [DIVERGED] * (DIVERGED in kinds))
    failed_seeds = {
        tally.arm: [seed for seed, kind in tally.failures if kind in FAILED] for tally in report.tallies
    }
    arms = {arm: seeds for arm, seeds in failed_seeds.items() if seeds}
    if not arms or report.left:
        return []
    seeds_text = "; ".join(f"{arm}: {', '.join(map(str, seeds))}" for arm, seeds in arms.items())
    return [FAILED_SEEDS.format(which=seeds_text, sweep=report.sweep, asked=retry_words)]


def _nonfinite_values(report: Report) -> list[str]:
    """Return warnings on metrics whose means exclude trials with values that are not finite."""
    return [
        NOT_FINITE.format(metric=metric, trials=amount(count, "trial"))
        for metric, count in report.not_finite.items()
    ]


def _same_configs(report: Report) -> list[str]:
    """Return warnings on arms that have the same settings as their reference after the search."""
    measured_arms = {cell.arm for cell in report.cells}
    return [
        SAME_CONFIG.format(
            arm=arm_changes.arm, reference=arm_changes.reference, sets=", ".join(shared_values)
        )
        for arm_changes in report.changes
        if {arm_changes.arm, arm_changes.reference} <= measured_arms
        and (report.assignments == 1 or report.points)
        if (shared_values := _values_shared_with_reference(report, arm_changes))
    ]


def _values_shared_with_reference(report: Report, arm: ArmChanges) -> list[str]:
    """Return the searched fields of `arm` with their values, if the arm equals its reference.

    Empty if a value differs from that of the reference, or if the arm changes anything else.
    """
    reference = next(
        (arm_changes for arm_changes in report.changes if arm_changes.arm == arm.reference), None
    )
    if (
        reference is None
        or arm.changes
        or any(arm_changes.searched and not arm_changes.chosen for arm_changes in (arm, reference))
    ):
        return []
    own_values, reference_values = (
        {**arm_changes.dropped, **arm_changes.chosen} for arm_changes in (arm, reference)
    )
    if any(
        path not in reference_values or not same(value, reference_values[path])
        for path, value in own_values.items()
    ):
        return []
    return [f"{path} = {value_words(value)}" for path, value in own_values.items()]


def _identical_results(report: Report) -> list[str]:
    """Return warnings on arms with identical primary outcomes in every seed, while seeds differ."""
    groups: dict[tuple[tuple[str, BySeed], ...], list[str]] = {}
    same_arms = {
        arm_changes.arm
        for arm_changes in report.changes
        if _values_shared_with_reference(report, arm_changes)
    }
    for arm in (name for name in report.arms if name not in same_arms):
        cells = [cell for metric in report.outcomes if (cell := report.cell(arm, metric))]
        values = tuple((cell.metric, cell.by_seed) for cell in cells)
        if any(len(by_seed) >= SEEDS_LEAST and len({*dict(by_seed).values()}) > 1 for _, by_seed in values):
            groups.setdefault(values, []).append(arm)
    return [
        IDENTICAL_RESULTS.format(
            arms=f"{', '.join(arms[:-1])} and {arms[-1]}",
            metrics=" and ".join(metric for metric, _ in values),
            seeds=amount(len(values[0][1]), "seed"),
        )
        for values, arms in groups.items()
        if len(arms) > 1
    ]


def _constant_outcomes(report: Report) -> list[str]:
    """Return warnings on decided verdicts between two arms that both have one value in all seeds."""
    arms_by_outcome: dict[str, list[str]] = {}
    for verdict in report.verdicts:
        cells = [report.cell(arm, verdict.metric) for arm in (verdict.arm, verdict.reference)]
        is_constant = all(cell and len({*dict(cell.by_seed).values()}) == 1 for cell in cells)
        if is_constant and verdict.is_decided:
            arms_by_outcome.setdefault(verdict.metric, []).append(verdict.arm)
    return [
        CONSTANT_OUTCOME.format(arms=", ".join(arms), metric=metric)
        for metric, arms in arms_by_outcome.items()
    ]


def _bounded_outcomes(report: Report) -> list[str]:
    """Return warnings on verdicts of no difference for outcomes that leave no room for a difference.

    All values are at an end of the possible range, or at the value that needs no learning.
    """
    margin = report.answer.margin if report.answer is not None else None
    arms_by_bound: dict[tuple[str, float, str], list[str]] = {}
    for verdict in report.verdicts:
        cells = [report.cell(arm, verdict.metric) for arm in (verdict.reference, verdict.arm)]
        if margin is None or verdict.kind != "no difference" or not all(cells):
            continue
        metric_info = report.quantity(verdict.metric)
        bounds = {
            AT_BOUND.format(which="greatest"): metric_info.high,
            AT_BOUND.format(which="least"): metric_info.low,
            AT_FLOOR: report.floors.get(verdict.metric),
        }
        for bound_name, bound in bounds.items():
            if bound is not None and all(cell and abs(cell.estimate.mean - bound) < margin for cell in cells):
                arms = arms_by_bound.setdefault((verdict.metric, bound, bound_name), [])
                arms += [arm for arm in (verdict.reference, verdict.arm) if arm not in arms]
                break
    return [
        NO_ROOM.format(
            arms=f"{', '.join(arms[:-1])} and {arms[-1]}",
            margin=margin,
            bound=bound,
            metric=metric,
            what=bound_name,
        )
        for (metric, bound, bound_name), arms in arms_by_bound.items()
    ]


def _chosen_from_fewer(report: Report) -> list[str]:
    """Return warnings on verdicts that favour the arm with fewer failed search trials."""
    tallies = {tally.arm: tally for tally in report.tallies}
    texts: dict[str, None] = {}
    for verdict in report.verdicts:
        arms = sorted(
            (tallies[arm] for arm in (verdict.arm, verdict.reference) if arm in tallies), key=_finished_share
        )
        if not verdict.is_decided or len(arms) < 2:
            continue
        smallest_tally, other_tally = arms
        against_itself = {"worse": verdict.reference, "better": verdict.arm}.get(verdict.kind or "")
        if smallest_tally.arm == against_itself or _finished_share(
            smallest_tally
        ) > FEWER_SHARE * _finished_share(other_tally):
            continue
        (num_finished, every), (other_finished, all_theirs) = map(search_trial_counts, arms)
        if num_finished >= other_finished:  # an arm that searches few fields or none
            continue
        notice = CHOSEN_FROM_FEWER.format(
            fewer=smallest_tally.arm,
            kept=num_finished,
            all=every,
            other=other_tally.arm,
            theirs=f"all {other_finished}"
            if other_finished == all_theirs
            else f"{other_finished} of {all_theirs}",
            claim=_claim_text(verdict),
        )
        texts[notice] = None
    return list(texts)


def _equal_search_trials(report: Report) -> list[str]:
    """Return warnings on arms without an advantage whose search trials all had the same value."""
    texts: dict[str, None] = {}
    for verdict in report.verdicts:
        in_favour = {"worse": verdict.reference, "better": verdict.arm}.get(verdict.kind or "")
        for arm in (verdict.arm, verdict.reference):
            if not verdict.is_decided or arm == in_favour or arm not in report.unranked:
                continue
            notice = EQUAL_SEARCH_TRIALS.format(
                trials=amount(report.unranked[arm], "trial"),
                arm=arm,
                objectives=" and ".join(report.objectives),
                claim=_claim_text(verdict),
            )
            texts[notice] = None
    return list(texts)


def _claim_text(verdict: ArmVerdict) -> str:
    if verdict.kind == "no difference":
        return f"no difference of {verdict.arm} to {verdict.reference} was found in {verdict.metric}"
    return f"{verdict.arm} is {verdict.kind} than {verdict.reference} in {verdict.metric}"


def _finished_share(tally: ArmTally) -> float:
    num_finished, every = search_trial_counts(tally)
    return num_finished / every if every else 1.0


def search_trial_counts(tally: ArmTally) -> tuple[int, int]:
    """Return how many search trials the arm's settings were chosen from, and how many have ended."""
    ended_counts = {
        kind: count for kind, count in tally.outcomes.get(SEARCH, {}).items() if kind not in UNRUN
    }
    every = sum(ended_counts.values())
    return every - sum(count for kind, count in ended_counts.items() if kind in FAILED), every


def _higher_costs(report: Report) -> list[str]:
    """Return warnings on arms that are better as trained, but not at the same cost as their reference.

    If several costs show this, only the first is reported.
    """
    better = {(verdict.arm, verdict.metric) for verdict in report.verdicts if verdict.kind == "better"}
    texts: dict[tuple[str, str], str] = {}
    for equal_cost in report.equal_costs:
        if (
            equal_cost.equal is None
            or not equal_cost.path
            or (equal_cost.arm, equal_cost.outcome) not in better
        ):
            continue
        ends = [end for end in (equal_cost.equal.low, equal_cost.equal.high) if end is not None] or [
            equal_cost.equal.mean
        ]
        ahead = all(end * equal_cost.as_trained.mean > 0 for end in ends)
        if equal_cost.own_cost > equal_cost.cost_of_reference and not ahead:
            notice = SPENDS_MORE.format(
                arm=equal_cost.arm,
                reference=equal_cost.reference,
                metric=equal_cost.outcome,
                own=quantity_words(equal_cost.own_cost),
                theirs=quantity_words(equal_cost.cost_of_reference),
                cost=equal_cost.cost,
                path=equal_cost.path,
                difference=format_interval(equal_cost.equal, "+"),
            )
            texts.setdefault((equal_cost.arm, equal_cost.outcome), notice)
    return list(texts.values())


def _unfinished_trials(report: Report) -> str:
    have = "has" if report.left == 1 else "have"
    message = f"{amount(report.left, 'trial')} {have} not ended: every number is of those that have."
    return f"{message} Nothing more begins: {report.spent}." if report.spent else message


def _unmeasured_splits(report: Report) -> str:
    return (
        f"No confirm trial measured anything on {', '.join(report.unread)} by its last report, which "
        "must have <split>/<quantity> of every split that the training code is given, e.g. "
        f"{report.unread[0]}/accuracy. Of a metric with another name say so: "
        f"answer: {{metric: test_accuracy, split: {report.unread[0]}}}."
    )
