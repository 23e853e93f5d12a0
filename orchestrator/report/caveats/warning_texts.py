"""Write the warnings printed before the results: reasons why claims may be misleading."""

from collections.abc import Iterator
from datetime import UTC, datetime

from orchestrator.plan.answer import TEST_DATA_SELECTION_WARNING
from orchestrator.plan.display.format import format_amount, value_words
from orchestrator.plan.planned_trials import SEARCH
from orchestrator.report.comparisons.answer_warnings import warning_lines
from orchestrator.report.results.arm_changes import ArmChanges
from orchestrator.report.results.contexts import split_by_context
from orchestrator.report.results.number_formats import format_interval
from orchestrator.report.results.types import UNRUN_OUTCOMES, ArmTally, ArmVerdict, Report
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS
from orchestrator.trials import READ_FROM_OTHERS, OutcomeKind, numbered
from search_spaces.dimensions import are_equal
from search_spaces.wording import amount, join_words

DIVERGED = OutcomeKind.DIVERGED.value
FAILED_KINDS = frozenset(kind.value for kind in OutcomeKind if kind.is_failure)
ValuesBySeed = tuple[tuple[int, float], ...]
IDENTICAL_RESULTS_WARNING = (
    "{arms} measured identical {metrics} in each of {seeds}, although seeds differ. The differing "
    "settings of these arms affect at most their cost, or training was too short for a difference."
)
SAME_CONFIG_WARNING = (
    "{arm} and {reference} were confirmed with identical settings, because the search chose the values "
    "that {arm} sets: {sets}. One configuration was run twice, so {arm} did not "
    "cause their difference."
)
FRONT_POINTS_WARNING = (
    "Several points of the front of each arm were confirmed and are reported separately. Verdicts, "
    "differences and means are those of point 1, the best in the first objective, regardless of the "
    "other objectives."
)
SEVERAL_PARAMS_WARNING = (
    "The {best} best params of each arm were confirmed. Verdicts, differences and means are of their "
    "average, seed by seed. The reported choice of an arm is the first of these params."
)
CONSTANT_OUTCOME_WARNING = (
    "{arms}: all seeds measured the same {metric}, and so did all seeds of the reference, so there is "
    "no information about chance. Verdicts hold only if seeds change the training: check that the training "
    "code uses the seed of the trial. If it does not, each arm is a single run."
)
BOUNDED_OUTCOME_WARNING = (
    "{arms} are within {margin:g} of {bound:g} in {metric}, {what}, whatever the arms change."
)
AT_BOUND_CLAUSE = "the {which} possible value: no larger difference could show there"
AT_FLOOR_CLAUSE = "the value without any learning, where arms cannot differ"
LOW_TRIAL_SHARE = 0.8
"""An arm whose share of usable search trials is at most this part of the other's may be tuned less well."""
FEWER_TRIALS_WARNING = (
    "The settings of {fewer} were chosen from {kept} of its {all} search trials, because the others "
    "failed, and those of {other} from {theirs}. This alone may explain that {claim}."
)

EQUAL_SEARCH_TRIALS_WARNING = (
    "All {trials} that finished in the search of {arm} measured identical {objectives}, so the choice "
    "among them was arbitrary. This alone may explain that {claim}."
)

MAX_LISTED = 8
RETRY_WARNING = "{trials} ran again ({when}): {which}. The newest attempt of each counts."
FAILED_SEEDS_WARNING = (
    "Confirm seeds failed ({which}). `haltsweep resume {sweep} --retry {asked}` runs them again. If a "
    "seed keeps failing, `haltsweep extend {sweep} --seeds 1` gives all arms another seed. Without a "
    "value of the failed seed, an arm has a verdict only if every value in the declared range gives the "
    "same verdict."
)
NON_FINITE_WARNING = (
    "{metric} of {trials} was NaN or infinite at the last report: means and n exclude these trials."
)
SHARED_FILES_WARNING = (
    "{trials} read files that another trial of the sweep had written: {files}. If the content of these files "
    "depends on settings or seeds, the results of these trials are partly those of the other trial. Files "
    "that are written by a relative path are private to each trial."
)
TEST_DATA_IN_SEARCH_WARNING = (
    "Search trials measured {splits}, which only confirm trials should measure. The author of the code "
    "or the spec may have seen these values. Choices of the code by these values (weights, the end of "
    "training) are choices by test data."
)

