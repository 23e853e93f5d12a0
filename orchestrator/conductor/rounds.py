"""Seeds of confirmation in rounds: after each, arms whose verdict is certain are done. Reads no clock.

A round is over when every confirm trial of its seeds has ended, in every arm that is not decided; only then
is there a look, at the seeds of the rounds so far. What is decided so does not depend on the order in which
trials ended, nor on the driver, and whoever has the records finds the same again. Arms that others are
compared with wait for no round: they run all seeds.
"""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.plan.answer import better
from orchestrator.plan.types import Plan
from orchestrator.statistics.sequential import EarlyVerdict, Question, Values, look, looks
from orchestrator.trials import OutcomeKind, is_usable
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
        seeds = plan.confirm.seeds if plan.confirm is not None else ()
        self._compared_with = {arm.name: arm.reference for arm in plan.arms if arm.reference}
        self._references = frozenset(self._compared_with.values())
        looking = plan.confirm is not None and plan.confirm.stop == "decided" and bool(self._references)
        self._seeds = seeds
        self._left = [*looks(len(seeds))] if looking else []
        self._arms = tuple(arm.name for arm in plan.arms)
        self._questions = tuple(_questions(plan)) if looking else ()
        self.decided: dict[str, EarlyVerdict] = {}

    def may_run(self, arm: str, seed: int) -> bool:
        """Whether no look is to be waited for."""
        if arm in self._references or not self._left:
            return True
        return seed in self._seeds[: self._left[0]]

    def advance(self, confirmed: Confirmed) -> dict[str, EarlyVerdict] | None:
        """The arms that the next look decides; None while its round is not over, and after the last look."""
        if not self._left:
            return None
        first = self._seeds[: self._left[0]]
        waited_for = [arm for arm in self._arms if arm not in self.decided]
        if any((arm, seed) not in confirmed for arm in waited_for for seed in first):
            return None
        self._left.pop(0)
        undecided = [
            arm
            for arm in self._compared_with
            if arm not in self.decided
            and arm not in self._references
            and not self._says_nothing(arm, first, confirmed)
        ]
        new: dict[str, EarlyVerdict] = {}
        for question in self._questions:
            values, failed = _values(question, self._used(confirmed))
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
        last = {arm: self._seeds[: each.seeds] for arm, each in self.decided.items()}
        return {
            (arm, seed): metrics
            for (arm, seed), metrics in confirmed.items()
            if seed in last.get(arm, self._seeds)
        }

    def reason(self, decision: EarlyVerdict) -> str:
        """Why an arm needs no more seeds, for people."""
        said = "; ".join(f"{name}: {each.text}" for name, each in decision.verdicts.items())
        seeds = amount(len(self._seeds), "seed")
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
        if references := {arm.name: arm.reference for arm in arms if arm.reference}:
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
        len(plan.confirm.seeds),
    )


def _values(question: Question, confirmed: Confirmed) -> tuple[Values, Mapping[str, set[int]]]:
    """Return values by arm and outcome, and the seeds of each arm that failed or lack a primary outcome."""
    arms = {*question.references, *question.references.values()}
    values: dict[tuple[str, str], dict[int, float]] = {}
    failed: dict[str, set[int]] = {}
    for (arm, seed), metrics in confirmed.items():
        if arm not in arms:
            continue
        if metrics is None or any(name not in metrics for name in question.outcomes):
            failed.setdefault(arm, set()).add(seed)
        for name in question.outcomes:
            if metrics is not None and name in metrics:
                values.setdefault((arm, name), {})[seed] = metrics[name]
    return values, failed
