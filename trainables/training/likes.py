"""For fields of training: which value would do the same in a trial. Used beside the fields in `config`.

Each takes settings, whose other fields may stand as values that do the same already, and facts of the trial.
Validations are counted from 1: the first is always the best so far, and nothing is trained after the last.
"""

from math import ceil
from typing import Any

from trainables.acting import TrialFacts, fewer

UNSEEN = 2.0**-25
"""A share of a float32 that is lost in rounding."""
RADAM_KNOWN = 5.0
"""Length of the moving average of the second moment from which on RAdam divides by it."""
CLIP_NEVER = 1e6
"""A gradient as long as this is that of a training that has diverged: a larger limit clips nothing."""

EPS_LEAST = 1e-16
"""What is less is lost beside the root of any second moment but those of gradients too small to be noticed:
of a thousand times as much no short training sees a bit."""


def validations(config: Any) -> int:
    """How often a trial that is not ended early is measured."""
    steps, every = int(config.steps), int(config.report_every)
    return ceil(steps / every)


def compares(config: Any) -> bool:
    """Whether anything goes by which validation is the better one."""
    return bool(config.select == "best") or config.patience is not None or config.halve_after is not None


def adapts(config: Any) -> bool:
    """Whether the second moment ever divides a step: RAdam waits until enough of it is known, or for ever."""
    if config.optimizer != "ranger":
        return True
    beta2, steps = config.betas[1], config.steps
    kept = beta2**steps
    return bool(2 / (1 - beta2) - 1 - 2 * steps * kept / (1 - kept) > RADAM_KNOWN)


def batch_size(config: Any, trial: TrialFacts) -> Any:
    """Samples a step do not count where tokens do, unless so many tokens are always as many samples."""
    if config.batch_tokens is None:
        return config.batch_size
    return None if trial.length is None else max(1, config.batch_tokens // trial.length)


def batch_tokens(config: Any, trial: TrialFacts) -> Any:
    """Of inputs of one length as many tokens are as many samples, see `batch_size`; at least one sample,
    and at most all there are."""
    if config.batch_tokens is None or trial.length is not None:
        return None
    if config.batch_tokens < 2 * trial.length_min:
        return 1
    return config.batch_tokens if trial.train_tokens is None else min(config.batch_tokens, trial.train_tokens)


def order(config: Any, trial: TrialFacts) -> Any:
    """Inputs of one length are of like length in every order."""
    return config.order if trial.length is None else "random"


def accumulate(config: Any, trial: TrialFacts) -> Any:
    """One part, unless a cost that is learned from is taken over each part."""
    if not (trial.batch_cost and config.auxiliary_weight):
        return 1
    parts = config.accumulate * config.ranks
    return parts if config.batch_size is None else min(parts, config.batch_size)


def halve_after(config: Any, _: TrialFacts) -> Any:
    """The last validation halves for nobody, nor does one that ends the training."""
    halve, patience = config.halve_after, config.patience
    late = halve is None or halve > validations(config) - 3
    return None if late or (patience is not None and halve >= patience) else halve


def patience(config: Any, _: TrialFacts) -> Any:
    """The last validation ends what ends anyway."""
    late = config.patience is None or config.patience > validations(config) - 3
    return None if late else config.patience


def clip(config: Any, _: TrialFacts) -> Any:
    """A limit that no gradient reaches is none."""
    return None if config.clip is None or config.clip >= CLIP_NEVER else config.clip


def eps(config: Any, _: TrialFacts) -> Any:
    """Where nothing is divided nothing is added to what divides, what is lost there is as less."""
    return max(config.eps, EPS_LEAST) if adapts(config) else None


def weight_decay(config: Any, _: TrialFacts) -> Any:
    """What is lost in rounding decays nothing."""
    return 0.0 if config.lr * config.weight_decay < UNSEEN else config.weight_decay


def ema(config: Any, _: TrialFacts) -> Any:
    """An average that is the weights themselves, up to rounding, is none."""
    return None if config.ema is None or config.ema < UNSEEN else config.ema


def report_every(config: Any, _: TrialFacts) -> Any:
    """The last step is always measured."""
    return min(config.report_every, config.steps)


def select(config: Any, trial: TrialFacts) -> Any:
    """Of one validation, or where tests are never read, the last is the best."""
    return config.select if trial.confirmed and validations(config) > 1 else "last"


def select_by(config: Any, _: TrialFacts) -> Any:
    """Asked only where validations are compared."""
    return config.select_by if compares(config) and validations(config) > 1 else None


def average_best(config: Any, _: TrialFacts) -> Any:
    """Of no more than there are."""
    return min(config.average_best, validations(config)) if config.select == "best" else 1


def valid_examples(config: Any, trial: TrialFacts) -> Any:
    """All, where there are no more."""
    return fewer(config.valid_examples, trial.valid_examples)
