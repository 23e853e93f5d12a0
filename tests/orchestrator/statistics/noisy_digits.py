"""A cheap trainable for studies of whole sweeps: digits, a network of 12 hidden units, eight epochs.

Arms with different `label` have the same distribution of scores. Half of the training rows depend on the seed
alone, so arms are paired by seed in part; the other rows, the weights and the order depend on the label too.
`handicap` is subtracted from the scores: a planted effect of known size.
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
"""Digits before the first are for training, those between the two for validation, the others for the test."""


images, labels = load_digits(return_X_y=True)  # at the import, which the trials of a slot share
images = images / 16 - 0.3


def _training_rows(shared: np.random.Generator, own: np.random.Generator) -> NDArray[np.int64]:
    """Half of the rows from each generator."""
    drawn = shared.permutation(TRAIN_END)
    return np.concatenate([drawn[: ROWS // 2], own.choice(drawn[ROWS // 2 :], ROWS // 2, replace=False)])


def scores(lr: float, decay: float, seed: int, label: int) -> tuple[float, float]:
    """Train with stochastic gradient descent; return the accuracies on validation and test digits."""
    shared, own = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1, label])
    rows = _training_rows(shared, own)
    first, second = own.normal(size=(64, HIDDEN)) / 8, own.normal(size=(HIDDEN, 10)) / 4
    bias, offset = np.zeros(HIDDEN), np.zeros(10)
    for _ in range(EPOCHS):
        for batch in own.permutation(rows).reshape(-1, BATCH):
            hidden = np.tanh(images[batch] @ first + bias)
            logits = hidden @ second + offset
            error = np.exp(logits - logits.max(axis=1, keepdims=True))
            error /= error.sum(axis=1, keepdims=True)
            error[np.arange(BATCH), labels[batch]] -= 1
            error /= BATCH
            back = (error @ second.T) * (1 - hidden**2)
            second -= lr * (hidden.T @ error + decay * second)
            offset -= lr * error.sum(axis=0)
            first -= lr * (images[batch].T @ back + decay * first)
            bias -= lr * back.sum(axis=0)
    logits = np.tanh(images[TRAIN_END:] @ first + bias) @ second + offset
    right = logits.argmax(axis=1) == labels[TRAIN_END:]
    valid = VALID_END - TRAIN_END
    return float(right[:valid].mean()), float(right[valid:].mean())


def train(settings: Mapping[str, Any], trial: FunctionTrial) -> None:
    """Train once and report; the test accuracy only where the trial measures it."""
    seed = trial.seed_of("digits")
    valid, test = scores(settings["lr"], settings["decay"], seed, settings["label"])
    found = {"valid/accuracy": valid - settings["handicap"]}
    if "test" in trial.splits:
        found["test/accuracy"] = test - settings["handicap"]
    trial.report(1, found)
