"""Estimate the importance of searched dimensions with Optuna's evaluators."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.dimensions import (
    Assignment,
    Choice,
    Dimension,
    Domain,
    Fixed,
    Float,
    Powers,
    Value,
    are_equal,
)

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.importance import BaseImportanceEvaluator

MIN_TRIALS = 5
"""Smallest number of trials for an estimate."""
MAX_FANOVA_TRIALS = 100
"""Largest number of trials for fANOVA, whose time grows with their square."""
NUM_TREES = 32


@dataclass(frozen=True, slots=True)
class Importance:
    """Importance of each dimension by a random forest fitted to the trials."""

    method: str
    shares: Mapping[str, float]
    """Share of each dimension by its path, largest first; the sum is 1."""
    trials: int


def estimate_importance(
    dimensions: Sequence[Dimension], assignments: Sequence[Assignment], values: Sequence[float]
) -> Importance | None:
    """Return the importance of the dimensions that all trials have.

    None if fewer than two dimensions vary, if there are too few trials, or if all values are equal. The same
    trials in the same order give the same shares.

    Args:
        dimensions: Dimensions of the search space.
        assignments: Assignment of each trial.
        values: Value of the objective for each trial.
    """
    shared_dimensions = [entry for entry in dimensions if all(entry.path in params for params in assignments)]
    varied_dimensions = [
        entry for entry in shared_dimensions if len({repr(params[entry.path]) for params in assignments}) > 1
    ]
    if len(values) < MIN_TRIALS or len(varied_dimensions) < 2 or len(set(values)) < 2:
        return None
    import optuna  # imported late: loading the evaluators takes longer than a report of few trials

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {dimension.path: _distribution(dimension.domain) for dimension in varied_dimensions}
    study = optuna.create_study()
    for assignment, value in zip(assignments, values, strict=True):
        params = {
            entry.path: _optuna_value(entry.domain, assignment[entry.path]) for entry in varied_dimensions
        }
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=value))
    method, evaluator = _evaluator(len(values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importances = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return Importance(method, {path: float(share) for path, share in importances.items()}, len(values))


def _evaluator(trials: int) -> "tuple[str, BaseImportanceEvaluator]":
    from optuna.importance import FanovaImportanceEvaluator, MeanDecreaseImpurityImportanceEvaluator

    if trials <= MAX_FANOVA_TRIALS:
        return "fANOVA", FanovaImportanceEvaluator(n_trees=NUM_TREES, seed=0)
    return "mean decrease of impurity", MeanDecreaseImpurityImportanceEvaluator(seed=0)


def _distribution(domain: Domain) -> "BaseDistribution":
    """Return the Optuna distribution of a domain; only its bounds matter for trials with known values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    assert not isinstance(domain, Fixed), "a Fixed domain does not vary"
    if isinstance(domain, Choice):
        return CategoricalDistribution(range(len(domain.values)))
    if isinstance(domain, Powers):
        return IntDistribution(0, len(domain.values) - 1)
    if isinstance(domain, Float):
        return FloatDistribution(domain.low, domain.high, log=domain.log)
    return IntDistribution(domain.low, domain.high, log=domain.log)


def _optuna_value(domain: Domain, value: Value) -> Value:
    if isinstance(domain, Choice | Powers):
        return next(place for place, param_value in enumerate(domain.values) if are_equal(param_value, value))
    return value