NO_OUTCOME_WARNING = (
    "No verdicts: confirm trials measure only validation data, and the search has chosen the settings on "
    "these data. Add a test split: report a metric such as test/accuracy from the training code, and add "
    "the split to the spec, e.g. confirm: {splits: [test]}. If a metric of test data has another name, set "
    "answer: {metric: NAME, split: test}."
)
HIGHER_COST_WARNING = (
    "{arm} is better than {reference} in {metric} as trained, where it spends {own} of {cost} and "
    "{reference} {theirs}. At the cost of {reference}, with other {path}, the difference is "
    "{difference}. The gain of {arm} may come from its higher cost."
)


def warning_texts(report: Report, *, for_verdicts: bool = False) -> list[str]:
    """Return the warnings printed before the results, one to a few sentences each, as plain text.

    Args:
        report: The report.
        for_verdicts: Whether the warnings accompany verdicts, each of which already states unfinished trials.
    """
    parts = [part for _, part in split_by_context(report)]
    averaged = report.assignments > 1 and report.cells and not report.points
    texts = [
        report.code_versions,
        report.data_versions,
        _retried_trials(report),
        _failed_seeds(report),
        _files_of_other_trials(report),
        *(
            NON_FINITE_WARNING.format(metric=name, trials=amount(n, "trial"))
            for name, n in report.not_finite.items()
        ),
        "" if for_verdicts else _unfinished_trials(report),
        TEST_DATA_SELECTION_WARNING.format(splits=" and ".join(report.selected_on))
        if report.selected_on
        else "",
        TEST_DATA_IN_SEARCH_WARNING.format(splits=" and ".join(report.read_in_search))
        if report.read_in_search
        else "",
        FRONT_POINTS_WARNING if report.points else "",
        SEVERAL_PARAMS_WARNING.format(best=report.assignments) if averaged else "",
        *_same_configs(report),
        *(text for part in parts for text in _identical_results(part)),
        *_constant_outcomes(report),
        *(text for part in parts for text in _bounded_outcomes(part)),
        *dict.fromkeys(_chosen_from_fewer(report)),
        *dict.fromkeys(_equal_search_trials(report)),
        *_higher_costs(report),
        *warning_lines(report),
        _unmeasured_splits(report),
        NO_OUTCOME_WARNING if _lacks_test_split(report) else "",
    ]
    return [text for text in texts if text]


def _lacks_test_split(report: Report) -> bool:
    """Return whether arms are compared, but the search has used all data that confirm trials measure."""
    answer = report.answer
    return bool(answer is not None and answer.family and not answer.outcomes and report.cells)


def _retried_trials(report: Report) -> str:
    """Return a warning that failed trials were retried, with the trials and the times of the retries."""
    if not report.retried:
        return ""
    times = [datetime.fromtimestamp(at, UTC) for trial in report.retried for at in trial.at]
    days = sorted({f"{at:%Y-%m-%d %H:%M} UTC" for at in times})
    names = [f"{trial.arm} {trial.phase} {numbered(trial.repeat, trial.number)}" for trial in report.retried]
    if len(names) > MAX_LISTED:
        names[MAX_LISTED:] = [f"{len(names) - MAX_LISTED} more"]
    trials = amount(len(report.retried), "failed trial")
    return RETRY_WARNING.format(trials=trials, when=", ".join(days), which=", ".join(names))


def _failed_seeds(report: Report) -> str:
    """Return a warning on failed confirm seeds, with the commands that run them again."""
    kinds = {kind for tally in report.tallies for _, kind in tally.failures}
    retry_words = ",".join(["failed"] * bool(kinds - {DIVERGED}) + [DIVERGED] * (DIVERGED in kinds))
    failed_seeds = {
        tally.arm: [str(seed) for seed, kind in tally.failures if kind in FAILED_KINDS]
        for tally in report.tallies
    }
    seeds_text = "; ".join(f"{arm}: {', '.join(seeds)}" for arm, seeds in failed_seeds.items() if seeds)
    if not seeds_text or report.left:
        return ""
    return FAILED_SEEDS_WARNING.format(which=seeds_text, sweep=report.sweep, asked=retry_words)


def _files_of_other_trials(report: Report) -> str:
    """Return a warning on trials that may have used results of another trial."""
    files_by_trial = [
        texts[READ_FROM_OTHERS] for texts in report.attributes.values() if READ_FROM_OTHERS in texts
    ]
    if not files_by_trial:
        return ""
    files = [*dict.fromkeys(files_by_trial)]
    if len(files) > MAX_LISTED:
        files[MAX_LISTED:] = [f"files of {len(files) - MAX_LISTED} more trials"]
    return SHARED_FILES_WARNING.format(trials=amount(len(files_by_trial), "trial"), files="; ".join(files))


