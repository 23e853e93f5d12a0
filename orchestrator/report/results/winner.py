"""Select the best configuration of a sweep, by confirm trials or else by the search; not a test."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from orchestrator.errors import InputError
from orchestrator.plan.answer import better_direction
from orchestrator.plan.types import Plan
from orchestrator.report.results.searches import finished_trials, objective_values, rank_records
from orchestrator.report.results.types import Report
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import OutcomeKind, Record, numbered
from search_spaces.wording import amount, hint

ParamsKey = tuple[str, int]
"""Arm, and rank of its params."""


@dataclass(frozen=True, slots=True)
class Winner:
    """One arm with one set of params, and the values by which it was chosen."""

    arm: str
    phase: Literal["confirm", "search"]
    metric: str
    goal: Literal["max", "min"] | None
    """None if it is undeclared which values are good, and there was only one candidate."""
    value: float
    """Mean over seeds of confirm trials, or the value of one search trial."""
    records: tuple[Record, ...]
    """The finished confirm trials, by seed, or the search trial."""
    num_candidates: int
    """Number of confirm seeds of the plan, or of finished search trials of the arm."""
    num_arms: int
    """Number of arms it was chosen from, itself included."""
    equal_arms: tuple[str, ...] = ()
    """Other arms with an equal value; the first in the spec was chosen."""
    better_arms: tuple[str, ...] = ()
    """Arms with a better value that were not chosen, because seeds failed or lack the outcome."""
    num_configs: int = 1
    """Number of configurations it was chosen from, itself included.

    Greater than the number of arms if several params of an arm are confirmed.
    """
    repeat: int | None = None
    """`confirm`: the repeat that chose these settings, whose search found the best value.

    Only if searches are repeated. The mean is over all repeats, whose settings differ.
    """
    seeds: tuple[int, ...] = ()
    """Planned confirm seeds of `repeat`, including failed ones; empty if searches are not repeated."""
    reports: int = 1
    """Number of reports of the search trial, of which the best counts; 1 unless the scope is `best`."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the settings that all of its trials were trained with, params included."""
        return self.records[0].settings

    @property
    def measured_metrics(self) -> frozenset[str]:
        """Return the metrics that all of its trials measured."""
        return frozenset.intersection(
            *(frozenset(record.last.metrics) if record.last else frozenset() for record in self.records)
        )

    def comments(self) -> Iterator[str]:
        """Yield the reasons for the choice, one sentence each."""
        superlative = {"max": "the highest", "min": "the lowest", None: ""}[self.goal]
        arms = amount(self.num_arms, "arm")
        count_text = f"{self.num_configs} configs of {arms}" if self.num_configs > self.num_arms else arms
        superlative = f", {superlative} of {count_text}" if max(self.num_arms, self.num_configs) > 1 else ""
        if superlative and self.better_arms:
            superlative += f" except {' and '.join(self.better_arms)}, which had failed seeds"
        if superlative and self.equal_arms:
            superlative += f", equal to {' and '.join(self.equal_arms)}: the first in the spec was chosen"
        if self.phase == "confirm":
            seeds = f"{len(self.records)} of {amount(self.num_candidates, 'seed')}"
            sample_text = seeds if self.repeat is None else "the repeats of its search"
            mean = f"mean {self.metric} {self.value:.6g} over {sample_text}"
            yield f"{self.arm}, by its confirm trials: {mean}{superlative}."
            if self.repeat is not None:
                yield (
                    f"Its repeats chose different settings. These are the settings of repeat {self.repeat}, "
                    f"whose search found the best value; {seeds} of it finished."
                )
            if superlative:
                yield "Choosing the best mean is not a test: see the verdicts of the report."
            return
        number = numbered(self.records[0].repeat, self.records[0].number)
        trial = f"search trial {number}, the best of {self.num_candidates} of the arm that finished"
        yield f"{self.arm}, by its search only: {self.metric} {self.value:.6g} in {trial}{superlative}."
        if self.reports > 1:
            yield (
                f"The value is the best of {self.reports} reports of the trial, so it is optimistic: "
                "training ends with the last report."
            )
        yield (
            "It was chosen by this value, on the split that the search used: expect a worse value from "
            "another run of the same settings."
        )


def find_winner(
    plan: Plan, records: Sequence[Record], report: Report, arm: str | None = None, context: str | None = None
) -> Winner:
    """Return the best configuration, of `arm` if given, else of `context`.

    Candidates are ranked by the mean of the first primary outcome over confirm seeds. Arms without seeds that
    failed or lack a primary outcome precede others; within an arm, params without failed seeds precede
    others. If no confirm trial has measured the outcome, the first objective of the search decides.

    Raises InputError for an unknown arm or context, if several contexts exist and none is given, and if there
    is nothing to choose by.
    """
    rivals = _rivals(report, arm, context)
    finished_records = [
        record for record in records if record.outcome is OutcomeKind.FINISHED and record.arm in rivals
    ]
    failed_params = frozenset(
        (record.arm, record.rank or 0)
        for record in records
        if record.phase == "confirm" and record.outcome is not None and record.outcome.is_failure
    )
    winner = _best_confirmed(plan, finished_records, report, failed_params) or _best_searched(
        plan, finished_records
    )
    if winner is None:
        arm_text = f"of {arm} " if arm is not None else ""
        raise InputError(
            f"no trial {arm_text}has finished with a measurement in {plan.name}, so there is no best one; "
            f"`haltsweep status {plan.name}` shows the progress"
        )
    return winner


