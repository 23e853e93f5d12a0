"""Main effects and interactions where every combination of components is an arm; exploratory.

The contrasts of `statistics.contrasts`, seed by seed, with interval and p by the procedure of
`statistics.paired` over a family of their own: all terms in all primary outcomes and cells. They are
made of the very arms that the verdicts are about, and the seeds were not chosen for them. A seed that one arm
lacks has no value in any term, for every term needs all arms; then there is no p. Nor is there where all
seeds have one value, or what rounding makes of it: they show no spread for chance to be judged by.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.untested import why_untested
from orchestrator.report.results.readings import Readings, by_seed_alone, difference_of
from orchestrator.report.results.statistics import Estimate, of_paired
from orchestrator.statistics.contrasts import Term, contrasts, terms
from orchestrator.statistics.paired import Key, Paired, compare, deviation, resolution


@dataclass(frozen=True, slots=True)
class FactorialEffect:
    """A main effect (one component) or an interaction (several) in one primary outcome."""

    components: Term
    metric: str
    cell: str
    """Name of the baseline of the cell of a grid that it is of, which has all components."""
    estimate: Estimate | None
    """With the component minus without it, interval of the family; None where no seed has all arms."""
    p: float | None
    """Corrected for the family; None where a seed of some arm is lacking, and where all seeds are alike."""
    by_seed: tuple[tuple[int, float], ...]
    """Value by seed, or by repeat where searches are repeated."""
    family: int
    """Terms times cells times primary outcomes."""
    level: float
    lacking: tuple[str, ...] = ()
    """What keeps a seed from having a value: `seed 103: minus-gate diverged`. Also why nothing is tested."""
    alike: bool = False
    """Whether several seeds have one and the same value: the interval is then what rounding or the spread of
    other terms leaves open, and tells nothing of chance."""


def factorial_effects(
    plan: Plan, readings: Readings, answer: AnswerPlan, open_seeds: Mapping[str, set[int]]
) -> Iterator[FactorialEffect]:
    """Every term in every primary outcome and cell; nothing where the plan combines no components.

    `open_seeds`: by arm the seeds that have still to run.
    """
    if not plan.factors or plan.confirm is None:
        return
    cells = dict.fromkeys(arm.reference for arm in plan.arms if arm.without)
    wanted = [
        (term, metric, cell) for metric in answer.outcomes for cell in cells for term in terms(plan.factors)
    ]
    lacking = {cell: _lacking(plan, cell, readings, open_seeds) for cell in cells}
    found = {
        (metric, cell): contrasts(_values(plan, cell, metric, readings), plan.factors)
        for metric in answer.outcomes
        for cell in cells
    }
    compared: dict[Key, Paired] = {}
    for arms in plan.contexts:  # whose variances differ
        names = [arm.name for arm in arms]
        compared |= compare(
            {
                (f"{cell}/{'/'.join(term)}", metric): found[metric, cell].get(term, {})
                for term, metric, cell in wanted
                if cell in names
            },
            family=len(wanted),
            level=answer.level,
            resolutions={metric: _resolution(plan, names, metric, readings) for metric in answer.outcomes},
        )
    for term, metric, cell in wanted:
        made = compared.get((f"{cell}/{'/'.join(term)}", metric))
        alike = made is not None and made.n > 1 and not deviation([*made.by_seed.values()])
        pairs = [(arm, cell) for arm in _arms(plan, cell).values() if arm != cell]
        untested = why_untested(plan, pairs, metric, readings)
        missing = lacking[cell] + ((untested.text,) if untested else ())
        yield FactorialEffect(
            components=term,
            metric=metric,
            cell=cell,
            estimate=of_paired(made, _span(plan, cell, metric, readings)) if made else None,
            p=made.p if made and not alike and not missing else None,
            by_seed=tuple(made.by_seed.items()) if made else (),
            family=len(wanted),
            level=answer.level,
            lacking=missing,
            alike=alike,
        )


def _arms(plan: Plan, cell: str) -> dict[frozenset[str], str]:
    """By what they take away, the arms of a cell that are combinations of the components."""
    made = {frozenset(arm.without): arm.name for arm in plan.arms if arm.without and arm.reference == cell}
    return {frozenset(): cell, **made}


def _values(plan: Plan, cell: str, metric: str, readings: Readings) -> dict[frozenset[str], dict[int, float]]:
    arms = _arms(plan, cell)
    return {
        away: readings.by_unit(by_seed_alone(readings.by_seed(arm, metric))) for away, arm in arms.items()
    }


def _span(plan: Plan, cell: str, metric: str, readings: Readings) -> tuple[float, float]:
    """Between what the terms lie: each is the mean over some arms of the cell less that over the others."""
    span = readings.span(metric, *_arms(plan, cell).values())
    return difference_of(span, span)


def _resolution(plan: Plan, arms: Sequence[str], metric: str, readings: Readings) -> float:
    """Return the resolution of `arms` for `compare`, which expects r / sqrt(6), the rounding of a difference.

    A term of k components is 2^k values over 2^(k - 1), so that rounding gives it r / sqrt(3 * 2^k).
    """
    return resolution(readings.all_values(metric, arms)) * 2 ** ((1 - len(plan.factors)) / 2)


def _lacking(
    plan: Plan, cell: str, readings: Readings, open_seeds: Mapping[str, set[int]]
) -> tuple[str, ...]:
    """Seeds that some arm of the cell did not finish, and why."""
    assert plan.confirm is not None
    arms = list(_arms(plan, cell).values())
    failed = {arm: readings.failed_seeds(arm) for arm in arms}
    finished = {arm: readings.finished_seeds(arm) for arm in arms}

    def why(arm: str, seed: int) -> str:
        if seed in failed[arm]:
            return f"{arm} {failed[arm][seed]}"
        if seed in open_seeds.get(arm, ()):
            return f"{arm} not run yet"
        return "" if seed in finished[arm] else f"{arm} not run"

    reasons: Sequence[tuple[int, list[str]]] = [
        (seed, [words for arm in arms if (words := why(arm, seed))]) for seed in plan.confirm.seeds
    ]
    return tuple(f"seed {seed}: {', '.join(words)}" for seed, words in reasons if words)
