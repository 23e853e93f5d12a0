"""Run confirmation in rounds of seeds; after each round, arms with a certain verdict are decided.

A round is over when every confirm trial of its seeds has ended in every undecided arm. Only then does a look
compare the arms at the seeds of all rounds so far. Decisions therefore do not depend on the driver or on the
order in which trials end, and can be recomputed from the records. Reference arms and controls run all seeds
without waiting for rounds. If searches are repeated, rounds consist of repeats instead of seeds, and a repeat
begins with its search. The decisions do not depend on a clock.
"""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.plan.answer import better_direction
from orchestrator.plan.types import Plan
from orchestrator.statistics.paired import by_unit
from orchestrator.statistics.sequential import (
    EarlyVerdict,
    LookSetup,
    ValuesByArmAndOutcome,
    decide_arms,
    look_sizes,
)
from orchestrator.trials import OutcomeKind, PlannedTrial, is_usable
from search_spaces.wording import amount
from trainables.metrics import look_up

ConfirmedMetrics = Mapping[tuple[str, int], Mapping[str, float] | None]
"""Last metrics of each ended confirm trial by arm and seed; None for a failed trial."""
TRAIN_PREFIX = "train/"


def verdicts_at_looks(plan: Plan, confirmations: ConfirmedMetrics) -> dict[str, EarlyVerdict]:
    """Return the early verdicts of arms that needed no more seeds, by arm; empty for a plan without looks."""
    return Rounds.from_confirmations(plan, confirmations).decided


class Rounds:
    """Seeds that may run, and arms that are decided."""

    def __init__(self, plan: Plan) -> None:
        compared_arms = [arm for arm in plan.arms if arm.reference]
        self._reference_by_arm = {arm.name: arm.reference for arm in compared_arms if not arm.control}
        self._references = frozenset(self._reference_by_arm.values())
        controls = {arm.name for arm in compared_arms if arm.control}
        self._unlimited_arms = self._references | controls
        has_looks = plan.confirm is not None and plan.confirm.stop == "decided" and bool(self._references)
        self._unit_by_seed = plan.units
        self._units = tuple(dict.fromkeys(self._unit_by_seed.values()))
        self._unit = plan.unit
        self._looks_left = [*look_sizes(len(self._units))] if has_looks else []
        self._arms = tuple(arm.name for arm in plan.arms)
        self._questions = tuple(_questions(plan)) if has_looks else ()
        self.decided: dict[str, EarlyVerdict] = {}

    @classmethod
    def from_confirmations(cls, plan: Plan, confirmations: ConfirmedMetrics) -> "Rounds":
        """Return the rounds of `plan` after all looks that `confirmations` permit."""
        rounds = cls(plan)
        while rounds.advance(confirmations) is not None:
            pass
        return rounds

    def may_run(self, planned_trial: PlannedTrial) -> bool:
        """Return whether the trial may run before any further look."""
        searches_once = self._unit == "seed" and planned_trial.phase == "search"
        if planned_trial.arm in self._unlimited_arms or searches_once or not self._looks_left:
            return True
        unit = planned_trial.repeat if self._unit == "repeat" else planned_trial.seed
        return unit in self._units[: self._looks_left[0]]

    def _seeds(self, units: int) -> list[int]:
        """Return the seeds of the first `units` observations."""
        first_units = self._units[:units]
        return [seed for seed, unit in self._unit_by_seed.items() if unit in first_units]

    def advance(self, confirmations: ConfirmedMetrics) -> dict[str, EarlyVerdict] | None:
        """Return the arms that the next look decides.

        None while the round of the next look is not over, and after the last look.
        """
        if not self._looks_left:
            return None
        round_units, seeds = self._units[: self._looks_left[0]], self._seeds(self._looks_left[0])
        undecided_arms = [arm for arm in self._arms if arm not in self.decided]
        if any((arm, seed) not in confirmations for arm in undecided_arms for seed in seeds):
            return None
        self._looks_left.pop(0)
        compared_arms = [arm for arm in self._reference_by_arm if arm not in self._references]
        decidable_arms = [
            arm
            for arm in compared_arms
            if arm not in self.decided and not self._is_undecidable(arm, seeds, confirmations)
        ]
        new_verdicts: dict[str, EarlyVerdict] = {}
        for question in self._questions:
            values, failed_seeds = _values_and_failures(
                question, self._drop_surplus_seeds(confirmations), self._unit_by_seed
            )
            own_arms = [arm for arm in decidable_arms if arm in question.references]
            new_verdicts |= decide_arms(question, values, round_units, own_arms, failed_seeds)
        self.decided |= new_verdicts
        if all(arm in self.decided for arm in compared_arms):
            self._looks_left.clear()
        return new_verdicts

    def _is_undecidable(self, arm: str, seeds: Sequence[int], confirmations: ConfirmedMetrics) -> bool:
        """Return whether no look can decide, because all seeds agree both in the arm and in its reference."""
        for name in (arm, self._reference_by_arm[arm]):
            metrics = (confirmations.get((name, seed)) for seed in seeds)
            if not are_seeds_equal([values for values in metrics if values is not None]):
                return False
        return True

    def _drop_surplus_seeds(self, confirmations: ConfirmedMetrics) -> ConfirmedMetrics:
        """Return `confirmations` without the seeds that an arm ran after its verdict."""
        needed_seeds = {arm: self._seeds(verdict.num_seeds) for arm, verdict in self.decided.items()}
        items = confirmations.items()
        return {
            key: metrics for key, metrics in items if key[1] in needed_seeds.get(key[0], self._unit_by_seed)
        }

    def stop_reason(self, decision: EarlyVerdict) -> str:
        """Return the displayed reason for which an arm needs no more seeds."""
        texts = "; ".join(f"{name}: {verdict.text}" for name, verdict in decision.verdicts.items())
        seeds = amount(len(self._units), self._unit)
        return f"{decision.arm} ended at the look after {decision.num_seeds} of {seeds} ({texts})"