def _same_configs(report: Report) -> Iterator[str]:
    """Yield warnings on arms that have the same settings as their reference after the search."""
    measured_arms = {cell.arm for cell in report.cells}
    for arm in report.changes if report.assignments == 1 or report.points else ():
        shared_values = _values_shared_with_reference(report, arm)
        if shared_values and {arm.arm, arm.reference} <= measured_arms:
            yield SAME_CONFIG_WARNING.format(
                arm=arm.arm, reference=arm.reference, sets=", ".join(shared_values)
            )


def _values_shared_with_reference(report: Report, arm: ArmChanges) -> list[str]:
    """Return the searched fields of `arm` with their values, if the arm equals its reference.

    Empty if a value differs from that of the reference, or if the arm changes anything else.
    """
    reference = next((other for other in report.changes if other.arm == arm.reference), None)
    if (
        reference is None
        or arm.changes
        or any(changes.searched and not changes.chosen for changes in (arm, reference))
    ):
        return []
    arm_values, reference_values = ({**changes.dropped, **changes.chosen} for changes in (arm, reference))
    if not all(
        path in reference_values and are_equal(value, reference_values[path])
        for path, value in arm_values.items()
    ):
        return []
    return [f"{path} = {value_words(value)}" for path, value in arm_values.items()]


def _identical_results(report: Report) -> Iterator[str]:
    """Yield warnings on arms with identical primary outcomes in every seed, while seeds differ."""
    groups: dict[tuple[tuple[str, ValuesBySeed], ...], list[str]] = {}
    same_arms = {arm.arm for arm in report.changes if _values_shared_with_reference(report, arm)}
    for arm in (name for name in report.arms if name not in same_arms):
        cells = [cell for metric in report.outcomes if (cell := report.cell(arm, metric))]
        values = tuple((cell.metric, cell.by_seed) for cell in cells)
        if any(
            len(by_seed) >= MIN_VERDICT_SEEDS and len({*dict(by_seed).values()}) > 1 for _, by_seed in values
        ):
            groups.setdefault(values, []).append(arm)
    for values, arms in groups.items():
        if len(arms) > 1:
            metrics, seeds = " and ".join(metric for metric, _ in values), amount(len(values[0][1]), "seed")
            yield IDENTICAL_RESULTS_WARNING.format(arms=join_words(arms), metrics=metrics, seeds=seeds)


def _constant_outcomes(report: Report) -> list[str]:
    """Return warnings on comparisons between two arms that both have one value in all seeds."""
    arms_by_outcome: dict[str, list[str]] = {}
    for verdict in report.verdicts:
        cells = [report.cell(arm, verdict.metric) for arm in (verdict.arm, verdict.reference)]
        values = [[*dict(cell.by_seed).values()] if cell else [] for cell in cells]
        if all(len(each) >= MIN_VERDICT_SEEDS and len({*each}) == 1 for each in values):
            arms_by_outcome.setdefault(verdict.metric, []).append(verdict.arm)
    texts = {metric: ", ".join(arms) for metric, arms in arms_by_outcome.items()}
    return [CONSTANT_OUTCOME_WARNING.format(arms=arms, metric=metric) for metric, arms in texts.items()]


def _bounded_outcomes(report: Report) -> list[str]:
    """Return warnings on verdicts of no difference for outcomes that leave no room for a difference.

    All values are at an end of the possible range, or at the value that needs no learning.
    """
    margin = report.answer.margin if report.answer is not None else None
    arms_by_bound: dict[tuple[str, float, str], dict[str, None]] = {}
    for verdict in report.verdicts:
        pair, metric = (verdict.reference, verdict.arm), verdict.metric
        means = [cell.estimate.mean for arm in pair if (cell := report.cell(arm, metric))]
        if margin is None or verdict.kind != "no difference" or len(means) < 2:
            continue
        declared = report.quantity(metric)
        bounds = {
            AT_BOUND_CLAUSE.format(which="greatest"): declared.high,
            AT_BOUND_CLAUSE.format(which="least"): declared.low,
            AT_FLOOR_CLAUSE: report.floors.get(metric),
        }
        for bound_name, bound in bounds.items():
            if bound is not None and all(abs(mean - bound) < margin for mean in means):
                arms_by_bound.setdefault((metric, bound, bound_name), {}).update(dict.fromkeys(pair))
                break
    return [
        BOUNDED_OUTCOME_WARNING.format(
            arms=join_words([*arms]), margin=margin, bound=bound, metric=metric, what=bound_name
        )
        for (metric, bound, bound_name), arms in arms_by_bound.items()
    ]


