"""The values that flow between tasks, models, heads and the training loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HeadKind = Literal["classify", "pair", "positions", "sequence"]
"""One class a sequence, one class a pair of sequences, one class at each position that asks for one, or an
answer of any length, written token by token."""
NOT_ASKED = -1
"""Label of a position where no prediction is asked, and of those behind the end of an answer."""


@dataclass(frozen=True, slots=True)
class TaskShape:
    """What a model must know of a task to be built; computed from the task's settings without any data."""

    head: HeadKind
    vocabulary_size: int
    """Ids of input tokens, `pad_id` among them."""
    num_classes: int
    """Classes to predict; for the head `sequence` the ids of answer tokens, `end_id` among them."""
    pad_id: int
    length_max: int
    """Longest training input in tokens, before START and END are added."""
    separator_id: int | None = None
    """Token between the two sentences of a pair, once in every input; None for other heads."""
    causal: bool = False
    """Whether a position may see only what is before it: later tokens hold its answer."""
    end_id: int | None = None
    """Head `sequence`: the answer token that ends an answer, and the first that a decoder reads."""
    answer_length_max: int | None = None
    """Head `sequence`: longest training answer in tokens, its end included."""
    shared_vocabulary: bool = False
    """Head `sequence`: whether ids mean the same in inputs and answers, so that embeddings may be tied."""
    steps_max: int | None = None
    """Greatest value of `Batch.steps` in any split; None where the task gives no steps."""

    @property
    def num_logits(self) -> int:
        """Logits of one prediction: two classes share one."""
        return 1 if self.num_classes == 2 else self.num_classes

    def __post_init__(self) -> None:
        written = self.head == "sequence"
        assert written == (self.end_id is not None) == (self.answer_length_max is not None), (
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
    """N right-padded inputs of at most S tokens."""

    tokens: Int[Tensor, "N S"]
    mask: Bool[Tensor, "N S"]
    """True at real tokens; every row holds at least one."""
    labels: Int[Tensor, "N ..."]
    """One class a row; for the head `positions` one a token (N S), `NOT_ASKED` where none is predicted; for
    the head `sequence` the answer and its end token (N T), then `NOT_ASKED`."""
    steps: Int[Tensor, " N"] | None = None
    """Steps that an algorithm for the task takes on each row, where the task knows them."""

    def rows(self, first: int, end: int) -> "Batch":
        """The rows from number `first` up to but not including `end`."""
        steps = None if self.steps is None else self.steps[first:end]
        return Batch(self.tokens[first:end], self.mask[first:end], self.labels[first:end], steps)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`, from pinned memory and without waiting if that is a GPU."""
        if device.type == self.tokens.device.type:
            return self

        def moved(part: Tensor) -> Tensor:
            return (part.pin_memory() if device.type == "cuda" else part).to(device, non_blocking=True)

        steps = None if self.steps is None else moved(self.steps)
        return Batch(moved(self.tokens), moved(self.mask), moved(self.labels), steps)


@dataclass(frozen=True, slots=True)
class Guide:
    """What a head passes to a guided encoder, computed from inputs and asked positions, never answers."""

    steps: Int[Tensor, " N"] | None
    """`Batch.steps`."""
    uncertainty: Callable[[Float[Tensor, "N P D"]], Float[Tensor, " N"]]
    """From final states to -log of the probability of the model's own most probable class, in nats, the mean
    over the asked positions of each sample: the loss if its guesses were right. Low is confident."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What an encoder returns. Depth and ponder cost are returned, never stored in a module."""

    states: Float[Tensor, "N P D"]
    """Final states; P = S plus the START and END positions the encoder adds."""
    pooled: Float[Tensor, "N D"]
    depth: Float[Tensor, " N"]
    """Layers kept; the mean over real tokens where tokens halt one by one. Detached."""
    ponder: Float[Tensor, " N"]
    """ACT cost in layers, zero where nothing halts. Carries gradient."""
    computed: Float[Tensor, " N"]
    """Layer-steps really run per unit (sequence or token mean), the undone step included. Detached."""
    bound: Float[Tensor, " N"]
    """Layer-steps the same input costs when nothing halts: the upper bound on layers. Detached."""
    auxiliary: Float[Tensor, " N"] | None = None
    """Further cost of training beside the main loss and the ponder cost, unweighted, such as the halt penalty
    of CRvNN; None in models that have no such cost. Carries gradient."""

    @classmethod
    def of_fixed_depth(
        cls, states: Float[Tensor, "N P D"], pooled: Float[Tensor, "N D"], layers: int
    ) -> "Encoded":
        """Of an encoder that runs the same `layers` layers on every input, so that nothing halts."""
        depth = pooled.new_full(pooled.shape[:1], layers, dtype=sum_dtype(pooled.dtype))
        return cls(states, pooled, depth, torch.zeros_like(depth), depth, depth)


@dataclass(frozen=True, slots=True)
class Output:
    """What a head makes of a batch; all that the training loop reads."""

    loss: Float[Tensor, " N"]
    """Main loss of each sample, in nats, without the ponder cost."""
    hits: Float[Tensor, " N"]
    """Correct predictions of each sample."""
    counts: Float[Tensor, " N"]
    """Predictions asked of each sample (1 for one class a sample)."""
    encoded: Encoded
    uniform: Float[Tensor, " N"] | None = None
    """What the main loss would be were all classes equally right, in nats: what label smoothing mixes in.
    None in heads that cannot be smoothed."""
    shares: Mapping[str, Float[Tensor, " N"]] = field(default_factory=dict)
    """Further quantities of each sample, by name; reported as means over samples."""


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """What probabilities and costs are summed in: at least 32 bits, because 1 - 0.999 has no digits in 16."""
    return torch.promote_types(dtype, torch.float32)
