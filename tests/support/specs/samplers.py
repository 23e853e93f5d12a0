"""A sampler as a user might write one."""

from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState


class Nearby(RandomSampler):
    """Stays where the best trial so far is, now and then."""

    def __init__(self, seed: int | None = None, width: float = 0.5) -> None:
        super().__init__(seed)
        self.width = width
        self.stream = np.random.default_rng(seed)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The best value known with probability `width`."""
        done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        known = [each for each in done if param_name in each.params]
        if known and self.stream.random() < self.width:
            return max(known, key=lambda each: each.values[0]).params[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)
