"""Estimate main effects and interactions if every combination of components is an arm; exploratory.

The contrasts of `statistics.contrasts` are computed seed by seed. Intervals and p-values come from the
procedure of `statistics.paired` over a separate family: all terms in all primary outcomes and cells. They use
the same arms and seeds as the verdicts. Every term needs all arms, so a seed that an arm lacks has no value
in any term, and then there is no p-value. There is no p-value either if all seeds have the same value up to
rounding, because then there is no spread.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.plan.types import Plan
from orchestrator.report.comparisons.contrasts import Comparisons
from orchestrator.report.comparisons.untested import find_untested_reason
from orchestrator.report.results.seed_results import difference_range, mean_by_seed
from orchestrator.report.results.statistics import Estimate, paired_estimate
from orchestrator.statistics.contrasts import Term, effect_contrasts, effect_terms
from orchestrator.statistics.paired import Key, PairedEstimate, deviation, estimate_differences, resolution


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


def factorial_effects(comparisons: Comparisons) -> Iterator[FactorialEffect]:
    """Yield every term in every primary outcome and cell; nothing if the plan combines no components."""
    plan, results, answer = comparisons.plan, comparisons.results, comparisons.answer
    if not plan.factors or plan.confirm is None:
        return
    cells = {arm.reference: _arms_by_removed(plan, arm.reference) for arm in plan.arms if arm.without}
    wanted_effects = [
        (term, metric, cell)
        for metric in answer.outcomes
        for cell in cells
        for term in effect_terms(plan.factors)
    ]
    estimates = _estimates(comparisons, cells, wanted_effects)
    missing_seeds = {cell: _missing_seeds(comparisons, [*arms.values()]) for cell, arms in cells.items()}
    for term, metric, cell in wanted_effects:
        arms = [*cells[cell].values()]
        paired = estimates.get((_effect_key(cell, term), metric))
        is_constant = paired is not None and paired.n > 1 and not deviation([*paired.differences.values()])
        pairs = [(arm, cell) for arm in arms if arm != cell]
        untested_reason = find_untested_reason(plan, pairs, metric, results)
        missing = missing_seeds[cell] + ((untested_reason.text,) if untested_reason else ())
        span = results.value_range(
            metric, *arms
        )  # a term is a mean over some arms minus that over the others
        yield FactorialEffect(
            components=term,
            metric=metric,
            cell=cell,
            estimate=paired_estimate(paired, difference_range(span, span)) if paired else None,
            p=paired.p if paired and not is_constant and not missing else None,
            by_seed=tuple(paired.differences.items()) if paired else (),
            family=len(wanted_effects),
            level=answer.level,
            lacking=missing,
            alike=is_constant,
        )


def _effect_key(cell: str, term: Term) -> str:
    return f"{cell}/{'/'.join(term)}"


def _estimates(
    comparisons: Comparisons,
    cells: Mapping[str, Mapping[frozenset[str], str]],
    wanted_effects: Sequence[tuple[Term, str, str]],
) -> dict[Key, PairedEstimate]:
    """Return tests of all terms by cell, term and outcome."""
    plan, results, answer = comparisons.plan, comparisons.results, comparisons.answer
    estimates: dict[Key, PairedEstimate] = {}
    # A term of k components is 2^k values over 2^(k - 1), so its rounding is r / sqrt(3 * 2^k) for values of
    # resolution r. `estimate_differences` expects r / sqrt(6), the rounding of a difference.
    resolution_factor = 2 ** ((1 - len(plan.factors)) / 2)
    for arms in plan.contexts:  # variances differ between contexts
        names = [arm.name for arm in arms]
        values_by_term = {
            (cell, metric): effect_contrasts(
                {
                    removed: results.by_unit(mean_by_seed(results.by_seed(arm, metric)))
                    for removed, arm in by_removed.items()
                },
                plan.factors,
            )
            for metric in answer.outcomes
            for cell, by_removed in cells.items()
            if cell in names
        }
        estimates |= estimate_differences(
            {
                (_effect_key(cell, term), metric): values_by_term[cell, metric].get(term, {})
                for term, metric, cell in wanted_effects
                if cell in names
            },
            family=len(wanted_effects),
            level=answer.level,
            resolutions={
                metric: resolution(results.all_values(metric, names)) * resolution_factor
                for metric in answer.outcomes
            },
        )
    return estimates


def _arms_by_removed(plan: Plan, cell: str) -> dict[frozenset[str], str]:
    """Return the arms of a cell that combine components, by the set of removed components."""
    combined = [arm for arm in plan.arms if arm.without and arm.reference == cell]
    return {frozenset[str](): cell} | {frozenset(arm.without): arm.name for arm in combined}


def _missing_seeds(comparisons: Comparisons, arms: Sequence[str]) -> tuple[str, ...]:
    """Return the seeds that some of the arms did not finish, with the reason."""
    confirm, results = comparisons.plan.confirm, comparisons.results
    assert confirm is not None
    finished_seeds = {arm: results.finished_seeds(arm) for arm in arms}

    def missing_reason(arm: str, seed: int) -> str:
        if failure := results.failed_seeds(arm).get(seed):
            return f"{arm} {failure}"
        if seed in comparisons.unended_seeds.get(arm, ()):
            return f"{arm} not run yet"
        return "" if seed in finished_seeds[arm] else f"{arm} not run"

    reasons = {seed: [*filter(None, (missing_reason(arm, seed) for arm in arms))] for seed in confirm.seeds}
    return tuple(f"seed {seed}: {', '.join(words)}" for seed, words in reasons.items() if words)