def _chosen_from_fewer(report: Report) -> Iterator[str]:
    """Yield warnings on verdicts that favour the arm with fewer failed search trials."""
    tallies = {tally.arm: tally for tally in report.tallies}
    for verdict in report.verdicts:
        arms = [tallies[arm] for arm in (verdict.arm, verdict.reference) if arm in tallies]
        if not verdict.is_decided or len(arms) < 2:
            continue
        low_tally, high_tally = sorted(arms, key=_finished_share)
        is_close = _finished_share(low_tally) > LOW_TRIAL_SHARE * _finished_share(high_tally)
        if is_close or low_tally.arm == _favoured_arm(verdict):
            continue
        (num_finished, num_trials), (other_finished, num_other_trials) = map(
            count_search_trials, (low_tally, high_tally)
        )
        if num_finished >= other_finished:  # an arm that searches few fields or none
            continue
        is_all = other_finished == num_other_trials
        yield FEWER_TRIALS_WARNING.format(
            fewer=low_tally.arm,
            kept=num_finished,
            all=num_trials,
            other=high_tally.arm,
            theirs=f"all {other_finished}" if is_all else f"{other_finished} of {num_other_trials}",
            claim=_claim_text(verdict),
        )


def _favoured_arm(verdict: ArmVerdict) -> str | None:
    """Return the arm that a verdict finds better; None if it finds none."""
    return {"worse": verdict.reference, "better": verdict.arm}.get(verdict.kind or "")


def _equal_search_trials(report: Report) -> Iterator[str]:
    """Yield warnings on arms without an advantage whose search trials all had the same value."""
    objectives = " and ".join(report.objectives)
    for verdict in filter(lambda verdict: verdict.is_decided, report.verdicts):
        for arm in (verdict.arm, verdict.reference):
            if arm != _favoured_arm(verdict) and arm in report.unranked:
                trials, claim = amount(report.unranked[arm], "trial"), _claim_text(verdict)
                yield EQUAL_SEARCH_TRIALS_WARNING.format(
                    trials=trials, arm=arm, objectives=objectives, claim=claim
                )


def _claim_text(verdict: ArmVerdict) -> str:
    if verdict.kind == "no difference":
        return f"no difference of {verdict.arm} to {verdict.reference} was found in {verdict.metric}"
    return f"{verdict.arm} is {verdict.kind} than {verdict.reference} in {verdict.metric}"


def _finished_share(tally: ArmTally) -> float:
    num_finished, num_ended = count_search_trials(tally)
    return num_finished / num_ended if num_ended else 1.0


def count_search_trials(tally: ArmTally) -> tuple[int, int]:
    """Return how many search trials the arm's settings were chosen from, and how many have ended."""
    counts = {kind: n for kind, n in tally.outcomes.get(SEARCH, {}).items() if kind not in UNRUN_OUTCOMES}
    num_ended = sum(counts.values())
    return num_ended - sum(n for kind, n in counts.items() if kind in FAILED_KINDS), num_ended


def _higher_costs(report: Report) -> list[str]:
    """Return warnings on arms that are better as trained, but not at the same cost as their reference.

    If several costs show this, only the first is reported.
    """
    better_results = {
        (verdict.arm, verdict.metric) for verdict in report.verdicts if verdict.kind == "better"
    }
    texts: dict[tuple[str, str], str] = {}
    for row in report.equal_costs:
        if row.equal is None or not row.path or (row.arm, row.outcome) not in better_results:
            continue
        ends = [end for end in (row.equal.low, row.equal.high) if end is not None] or [row.equal.mean]
        is_ahead_at_equal_cost = all(end * row.as_trained.mean > 0 for end in ends)
        if row.own_cost > row.cost_of_reference and not is_ahead_at_equal_cost:
            text = HIGHER_COST_WARNING.format(
                arm=row.arm,
                reference=row.reference,
                metric=row.outcome,
                own=format_amount(row.own_cost),
                theirs=format_amount(row.cost_of_reference),
                cost=row.cost,
                path=row.path,
                difference=format_interval(row.equal, "+"),
            )
            texts.setdefault((row.arm, row.outcome), text)
    return list(texts.values())


def _unfinished_trials(report: Report) -> str:
    if not report.left:
        return ""
    have = "has" if report.left == 1 else "have"
    message = f"{amount(report.left, 'trial')} {have} not ended: all numbers are of the ended trials."
    return f"{message} No further trial starts: {report.spent}." if report.spent else message


def _unmeasured_splits(report: Report) -> str:
    if not report.unread:
        return ""
    return (
        f"The last reports of confirm trials lack metrics of {', '.join(report.unread)}. They "
        "must contain <split>/<quantity> for every split in trial.splits, e.g. "
        f"{report.unread[0]}/accuracy. For a metric with another name, write "
        f"answer: {{metric: test_accuracy, split: {report.unread[0]}}}."
    )
