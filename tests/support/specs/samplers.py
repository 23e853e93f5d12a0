"""A sampler as a user might write it."""

from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState


class RepeatBest(RandomSampler):
    """Repeats the params of the best trial with probability `width`."""

    def __init__(self, seed: int | None = None, width: float = 0.5) -> None:
        super().__init__(seed)
        self.width = width
        self.stream = np.random.default_rng(seed)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the best known value with probability `width`, else a random value."""
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        trials_with_param = [trial for trial in completed if param_name in trial.params]
        if trials_with_param and self.stream.random() < self.width:
            return max(trials_with_param, key=lambda trial: trial.values[0]).params[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)
