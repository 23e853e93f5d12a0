"""Answers decoded token by token equal a loop over their tokens."""

import pytest
import torch
from torch.nn import functional as F

from tests.support.numerics.parameter_groups import parameters_by_group
from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.training.config import train_config
from trainables.training.step import objective
from trainables.types import NOT_ASKED, TaskShape

SHAPE = TaskShape("sequence", 9, 7, pad_id=8, length_max=9, end_id=6, answer_length_max=8)
SHARED = TaskShape(
    "sequence", 9, 9, pad_id=8, length_max=9, end_id=6, answer_length_max=8, shared_vocabulary=True
)
RAW = {"name": "universal", "width": 8, "heads": 2, "max_layers": 3, "dropout": 0.0, "attention_dropout": 0.0}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_token_is_predicted_from_the_input_and_earlier_tokens(shared: bool, causal: bool) -> None:
    """The loop runs token by token and row by row, with and without START and END around the input."""
    model = build_model(RAW | {"causal": causal, "pooling": "end"}, SHARED if shared else SHAPE, seed=1)
    model = model.double().eval()
    batch = synthetic_batch(model.shape, 4, 9, seed=3)
    output = model(batch)
    answers = model.embedding() if shared else model.answer.embedding()
    for row in range(4):
        tokens = batch.tokens[row][batch.mask[row]]
        encoded = model.encoder(F.embedding(tokens, model.embedding())[None], torch.ones(1, len(tokens)) > 0)
        assert encoded.states.shape[1] == len(tokens) + (0 if causal else 2)
        source_mask = torch.ones(encoded.states.shape[:2], dtype=torch.bool)
        losses, uniform, hits, tokens_read = [], [], [], [6]
        for label in batch.labels[row][batch.labels[row] != NOT_ASKED].tolist():
            y = answers[torch.tensor([tokens_read])]
            decoded = model.decoder(y, torch.ones(1, len(tokens_read)) > 0, encoded.states, source_mask)
            log_p = model.logits(decoded.states[:, -1])[0].log_softmax(0)
            losses.append(-log_p[label])
            uniform.append(-log_p.mean())
            hits.append(int(log_p.argmax() == label))
            tokens_read.append(label)
        torch.testing.assert_close(output.loss[row], torch.stack(losses).mean())
        torch.testing.assert_close(output.uniform[row], torch.stack(uniform).mean())
        assert output.hits[row] == sum(hits)
        assert output.counts[row] == len(hits)
        assert output.shares["accuracy_whole"][row] == all(hits)
        torch.testing.assert_close(output.encoded.ponder[row], (encoded.ponder + decoded.ponder)[0])
        torch.testing.assert_close(output.shares["depth_encoder"][row], encoded.depth[0])
        torch.testing.assert_close(output.shares["depth_decoder"][row], decoded.depth[0])


def test_embeddings_are_tied_for_a_shared_vocabulary() -> None:
    untied_parameters = parameters_by_group(build_model(RAW, SHAPE, 0, "meta"))
    shared = parameters_by_group(build_model(RAW, SHARED, 0, "meta"))
    tied = parameters_by_group(build_model(RAW | {"tied_output": True}, SHARED, 0, "meta"))
    assert untied_parameters["embedding"] == 9 * 8 + 7 * 8
    assert shared["embedding"] == tied["embedding"] == 9 * 8
    assert shared["readout"] == (8 * 8 + 8) + (8 * 9 + 9)
    assert "readout" not in tied
    assert "other" not in untied_parameters


def test_label_smoothing_equals_pytorch() -> None:
    """The reference is PyTorch's label smoothing over the tokens of each answer."""
    model = build_model(RAW, SHAPE, 0).eval()
    batch = synthetic_batch(SHAPE, 1, 9, seed=0)
    output = model(batch)
    smoothed = objective(output, train_config({"steps": 1, "label_smoothing": 0.1, "ponder_weight": 0.0}))
    encoded, mask = model.encode(batch.tokens, batch.mask)
    states = model.decoder(
        model.answer(model.decoder_inputs(batch.labels)), batch.labels != NOT_ASKED, encoded.states, mask
    ).states
    expected = F.cross_entropy(model.logits(states[0]), batch.labels[0], label_smoothing=0.1)
    torch.testing.assert_close(smoothed, expected)
    unsmoothed = objective(output, train_config({"steps": 1, "ponder_weight": 0.0}))
    torch.testing.assert_close(unsmoothed, output.loss.mean())
