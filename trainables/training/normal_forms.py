"""Normalise the values of training settings: values with equal effect in a trial have the same normal form.

Every function takes settings, whose other fields may already be in normal form, and facts of the trial. The
fields in `config` refer to them. Validations count from 1: the first is always the best so far, and no
training follows the last.
"""

from math import ceil
from typing import Any

from trainables.field_effects import TrialFacts, effective_limit

ROUNDING_LOSS = 2.0**-25
"""Relative change of a 32-bit number that rounding removes."""
RADAM_LENGTH_MIN = 5.0
"""Length of the moving average of the second moment from which RAdam divides by the second moment."""
CLIP_MAX = 1e6
"""Gradient norm that only diverged trainings exceed. A limit above it clips nothing."""

EPS_MIN = 1e-16
"""Smallest effective `eps`. A smaller value is lost in rounding next to the root of the second moment, except
for negligible gradients: even a value 1000 times as large does not change a bit of a short training.
"""


def num_validations(config: Any) -> int:
    """Return the number of measurements of a trial that is not ended early."""
    steps, every = int(config.steps), int(config.report_every)
    return ceil(steps / every)


def compares_validations(config: Any) -> bool:
    """Return whether a setting makes the training compare its validations with each other."""
    return bool(config.select == "best") or config.patience is not None or config.halve_after is not None


def uses_second_moment(config: Any) -> bool:
    """Return whether the second moment ever divides a step; RAdam first waits for enough steps."""
    if config.optimizer != "ranger":
        return True
    beta2, steps = config.betas[1], config.steps
    decay = beta2**steps
    return bool(2 / (1 - beta2) - 1 - 2 * steps * decay / (1 - decay) > RADAM_LENGTH_MIN)


def batch_size(config: Any, trial: TrialFacts) -> Any:
    """Return the number of samples per step; None if `batch_tokens` makes it vary between steps."""
    if config.batch_tokens is None:
        return config.batch_size
    return None if trial.length is None else max(1, config.batch_tokens // trial.length)


def batch_tokens(config: Any, trial: TrialFacts) -> Any:
    """Return the number of tokens per step, limited to the effective range.

    It is None for inputs of equal length, since `batch_size` then returns the number of samples. It is at
    least 1, which means one sample, and at most the number of all training tokens.
    """
    if config.batch_tokens is None or trial.length is not None:
        return None
    if config.batch_tokens < 2 * trial.length_min:
        return 1
    return config.batch_tokens if trial.train_tokens is None else min(config.batch_tokens, trial.train_tokens)


def order(config: Any, trial: TrialFacts) -> Any:
    """Return the order of examples; "random" for inputs of equal length, which bucketing does not affect."""
    return config.order if trial.length is None else "random"


def accumulate(config: Any, trial: TrialFacts) -> Any:
    """Return the number of parts of a batch; 1 if no training cost is computed for each part."""
    if not (trial.batch_cost and config.auxiliary_weight):
        return 1
    parts = config.accumulate * config.ranks
    return parts if config.batch_size is None else min(parts, config.batch_size)


def halve_after(config: Any, _: TrialFacts) -> Any:
    """Return the patience of halving; None if no halving can take effect before the training ends."""
    halve, patience = config.halve_after, config.patience
    never_applies = halve is None or halve > num_validations(config) - 3
    return None if never_applies or (patience is not None and halve >= patience) else halve


def patience(config: Any, _: TrialFacts) -> Any:
    """Return the patience; None if it is so large that the training cannot end before its last validation."""
    never_applies = config.patience is None or config.patience > num_validations(config) - 3
    return None if never_applies else config.patience


def clip(config: Any, _: TrialFacts) -> Any:
    """Return the limit of the gradient norm; None for a limit so large that no gradient reaches it."""
    return None if config.clip is None or config.clip >= CLIP_MAX else config.clip


def eps(config: Any, _: TrialFacts) -> Any:
    """Return `eps`, at least `EPS_MIN`; None if RAdam never divides by the second moment."""
    return max(config.eps, EPS_MIN) if uses_second_moment(config) else None


def weight_decay(config: Any, _: TrialFacts) -> Any:
    """Return the weight decay; 0 for a decay so small that it is lost in rounding."""
    return 0.0 if config.lr * config.weight_decay < ROUNDING_LOSS else config.weight_decay


def ema(config: Any, _: TrialFacts) -> Any:
    """Return the decay of the moving average; None if the average equals the weights up to rounding."""
    return None if config.ema is None or config.ema < ROUNDING_LOSS else config.ema


def report_every(config: Any, _: TrialFacts) -> Any:
    """Return the interval between reports, at most `steps`, because the last step is always measured."""
    return min(config.report_every, config.steps)


def select(config: Any, trial: TrialFacts) -> Any:
    """Return "last" if there is only one validation or no test split, since both choices are then equal."""
    return config.select if trial.confirmed and num_validations(config) > 1 else "last"


def select_by(config: Any, _: TrialFacts) -> Any:
    """Return the metric that compares validations; None if nothing compares them."""
    return config.select_by if compares_validations(config) and num_validations(config) > 1 else None


def average_best(config: Any, _: TrialFacts) -> Any:
    """Return the number of averaged validations, at most the number of all validations."""
    return min(config.average_best, num_validations(config)) if config.select == "best" else 1


def valid_examples(config: Any, trial: TrialFacts) -> Any:
    """Return the limit of validation examples; None if the split has no more examples than that."""
    return effective_limit(config.valid_examples, trial.valid_examples)
