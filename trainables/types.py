"""Define the values that are passed between tasks, models, heads and the training loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HeadKind = Literal["classify", "pair", "positions", "sequence"]
"""Kind of prediction: one class per sequence, one class per pair of sequences, one class per position with a
target, or an answer of any length that is generated token by token.
"""
NOT_ASKED = -1
"""Label of positions without a target and of positions after the end of an answer."""


@dataclass(frozen=True, slots=True)
class TaskShape:
    """Properties of a task that are needed to build a model; computed without any data."""

    head: HeadKind
    vocabulary_size: int
    """Number of ids of input tokens, including `pad_id`."""
    num_classes: int
    """Number of classes to predict; for the head `sequence` the number of ids of answer tokens, including
    `end_id`.
    """
    pad_id: int
    length_max: int
    """Longest training input in tokens, before START and END are added."""
    separator_id: int | None = None
    """Token between the two sentences of a pair, once in every input; None for other heads."""
    causal: bool = False
    """Whether a position may attend only to earlier positions because later tokens contain its answer."""
    end_id: int | None = None
    """Head `sequence`: the answer token that ends an answer and is also the first input of a decoder."""
    answer_length_max: int | None = None
    """Head `sequence`: longest training answer in tokens, including its end token."""
    shared_vocabulary: bool = False
    """Head `sequence`: whether ids mean the same in inputs and answers, so that embeddings may be tied."""
    steps_max: int | None = None
    """Greatest value of `Batch.steps` in any split; None if the task has no step counts."""

    @property
    def num_logits(self) -> int:
        """Return the number of logits per prediction: one for two classes, else one per class."""
        return 1 if self.num_classes == 2 else self.num_classes

    def __post_init__(self) -> None:
        is_sequence = self.head == "sequence"
        assert is_sequence == (self.end_id is not None) == (self.answer_length_max is not None), (
            f"end_id and answer_length_max must be given for the head 'sequence' and for no other, got {self}"
        )
        assert self.end_id is None or 0 <= self.end_id < self.num_classes, (
            f"end_id must be one of num_classes ids, got {self}"
        )
        assert not self.shared_vocabulary or self.num_classes == self.vocabulary_size, (
            f"a shared vocabulary must have as many answer ids as input ids, got {self}"
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch of N right-padded inputs of at most S tokens."""

    tokens: Int[Tensor, "N S"]
    mask: Bool[Tensor, "N S"]
    """True at real tokens; every row has at least one real token."""
    labels: Int[Tensor, "N ..."]
    """Targets of each row: one class; for the head `positions` one class per token (N S), `NOT_ASKED` where
    none is predicted; for the head `sequence` the answer and its end token (N T), then `NOT_ASKED`.
    """
    steps: Int[Tensor, " N"] | None = None
    """Number of steps that an algorithm for the task takes on each row; None if the task does not define it.
    """

    def rows(self, first: int, end: int) -> "Batch":
        """Return the rows from index `first` up to but not including `end`."""
        steps = None if self.steps is None else self.steps[first:end]
        return Batch(self.tokens[first:end], self.mask[first:end], self.labels[first:end], steps)

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on `device`; copies to a GPU use pinned memory and do not block."""
        if device.type == self.tokens.device.type:
            return self

        def move(part: Tensor) -> Tensor:
            return (part.pin_memory() if device.type == "cuda" else part).to(device, non_blocking=True)

        steps = None if self.steps is None else move(self.steps)
        return Batch(move(self.tokens), move(self.mask), move(self.labels), steps)


@dataclass(frozen=True, slots=True)
class Guide:
    """Input of a guided encoder from a head, computed from inputs and target positions, never answers."""

    steps: Int[Tensor, " N"] | None
    """`Batch.steps`."""
    uncertainty: Callable[[Float[Tensor, "N P D"]], Float[Tensor, " N"]]
    """Function from final states to the uncertainty of each sample, in nats. It is -log of the probability of
    the most probable class, averaged over the positions with a target. This equals the loss if the most
    probable classes were correct. Low values mean high confidence.
    """


@dataclass(frozen=True, slots=True)
class Encoded:
    """Output of an encoder. Depth and ponder cost are returned here and never stored in a module."""

    states: Float[Tensor, "N P D"]
    """Final states; P is S plus the START and END positions that the encoder adds."""
    pooled: Float[Tensor, "N D"]
    depth: Float[Tensor, " N"]
    """Number of layers retained per sample; the mean over real tokens where tokens halt individually.
    Detached.
    """
    ponder: Float[Tensor, " N"]
    """ACT cost in layers, zero without halting. Carries gradient."""
    computed: Float[Tensor, " N"]
    """Layer-steps executed per unit (a sequence, or the mean over its tokens), including a last step whose
    result is discarded. Detached.
    """
    bound: Float[Tensor, " N"]
    """Layer-steps of the same input without halting: the upper bound on `computed`. Detached."""
    auxiliary: Float[Tensor, " N"] | None = None
    """Further training cost in addition to the main loss and the ponder cost, unweighted, such as the halt
    penalty of CRvNN; None in models without such a cost. Carries gradient.
    """

    @classmethod
    def of_fixed_depth(
        cls, states: Float[Tensor, "N P D"], pooled: Float[Tensor, "N D"], layers: int
    ) -> "Encoded":
        """Return the output of an encoder that runs the same `layers` layers on every input."""
        depth = pooled.new_full(pooled.shape[:1], layers, dtype=sum_dtype(pooled.dtype))
        return cls(states, pooled, depth, torch.zeros_like(depth), depth, depth)


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a head for one batch; the training loop reads nothing else."""

    loss: Float[Tensor, " N"]
    """Main loss of each sample, in nats, without the ponder cost."""
    hits: Float[Tensor, " N"]
    """Correct predictions of each sample."""
    counts: Float[Tensor, " N"]
    """Number of predictions with a target in each sample (1 for one class per sample)."""
    encoded: Encoded
    uniform: Float[Tensor, " N"] | None = None
    """Main loss if all classes were equally correct, in nats: the term that label smoothing mixes in. None in
    heads that do not support label smoothing.
    """
    shares: Mapping[str, Float[Tensor, " N"]] = field(default_factory=dict)
    """Further quantities of each sample, by name; reported as means over samples."""


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for sums of probabilities and costs: `dtype`, or float32 if `dtype` has fewer bits.

    In 16 bits 1 - 0.999 has no significant digits.
    """
    return torch.promote_types(dtype, torch.float32)
