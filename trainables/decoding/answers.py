"""Decodes answers to a batch of inputs, greedily or by beam search, under a `DecodeConfig`."""

import torch

from trainables.decoding.config import LENGTH_MARGIN, DecodeConfig
from trainables.decoding.hypotheses import hypotheses_of
from trainables.decoding.search import beam_search, greedy
from trainables.heads.sequence import SequenceModel
from trainables.types import Batch, TaskShape


def length_max(config: DecodeConfig, shape: TaskShape) -> int:
    """Most tokens of an answer, its end included."""
    if config.decode_length_max is not None:
        return config.decode_length_max
    assert shape.answer_length_max is not None
    return LENGTH_MARGIN * shape.answer_length_max


@torch.inference_mode()
def answers(model: SequenceModel, batch: Batch, config: DecodeConfig) -> list[list[int]]:
    """What the model, in evaluation mode, answers to the inputs of `batch`, without ends; labels unread."""
    most = length_max(config, model.shape)
    encoded, memory_mask = model.encode(batch.tokens, batch.mask)
    hypotheses = hypotheses_of(model, encoded.states, memory_mask, config.beam_size, most)
    num_inputs, device = batch.tokens.shape[0], batch.tokens.device
    if config.beam_size == 1:
        return greedy(hypotheses, num_inputs, model.end_id, most, device)
    return beam_search(
        hypotheses,
        num_inputs,
        model.end_id,
        most,
        device,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
    )
