"""Answers to many inputs at once, by greedy decoding or beam search.

Beam search is as in the published translation runs of Tan et al., Sparse Universal Transformer, which used
fairseq (their length penalty of 0.4 is of its kind). The `beam_size` best unfinished hypotheses are extended.
A hypothesis that ends is finished if it is among the `beam_size` best of a step. The best finished one has
the highest log-probability / length^length_penalty, with the end token counted: 0 is no penalty, and larger
values favour longer answers. At `length_max` every hypothesis is forced to end.

Difference from fairseq: an input is done when `beam_size` hypotheses have finished and no unfinished
hypothesis, at its current length, scores better than the best finished one. fairseq requires only the first
condition. With a small vocabulary, bad short answers can then end a search whose best hypothesis is
unfinished.

Scores with equal distance to the best one, in 32 bits, are ordered by hypothesis, then by token. Of equally
good answers the one that ended first is returned. Results are therefore the same in every run.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainables.decoding.decode_config import LENGTH_MARGIN, DecodeConfig
from trainables.decoding.hypotheses import Hypotheses, hypotheses_of
from trainables.heads.sequence import SequenceModel
from trainables.types import Batch, TaskShape

NEG_INF = float("-inf")


def beam_search(
    hypotheses: Hypotheses,
    num_inputs: int,
    end_id: int,
    length_max: int,
    device: torch.device,
    *,
    beam_size: int,
    length_penalty: float,
) -> list[list[int]]:
    """Return the best answer to each input, without end tokens.

    With `beam_size` 1 the most probable token is taken repeatedly: greedy decoding.

    Args:
        hypotheses: `beam_size` hypotheses for each input; inputs that are done are removed.
        num_inputs: Number of inputs.
        end_id: The end token, which also starts every answer.
        length_max: Maximum number of tokens of an answer, the end token included.
        device: Device of the hypotheses.
        beam_size: Number of hypotheses for each input.
        length_penalty: Exponent of the length that divides log-probabilities.
    """
    beam = _Beam(num_inputs, beam_size, end_id, device)
    for length in range(1, length_max + 1):
        log_p = hypotheses.next(beam.last_tokens)
        parents = beam.extend(log_p, length, length_penalty, must_end=length == length_max)
        if parents is None:
            break
        hypotheses.reorder(parents)
        remaining_inputs = beam.remove_done()
        if not beam.unfinished:
            break
        if remaining_inputs is not None:
            hypotheses.keep(remaining_inputs)
    return [answer for _, answer in beam.best]


@dataclass
class _Beam:
    """Hypotheses and finished answers of all inputs whose search has not ended."""

    num_inputs: int
    size: int
    end_id: int
    device: torch.device
    best: list[tuple[float, list[int]]] = field(init=False)
    """Score and tokens of the best finished answer to each input."""

    def __post_init__(self) -> None:
        self.best = [(NEG_INF, [])] * self.num_inputs
        self.unfinished = list(range(self.num_inputs))
        self.finished = [0] * self.num_inputs
        self.best_unfinished: list[float] = []
        """Score of the best unfinished hypothesis for each unfinished input."""
        rows = self.num_inputs * self.size
        self.tokens = torch.full((rows, 1), self.end_id, device=self.device)
        # All hypotheses of an input are initially equal: only the first of them counts.
        self.scores = torch.full(
            (self.num_inputs, self.size), NEG_INF, device=self.device, dtype=torch.float64
        )
        self.scores[:, 0] = 0

    @property
    def last_tokens(self) -> Int[Tensor, " R"]:
        """The last token of each hypothesis."""
        return self.tokens[:, -1]

    def extend(
        self, log_p: Float[Tensor, "R C"], length: int, penalty: float, *, must_end: bool
    ) -> Int[Tensor, " R"] | None:
        """Keep the best continuations; return for each of them the row of the hypothesis that it continues.

        Args:
            log_p: Log-probabilities of the next token, (rows, classes).
            length: Number of tokens of the continuations.
            penalty: Exponent of the length that divides scores.
            must_end: Whether every hypothesis is forced to end.

        Returns:
            Indices of the continued rows; None if every answer was forced to end.
        """
        classes = log_p.shape[1]
        inputs = len(self.unfinished)
        total_scores = self.scores[..., None] + log_p.view(inputs, self.size, classes)
        if must_end:
            is_not_end = torch.arange(classes, device=log_p.device) != self.end_id
            total_scores = total_scores.masked_fill(is_not_end, NEG_INF)
        values, flat_indices = _best(total_scores.flatten(1), min(2 * self.size, self.size * classes))
        parent, token = flat_indices // classes, flat_indices % classes
        is_end = token == self.end_id
        divisor = float(length) ** penalty
        self._finish(values, parent, is_end, divisor)
        if must_end:
            return None
        # Select the first `size` unfinished continuations, in the order of their scores.
        order = is_end.to(torch.int8).argsort(dim=1, stable=True)[:, : self.size]
        self.scores, parent, token = (tensor.gather(1, order) for tensor in (values, parent, token))
        self.best_unfinished = (self.scores[:, 0] / divisor).tolist()
        rows = (torch.arange(inputs, device=parent.device)[:, None] * self.size + parent).flatten()
        self.tokens = torch.cat((self.tokens.index_select(0, rows), token.flatten()[:, None]), 1)
        return rows

    def _finish(self, values: Tensor, parent: Tensor, is_end: Tensor, divisor: float) -> None:
        """Record the answers that end among the best; `values` are their log-probabilities."""
        is_finished = is_end[:, : self.size] & (values[:, : self.size] > NEG_INF)
        for row, rank in is_finished.nonzero().tolist():
            input_index = self.unfinished[row]
            self.finished[input_index] += 1
            score = float(values[row, rank]) / divisor
            if score > self.best[input_index][0]:
                hypothesis = row * self.size + int(parent[row, rank])
                self.best[input_index] = score, self.tokens[hypothesis, 1:].tolist()

    def remove_done(self) -> Int[Tensor, " K"] | None:
        """Remove inputs that are done; return the indices of the remaining inputs, or None if all remain."""
        active_rows = [
            place
            for place, (input_index, score) in enumerate(
                zip(self.unfinished, self.best_unfinished, strict=True)
            )
            if self.finished[input_index] < self.size or score > self.best[input_index][0]
        ]
        if len(active_rows) == len(self.unfinished):
            return None
        inputs = torch.tensor(active_rows, device=self.device, dtype=torch.int64)
        shape = (len(self.unfinished), self.size, self.tokens.shape[1])
        self.tokens = self.tokens.view(shape).index_select(0, inputs).flatten(0, 1)
        self.scores = self.scores.index_select(0, inputs)
        self.unfinished = [self.unfinished[place] for place in active_rows]
        return inputs


def _best(scores: Float[Tensor, "N K"], count: int) -> tuple[Float[Tensor, "N c"], Int[Tensor, "N c"]]:
    """Return the `count` highest scores of each row, highest first, and their indices (lower ones first)."""
    # A key consists of 32 bits of each score and its index. As no two keys are equal, every kernel returns
    # the same order. Near the best score, 32 bits of the distance to it are more precise than 32 bits of the
    # score.
    distance = scores - scores.amax(1, keepdim=True)
    bits = distance.to(torch.float32).view(torch.int32)
    rank = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(torch.int64)
    place = torch.arange(scores.shape[1], device=scores.device)
    keys = (rank << 31) | (0x7FFFFFFF - place)
    flat_indices = keys.topk(count, dim=1).indices
    return scores.gather(1, flat_indices), flat_indices


def length_max(config: DecodeConfig, shape: TaskShape) -> int:
    """Return the maximum number of tokens of an answer, the end token included."""
    if config.decode_length_max is not None:
        return config.decode_length_max
    assert shape.answer_length_max is not None
    return LENGTH_MARGIN * shape.answer_length_max


@torch.inference_mode()
def answers(model: SequenceModel, batch: Batch, config: DecodeConfig) -> list[list[int]]:
    """Return the generated answers to the inputs of `batch`, without end tokens; labels are not used.

    `model` must be in evaluation mode.
    """
    longest = length_max(config, model.shape)
    encoded, memory_mask = model.encode(batch.tokens, batch.mask)
    hypotheses = hypotheses_of(model, encoded.states, memory_mask, config.beam_size, longest)
    num_inputs, device = batch.tokens.shape[0], batch.tokens.device
    return beam_search(
        hypotheses,
        num_inputs,
        model.end_id,
        longest,
        device,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
    )
