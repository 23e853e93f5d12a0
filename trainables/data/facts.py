"""Compute facts about a built split: lengths, labels, floor, padding, and examples as text."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from trainables.data.order import Bucketed, TokenBatches, batch_indices, evaluation_batches, padding_share
from trainables.data.split import Split
from trainables.settings import Settings
from trainables.task_catalog import decode, label_names, picture, shape
from trainables.task_protocol import Role
from trainables.types import NOT_ASKED, Batch

POOL_BATCHES = 32
POOLS = 32
"""Greatest number of pools of batches on which padding is measured."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Statistics of a split."""

    lengths: np.ndarray
    """Tokens of each example, int64."""
    labels: dict[str, int]
    """Count of each label, or of each token of an answer, by name in the order of classes."""
    answer_lengths: np.ndarray | None
    """Tokens of each answer without its end token (int64); None unless the task has decoded answers."""
    floor: float
    """Accuracy of always predicting the most common label or answer."""
    padding: dict[str, float]
    """Share of padding tokens by batch order; for a streamed batch only the order `drawn`."""


@dataclass(frozen=True, slots=True)
class Example:
    """An input and its label as text."""

    text: str
    """Input as text; each token with a target is followed by `->` and the target."""
    answer: str
    length: int
    """Number of input tokens."""
    picture: str = ""
    """The input as a drawing of several lines; empty unless the task has pictures."""


def split_facts(
    split: Split, config: Settings, role: Role, batch_size: int, batch_tokens: int | None = None
) -> Facts:
    """Return the facts of a stored split; padding is that of batches of the given size."""
    orders = _orders(split.lengths, role, batch_size)
    if role == "train" and batch_tokens is not None:
        order = TokenBatches(split.sizes, batch_tokens, 0)
        orders = {"by tokens": [order.batch_indices(step) for step in range(len(order))]}
    names = label_names(config)
    labels = {names[label]: count for label, count in split.label_histogram.items()}
    padding = {name: padding_share(split.lengths, batches) for name, batches in orders.items()}
    return Facts(split.lengths, labels, split.answer_lengths, split.majority_rate, padding)


def batch_facts(batch: Batch, config: Settings) -> Facts:
    """Return the facts of one batch of a streamed split."""
    lengths = batch.mask.sum(1).numpy()
    targets = batch.labels[batch.labels != NOT_ASKED].flatten().numpy()
    counts = np.bincount(targets)
    names = label_names(config)
    labels = {names[label]: int(counts[label]) for label in np.flatnonzero(counts).tolist()}
    return Facts(
        lengths, labels, None, counts.max() / counts.sum(), {"drawn": 1 - batch.mask.double().mean().item()}
    )


def _orders(lengths: np.ndarray, role: Role, batch_size: int) -> dict[str, list[np.ndarray]]:
    """Map each order in which trials may read such a split to its batches, of about one epoch."""
    if role != "train":
        return {"sorted": list(evaluation_batches(lengths, batch_size))}
    num_pools = min(POOLS, -(-len(lengths) // (batch_size * POOL_BATCHES)))

    def read_lengths(indices: Callable[[int], np.ndarray]) -> list[np.ndarray]:
        return [indices(step) for step in range(num_pools * POOL_BATCHES)]

    return {
        "random": read_lengths(lambda step: batch_indices(len(lengths), batch_size, 0, step)),
        "bucketed": read_lengths(Bucketed(lengths, batch_size, 0, POOL_BATCHES).batch_indices),
    }


def examples(batch: Batch, config: Settings) -> Iterator[Example]:
    """Yield every row of `batch` as text."""
    names, head = label_names(config), shape(config).head
    for row, length, labels in zip(
        batch.tokens.tolist(), batch.mask.sum(1).tolist(), batch.labels.tolist(), strict=True
    ):
        tokens = row[:length]
        if head == "positions":
            text = " ".join(
                decode(config, [token]) + ("" if label == NOT_ASKED else f"->{names[label]}")
                for token, label in zip(tokens, labels, strict=False)
            )
        else:
            text = decode(config, tokens)
        answer = _answer(labels, names, shape(config).end_id)
        yield Example(text, answer, length, picture(config, tokens))


def _answer(labels: int | list[int], names: tuple[str, ...], end_id: int | None) -> str:
    if isinstance(labels, int):
        return names[labels]
    return " ".join(names[label] for label in labels if label not in (NOT_ASKED, end_id))