def are_seeds_equal(seeds: Sequence[Mapping[str, float]]) -> bool:
    """Return whether two or more seeds measured equal values in all metrics except training metrics.

    Such seeds contain no information about random variation. All metrics are compared because a single metric
    can be equal in all seeds by chance, for example if every answer is correct.
    """
    values_of_seeds = [
        {name: value for name, value in metrics.items() if not name.startswith(TRAIN_PREFIX)}
        for metrics in seeds
    ]
    return len(values_of_seeds) > 1 and all(values == values_of_seeds[0] for values in values_of_seeds)


def metrics_for_look(kind: OutcomeKind, metrics: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """Return the metrics that an ended confirm trial contributes to a look; None if the trial failed."""
    if kind is not OutcomeKind.FINISHED or metrics is None:
        return None
    return {name: value for name, value in metrics.items() if is_usable(value)}


def _questions(plan: Plan) -> Iterator[LookSetup]:
    """Yield one question for each context, since variances and resolutions differ between contexts."""
    answer, metrics = plan.answer, plan.metrics
    assert answer is not None, "a plan with looks must have primary outcomes"
    goals = {
        name: better_direction(look_up(metrics, name), name, plan.objectives, answer)
        for name in answer.outcomes
    }
    rule = (answer.outcomes, goals, answer.margin, answer.level, answer.family)
    for arms in plan.contexts:
        if references := {arm.name: arm.reference for arm in arms if arm.reference and not arm.control}:
            yield LookSetup(references, *rule, plan.num_units, plan.unit)


def _values_and_failures(
    question: LookSetup, confirmations: ConfirmedMetrics, units: Mapping[int, int]
) -> tuple[ValuesByArmAndOutcome, Mapping[str, set[int]]]:
    """Return values and failures of the arms of a question.

    Returns:
        Values by arm and outcome, then by unit; and for each arm the units in which a trial failed or lacks a
        primary outcome.
    """
    arms = {*question.references, *question.references.values()}
    values: dict[tuple[str, str], dict[int, float]] = {}
    failed_seeds: dict[str, set[int]] = {}
    for (arm, seed), metrics in confirmations.items():
        if arm not in arms:
            continue
        if metrics is None or any(name not in metrics for name in question.outcomes):
            failed_seeds.setdefault(arm, set()).add(units[seed])
        for name in question.outcomes:
            if metrics is not None and name in metrics:
                values.setdefault((arm, name), {})[seed] = metrics[name]
    return {key: by_unit(by_seed, units) for key, by_seed in values.items()}, failed_seeds
