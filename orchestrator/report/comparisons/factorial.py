"""Estimate main effects and interactions if every combination of components is an arm; exploratory.

The contrasts of `statistics.contrasts` are computed seed by seed. Intervals and p-values come from the
procedure of `statistics.paired` over a separate family: all terms in all primary outcomes and cells. They use
the same arms and seeds as the verdicts. Every term needs all arms, so a seed that an arm lacks has no value
in any term, and then there is no p-value. There is no p-value either if all seeds have the same value up to
rounding, because then there is no spread.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.untested import find_untested_reason
from orchestrator.report.results.seed_results import SeedResults, difference_range, mean_by_seed
from orchestrator.report.results.statistics import Estimate, paired_estimate
from orchestrator.statistics.contrasts import Term, contrasts, terms
from orchestrator.statistics.paired import Key, PairedEstimate, compare, deviation, resolution


@dataclass(frozen=True, slots=True)
class FactorialEffect:
    """A main effect (one component) or an interaction (several) in one primary outcome."""

    components: Term
    metric: str
    cell: str
    """Cell of the grid, by the name of its baseline, which has all components."""
    estimate: Estimate | None
    """With the component minus without it, interval of the family; None if no seed has all arms."""
    p: float | None
    """Corrected for the family; None if an arm lacks a seed, or if all seeds have the same value."""
    by_seed: tuple[tuple[int, float], ...]
    """Value by seed, or by repeat if searches are repeated."""
    family: int
    """Terms times cells times primary outcomes."""
    level: float
    lacking: tuple[str, ...] = ()
    """Reasons for which seeds have no value, e.g. `seed 103: minus-gate diverged`, or nothing is tested."""
    alike: bool = False
    """Whether several seeds have the same value.

    If so, the interval results only from rounding or the spread of other terms, and is no evidence about
    chance.
    """


def factorial_effects(
    plan: Plan, results: SeedResults, answer: AnswerPlan, open_seeds: Mapping[str, set[int]]
) -> Iterator[FactorialEffect]:
    """Yield every term in every primary outcome and cell; nothing if the plan combines no components.

    Args:
        plan: Plan of the sweep.
        results: Results of the confirm trials.
        answer: Primary outcomes and level.
        open_seeds: Seeds by arm that have not ended.
    """
    if not plan.factors or plan.confirm is None:
        return
    cells = dict.fromkeys(arm.reference for arm in plan.arms if arm.without)
    wanted_effects = [
        (term, metric, cell) for metric in answer.outcomes for cell in cells for term in terms(plan.factors)
    ]
    missing_seeds = {cell: _missing_seeds(plan, cell, results, open_seeds) for cell in cells}
    values_by_term = {
        (metric, cell): contrasts(_values_by_removed(plan, cell, metric, results), plan.factors)
        for metric in answer.outcomes
        for cell in cells
    }
    estimates: dict[Key, PairedEstimate] = {}
    for arms in plan.contexts:  # variances differ between contexts
        names = [arm.name for arm in arms]
        estimates |= compare(
            {
                (f"{cell}/{'/'.join(term)}", metric): values_by_term[metric, cell].get(term, {})
                for term, metric, cell in wanted_effects
                if cell in names
            },
            family=len(wanted_effects),
            level=answer.level,
            resolutions={metric: _resolution(plan, names, metric, results) for metric in answer.outcomes},
        )
    for term, metric, cell in wanted_effects:
        effect_estimate = estimates.get((f"{cell}/{'/'.join(term)}", metric))
        is_constant = (
            effect_estimate is not None
            and effect_estimate.n > 1
            and not deviation([*effect_estimate.by_seed.values()])
        )
        pairs = [(arm, cell) for arm in _arms_by_removed(plan, cell).values() if arm != cell]
        untested = find_untested_reason(plan, pairs, metric, results)
        missing = missing_seeds[cell] + ((untested.text,) if untested else ())
        yield FactorialEffect(
            components=term,
            metric=metric,
            cell=cell,
            estimate=paired_estimate(effect_estimate, _term_range(plan, cell, metric, results))
            if effect_estimate
            else None,
            p=effect_estimate.p if effect_estimate and not is_constant and not missing else None,
            by_seed=tuple(effect_estimate.by_seed.items()) if effect_estimate else (),
            family=len(wanted_effects),
            level=answer.level,
            lacking=missing,
            alike=is_constant,
        )


def _arms_by_removed(plan: Plan, cell: str) -> dict[frozenset[str], str]:
    """Return the arms of a cell that combine components, by the set of removed components."""
    arm_by_removed = {
        frozenset(arm.without): arm.name for arm in plan.arms if arm.without and arm.reference == cell
    }
    return {frozenset(): cell, **arm_by_removed}


def _values_by_removed(
    plan: Plan, cell: str, metric: str, results: SeedResults
) -> dict[frozenset[str], dict[int, float]]:
    arms = _arms_by_removed(plan, cell)
    return {
        removed: results.by_unit(mean_by_seed(results.by_seed(arm, metric))) for removed, arm in arms.items()
    }


def _term_range(plan: Plan, cell: str, metric: str, results: SeedResults) -> tuple[float, float]:
    """Return the range of a term: a mean over some arms of the cell minus that over the others."""
    span = results.span(metric, *_arms_by_removed(plan, cell).values())
    return difference_range(span, span)


def _resolution(plan: Plan, arms: Sequence[str], metric: str, results: SeedResults) -> float:
    """Return the resolution of `arms` for `compare`, which expects r / sqrt(6), the rounding of a difference.

    A term of k components is 2^k values over 2^(k - 1), so its rounding is r / sqrt(3 * 2^k).
    """
    return resolution(results.all_values(metric, arms)) * 2 ** ((1 - len(plan.factors)) / 2)


def _missing_seeds(
    plan: Plan, cell: str, results: SeedResults, open_seeds: Mapping[str, set[int]]
) -> tuple[str, ...]:
    """Return the seeds that some arm of the cell did not finish, with the reason."""
    assert plan.confirm is not None
    arms = list(_arms_by_removed(plan, cell).values())
    failed_seeds = {arm: results.failed_seeds(arm) for arm in arms}
    finished_seeds = {arm: results.finished_seeds(arm) for arm in arms}

    def missing_reason(arm: str, seed: int) -> str:
        if seed in failed_seeds[arm]:
            return f"{arm} {failed_seeds[arm][seed]}"
        if seed in open_seeds.get(arm, ()):
            return f"{arm} not run yet"
        return "" if seed in finished_seeds[arm] else f"{arm} not run"

    reasons: Sequence[tuple[int, list[str]]] = [
        (seed, [words for arm in arms if (words := missing_reason(arm, seed))]) for seed in plan.confirm.seeds
    ]
    return tuple(f"seed {seed}: {', '.join(words)}" for seed, words in reasons if words)