def _rivals(report: Report, arm: str | None, context: str | None) -> tuple[str, ...]:
    """Return the arms among which to choose, all of one context."""
    if arm is not None and arm not in report.arms:
        raise InputError(f"no arm named {arm!r}. {hint(arm, report.arms)}")
    arms = {report_context.name: report_context.arms for report_context in report.contexts}
    if context is not None and context not in arms:
        raise InputError(f"no context named {context!r}. {hint(context, arms)}")
    if context is None and arm is None and len(arms) > 1:
        raise InputError(
            f"{report.sweep} has several contexts, so choose the best in one of them: give --context "
            f"with one of {', '.join(arms)}, or --arm"
        )
    controls = {verdict.arm for verdict in report.controls}
    candidate_arms = arms[context] if context is not None else report.arms
    rivals = tuple(rival for rival in candidate_arms if rival not in controls or rival == arm)
    if arm is not None and arm not in rivals:
        raise InputError(f"{arm} is not in the context {context}: omit --context or --arm")
    return rivals if arm is None else (arm,)


def _best_confirmed(
    plan: Plan, records: Sequence[Record], report: Report, failed_params: Collection[ParamsKey]
) -> Winner | None:
    if plan.confirm is None or not report.outcomes:
        return None
    metric = report.outcomes[0]
    groups: dict[ParamsKey, list[Record]] = defaultdict(list)
    for record in records:
        if record.phase == "confirm" and record.last is not None and metric in record.last.metrics:
            groups[record.arm, record.rank or 0].append(record)
    if not groups:
        return None
    goal = better_direction(report.quantity(metric), metric, plan.objectives, report.answer)
    if goal is None and len(groups) > 1:
        raise InputError(
            f"{metric} has no declared direction, so the best of {len(groups)} configurations is unknown; "
            "write answer.goal in the spec, or declare `better` of the metric in the training code"
        )
    failed_arms = {tally.arm for tally in report.tallies if tally.failures}
    means = {key: _mean_of_metric(of_params, metric) for key, of_params in groups.items()}
    sign = -1.0 if goal == "min" else 1.0
    ranks = {
        key: (key[0] not in failed_arms, key not in failed_params, sign * mean) for key, mean in means.items()
    }
    best = max(groups, key=lambda key: ranks[key])
    rivals = [key for key in groups if key[0] != best[0]]
    winner = Winner(
        best[0],
        "confirm",
        metric,
        goal,
        means[best],
        tuple(sorted(groups[best], key=lambda record: record.seed)),
        num_candidates=len(plan.confirm.seeds),
        num_arms=len({arm for arm, _ in groups}),
        equal_arms=tuple(dict.fromkeys(key[0] for key in rivals if ranks[key] == ranks[best])),
        better_arms=tuple(dict.fromkeys(key[0] for key in rivals if ranks[key][-1] > ranks[best][-1])),
        num_configs=len(groups),
    )
    if plan.search is None or plan.repeats == 1:
        return winner
    repeat = _best_repeat(plan, records, best[0], {record.repeat for record in winner.records})
    chosen, seeds = (
        tuple(record for record in winner.records if record.repeat == repeat),
        plan.unit_seeds[repeat],
    )
    return replace(winner, records=chosen, num_candidates=len(seeds), repeat=repeat, seeds=seeds)


def _best_repeat(plan: Plan, records: Sequence[Record], arm: str, repeats: Collection[int]) -> int:
    """Return the repeat, among `repeats` of an arm, whose search found the best value."""
    trials = [trial for trial in finished_trials(plan, records)[arm] if trial.repeat in repeats]
    return next((trial.repeat for trial in rank_records(plan, trials)), min(repeats))


def _mean_of_metric(records: Sequence[Record], metric: str) -> float:
    return fmean(record.last.metrics[metric] for record in records if record.last is not None)


def _best_searched(plan: Plan, records: Sequence[Record]) -> Winner | None:
    if plan.search is None:
        return None
    objective = plan.search.objectives[0]
    searches = finished_trials(plan, records)
    bests = [rank_records(plan, searches[arm.name])[0] for arm in plan.arms if searches[arm.name]]
    if not bests:
        return None
    values = {trial.arm: objective_values(plan, trial)[0] for trial in bests}
    best = (max if objective.goal == "max" else min)(bests, key=lambda trial: values[trial.arm])
    return Winner(
        best.arm,
        "search",
        counted_name(objective),
        objective.goal,
        values[best.arm],
        (best,),
        len(searches[best.arm]),
        len(bests),
        equal_arms=tuple(
            arm for arm, value in values.items() if value == values[best.arm] and arm != best.arm
        ),
        reports=best.reports if objective.scope == "best" else 1,
    )
