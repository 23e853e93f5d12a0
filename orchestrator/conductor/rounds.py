"""Seeds of confirmation in rounds: after each, arms whose verdict is certain are done. Reads no clock.

A round is over when every confirm trial of its seeds has ended, in every arm that is not decided; only then
is there a look, at the seeds of the rounds so far. What is decided so does not depend on the order in which
trials ended, nor on the driver, and whoever has the records finds the same again. Arms that others are
compared with, and controls, wait for no round: they run all seeds.

Where searches are repeated, rounds are of repeats instead of seeds: a repeat begins with its search.
"""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.plan.answer import better
from orchestrator.plan.types import Plan
from orchestrator.statistics.paired import by_unit
from orchestrator.statistics.sequential import EarlyVerdict, Question, Values, look, looks
from orchestrator.trials import OutcomeKind, PlannedTrial, is_usable
from search_spaces.wording import amount
from trainables.metrics import look_up

Confirmed = Mapping[tuple[str, int], Mapping[str, float] | None]
"""By arm and seed what a confirm trial measured last, of those that ended; None where it failed."""
TRAINING = "train/"


def decisions(plan: Plan, confirmed: Confirmed) -> dict[str, EarlyVerdict]:
    """Every arm that needed no more seeds, by name; empty for a plan without looks."""
    rounds = Rounds(plan)
    while rounds.advance(confirmed) is not None:
        pass
    return rounds.decided


class Rounds:
    """Which seeds may run, and which arms are decided."""

    def __init__(self, plan: Plan) -> None:
        compared = [arm for arm in plan.arms if arm.reference]
        self._compared_with = {arm.name: arm.reference for arm in compared if not arm.control}
        self._references = frozenset(self._compared_with.values())
        controls = {arm.name for arm in compared if arm.control}
        self._run_all = self._references | controls
        looking = plan.confirm is not None and plan.confirm.stop == "decided" and bool(self._references)
        self._unit_of = plan.units
        self._units = tuple(dict.fromkeys(self._unit_of.values()))
        self._unit = plan.unit
        self._left = [*looks(len(self._units))] if looking else []
        self._arms = tuple(arm.name for arm in plan.arms)
        self._questions = tuple(_questions(plan)) if looking else ()
        self.decided: dict[str, EarlyVerdict] = {}

    def may_run(self, planned: PlannedTrial) -> bool:
        """Whether no look is to be waited for."""
        searches_once = self._unit == "seed" and planned.phase == "search"
        if planned.arm in self._run_all or searches_once or not self._left:
            return True
        unit = planned.repeat if self._unit == "repeat" else planned.seed
        return unit in self._units[: self._left[0]]

    def _seeds(self, units: int) -> list[int]:
        """Return the seeds of the first `units` observations."""
        first = self._units[:units]
        return [seed for seed, unit in self._unit_of.items() if unit in first]

    def advance(self, confirmed: Confirmed) -> dict[str, EarlyVerdict] | None:
        """The arms that the next look decides; None while its round is not over, and after the last look."""
        if not self._left:
            return None
        first, seeds = self._units[: self._left[0]], self._seeds(self._left[0])
        waited_for = [arm for arm in self._arms if arm not in self.decided]
        if any((arm, seed) not in confirmed for arm in waited_for for seed in seeds):
            return None
        self._left.pop(0)
        undecided = [
            arm
            for arm in self._compared_with
            if arm not in self.decided
            and arm not in self._references
            and not self._says_nothing(arm, seeds, confirmed)
        ]
        new: dict[str, EarlyVerdict] = {}
        for question in self._questions:
            values, failed = _values(question, self._used(confirmed), self._unit_of)
            own = [arm for arm in undecided if arm in question.references]
            new |= look(question, values, first, own, failed)
        self.decided |= new
        if all(arm in self.decided or arm in self._references for arm in self._compared_with):
            self._left.clear()
        return new

    def _says_nothing(self, arm: str, seeds: Sequence[int], confirmed: Confirmed) -> bool:
        """Whether seeds change nothing in an arm and in what it is compared with: no look can decide it."""
        both = (arm, self._compared_with[arm])
        return all(
            one_run([found for seed in seeds if (found := confirmed.get((each, seed))) is not None])
            for each in both
        )

    def _used(self, confirmed: Confirmed) -> Confirmed:
        """Without seeds of decided arms that were not needed, should there be any."""
        last = {arm: self._seeds(each.seeds) for arm, each in self.decided.items()}
        return {
            (arm, seed): metrics
            for (arm, seed), metrics in confirmed.items()
            if seed in last.get(arm, self._unit_of)
        }

    def reason(self, decision: EarlyVerdict) -> str:
        """Why an arm needs no more seeds, for people."""
        said = "; ".join(f"{name}: {each.text}" for name, each in decision.verdicts.items())
        seeds = amount(len(self._units), self._unit)
        return f"{decision.arm} ended at the look after {decision.seeds} of {seeds} ({said})"


def one_run(seeds: Sequence[Mapping[str, float]]) -> bool:
    """Whether two or more seeds measured the very same in everything but training.

    They say nothing of chance then. One quantity alone may be alike in all seeds by itself, say all answers
    right.
    """
    found = [
        {name: value for name, value in metrics.items() if not name.startswith(TRAINING)} for metrics in seeds
    ]
    return len(found) > 1 and all(each == found[0] for each in found)


def measured(kind: OutcomeKind, metrics: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """What a confirm trial that ended so gives to a look; None where it failed."""
    if kind is not OutcomeKind.FINISHED or metrics is None:
        return None
    return {name: value for name, value in metrics.items() if is_usable(value)}


def _questions(plan: Plan) -> Iterator[Question]:
    """Return one question for each context, since variances and resolutions differ between contexts."""
    for arms in plan.contexts:
        if references := {arm.name: arm.reference for arm in arms if arm.reference and not arm.control}:
            yield _question(plan, references)


def _question(plan: Plan, references: Mapping[str, str]) -> Question:
    answer = plan.answer
    assert answer is not None, "a plan with looks must have primary outcomes"
    goals = {name: better(look_up(plan.metrics, name), name, plan.search) for name in answer.outcomes}
    assert plan.confirm is not None, "a plan with looks must confirm"
    return Question(
        references,
        answer.outcomes,
        goals,
        answer.margin,
        answer.level,
        answer.family,
        plan.num_units,
        plan.unit,
    )


def _values(
    question: Question, confirmed: Confirmed, units: Mapping[int, int]
) -> tuple[Values, Mapping[str, set[int]]]:
    """Return values by arm and outcome, and what of each arm failed or lacks a primary outcome, by unit."""
    arms = {*question.references, *question.references.values()}
    values: dict[tuple[str, str], dict[int, float]] = {}
    failed: dict[str, set[int]] = {}
    for (arm, seed), metrics in confirmed.items():
        if arm not in arms:
            continue
        if metrics is None or any(name not in metrics for name in question.outcomes):
            failed.setdefault(arm, set()).add(units[seed])
        for name in question.outcomes:
            if metrics is not None and name in metrics:
                values.setdefault((arm, name), {})[seed] = metrics[name]
    return {key: by_unit(by_seed, units) for key, by_seed in values.items()}, failed
