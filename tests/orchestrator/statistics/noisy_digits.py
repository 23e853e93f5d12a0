"""A cheap trainable for studies of whole sweeps: digits, 12 hidden units, eight epochs.

Arms with different `label` have the same distribution of scores. Half of the training rows depend only on the
seed, so that pairing by seed helps in part. The other rows, the weights and the order depend on the label
too. The scores are reduced by `handicap`, a true effect of known size.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from trainables.custom.function import FunctionTrial

Values = NDArray[np.float64]
HIDDEN, ROWS, BATCH, EPOCHS = 12, 200, 20, 8
TRAIN_END, VALID_END = 1000, 1400
"""The training digits end at TRAIN_END, the validation digits at VALID_END; the rest is for the test."""


images, labels = load_digits(return_X_y=True)  # loaded once, because the trials of a slot share the import
images = images / 16 - 0.3


def _draw_training_rows(shared_rng: np.random.Generator, arm_rng: np.random.Generator) -> NDArray[np.int64]:
    """Return training rows; half of them come from each generator."""
    permutation = shared_rng.permutation(TRAIN_END)
    return np.concatenate(
        [permutation[: ROWS // 2], arm_rng.choice(permutation[ROWS // 2 :], ROWS // 2, replace=False)]
    )


def train_and_score(lr: float, decay: float, seed: int, label: int) -> tuple[float, float]:
    """Train with stochastic gradient descent; return the accuracies on validation and test digits."""
    shared_rng, arm_rng = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1, label])
    rows = _draw_training_rows(shared_rng, arm_rng)
    input_weights, output_weights = (
        arm_rng.normal(size=(64, HIDDEN)) / 8,
        arm_rng.normal(size=(HIDDEN, 10)) / 4,
    )
    hidden_bias, output_bias = np.zeros(HIDDEN), np.zeros(10)
    for _ in range(EPOCHS):
        for batch in arm_rng.permutation(rows).reshape(-1, BATCH):
            hidden = np.tanh(images[batch] @ input_weights + hidden_bias)
            logits = hidden @ output_weights + output_bias
            error = np.exp(logits - logits.max(axis=1, keepdims=True))
            error /= error.sum(axis=1, keepdims=True)
            error[np.arange(BATCH), labels[batch]] -= 1
            error /= BATCH
            hidden_error = (error @ output_weights.T) * (1 - hidden**2)
            output_weights -= lr * (hidden.T @ error + decay * output_weights)
            output_bias -= lr * error.sum(axis=0)
            input_weights -= lr * (images[batch].T @ hidden_error + decay * input_weights)
            hidden_bias -= lr * hidden_error.sum(axis=0)
    logits = np.tanh(images[TRAIN_END:] @ input_weights + hidden_bias) @ output_weights + output_bias
    is_correct = logits.argmax(axis=1) == labels[TRAIN_END:]
    num_valid = VALID_END - TRAIN_END
    return float(is_correct[:num_valid].mean()), float(is_correct[num_valid:].mean())


def train(settings: Mapping[str, Any], trial: FunctionTrial) -> None:
    """Train and report; report the test accuracy only if the trial evaluates the test split."""
    seed = trial.seed_of("digits")
    valid, test = train_and_score(settings["lr"], settings["decay"], seed, settings["label"])
    metrics = {"valid/accuracy": valid - settings["handicap"]}
    if "test" in trial.splits:
        metrics["test/accuracy"] = test - settings["handicap"]
    trial.report(1, metrics)
