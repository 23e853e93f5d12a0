"""Decoding with real models agrees between caches, batches and teacher forcing."""

from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.assembly import build_model
from trainables.data.synthetic import synthetic_batch
from trainables.decoding.hypotheses import RecomputedHypotheses
from trainables.decoding.search import answers
from trainables.testing.arms import base, with_fields
from trainables.testing.cases import SEED, enliven
from trainables.testing.decoder import ANSWER_SHAPE as SHAPE
from trainables.testing.decoder import LENGTH, unpadded_answers
from trainables.training.config import TrainConfig, train_config
from trainables.types import NOT_ASKED, Batch

WIDTH = 12


def build(raw: dict[str, Any]) -> Any:
    """Build a model in float64 whose depths differ between inputs."""
    model = build_model(with_fields(raw, width=WIDTH), SHAPE, SEED).double()
    enliven(model, 6.0)
    return model


ARMS: dict[str, dict[str, Any]] = {
    "transformer": {"name": "transformer"},
    "universal": {"name": "universal"},
    "universal, prefix": {"name": "universal", "halt": {"rule": "prefix"}},
    "universal, tokens": {"name": "universal", "halt": {"unit": "token"}},
    "universal, mixture": {"name": "universal", "kv": "mixture"},
    "universal, no halt": {"name": "universal", "halt": None},
    "universal, proposals": {"name": "universal", "halt": {"halted_proposals": True}},
    "sut": {"name": "sut"},
    "sut, pre-norm": {"name": "sut", "norm": "pre"},
}
CACHED_DECODERS = {label: base(raw["name"], raw).model_dump(mode="json") for label, raw in ARMS.items()}
parametrize_decoders = pytest.mark.parametrize("raw", CACHED_DECODERS.values(), ids=CACHED_DECODERS)


def settings(**options: Any) -> TrainConfig:
    return train_config({"steps": 1, "decode_length_max": 9} | options)


def model_with_varied_answers(raw: dict[str, Any]) -> Any:
    """Build a model whose answers depend on the input and do not end at once."""
    model = build(raw).eval()
    model.embedding.weight.data.mul_(50.0)
    model.answer.embedding.weight.data.mul_(50.0)
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.value.weight", "recall.attention.output.weight")):
            parameter.data.mul_(3.0)
        if name.endswith(("recall.value.weight", "recall.output.weight")):  # weights of experts start small
            parameter.data.mul_(6.0)
    model.readout.outer.weight.data.mul_(10.0)
    model.readout.outer.bias.data[SHAPE.end_id] += 2.0
    return model


@parametrize_decoders
def test_decoder_states_are_the_same_token_by_token(raw: dict[str, Any]) -> None:
    """Hypotheses change places, and inputs finish, between tokens."""
    decoder = build(raw).eval().decoder
    for name, parameter in decoder.named_parameters():
        if name.endswith("offsets.weight"):  # offsets start at zero
            parameter.data.normal_(generator=torch.Generator().manual_seed(1))
    y, _, memory, memory_mask = unpadded_answers(WIDTH)
    source = torch.tensor([0, 0, 1, 1, 2, 2])
    embedded_answers = torch.cat((y, unpadded_answers(WIDTH, seed=1)[0]))[[0, 3, 1, 4, 2, 5]]
    decoding = decoder.begin(memory, memory_mask, width=2, length_max=LENGTH + 5)
    token_states: list[Tensor] = []  # states of the tokens since the last change of hypotheses
    with torch.no_grad():
        for t in range(LENGTH):
            states, decoding = decoder.extend(embedded_answers[:, t], decoding)
            token_states.append(states)
            if t in (0, 2, 4, LENGTH - 1):
                token_mask = torch.ones(embedded_answers.shape[0], t + 1, dtype=torch.bool)
                expected = decoder(
                    embedded_answers[:, : t + 1], token_mask, memory[source], memory_mask[source]
                )
                torch.testing.assert_close(states, expected.pooled)
                torch.testing.assert_close(
                    torch.stack(token_states, 1), expected.states[:, t + 1 - len(token_states) :]
                )
                token_states.clear()
            if t == 2:
                rows = torch.tensor([1, 0, 3, 3, 4, 4])
                decoding, embedded_answers = decoding.reorder(rows), embedded_answers[rows]
            if t == 4:
                decoding, remaining_rows = decoding.keep(torch.tensor([0, 2])), torch.tensor([0, 1, 4, 5])
                embedded_answers, source = embedded_answers[remaining_rows], source[remaining_rows]


@parametrize_decoders
def test_halted_tokens_run_no_layer(raw: dict[str, Any]) -> None:
    """Decoding token by token runs as many layers as decoding the whole answer with early exit."""
    decoder = build(raw).eval().decoder
    y, y_mask, memory, memory_mask = unpadded_answers(WIDTH)
    run: list[int] = []
    block = decoder.blocks[0] if hasattr(decoder, "blocks") else decoder.block
    with torch.no_grad():
        computed = decoder(y, y_mask, memory, memory_mask).computed
        decoding = decoder.begin(memory, memory_mask, width=1, length_max=LENGTH)
        block.register_forward_pre_hook(lambda _, inputs: run.append(inputs[0].shape[0]))
        for t in range(LENGTH):
            _, decoding = decoder.extend(y[:, t], decoding)
    assert sum(run) * getattr(decoder.config, "layers", 1) == round(float(computed.sum()) * LENGTH)


@pytest.mark.parametrize(
    ("raw", "beam_size"),
    [
        pytest.param(raw, (1, 4)[number % 2], id=label)
        for number, (label, raw) in enumerate(CACHED_DECODERS.items())
    ],
)
def test_decoding_with_a_cache_equals_decoding_without(
    raw: dict[str, Any], beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = model_with_varied_answers(raw), synthetic_batch(SHAPE, 4, 9, seed=5)
    config = settings(beam_size=beam_size, length_penalty=1.0, decode_length_max=5)
    cached_answers = answers(model, batch, config)
    assert len({tuple(answer) for answer in cached_answers}) > 1, "the test needs different answers"
    parts = (batch.tokens, batch.mask, batch.labels)
    single_answers = [
        answers(model, Batch(*(part[row : row + 1] for part in parts)), config)[0] for row in range(4)
    ]
    assert single_answers == cached_answers
    monkeypatch.setattr(
        "trainables.decoding.search.hypotheses_of",
        lambda model, memory, mask, width, _: RecomputedHypotheses(model, memory, mask, width),
    )
    assert answers(model, batch, config) == cached_answers


@pytest.mark.parametrize("name", ["transformer", "universal"])
def test_greedy_decoding_equals_teacher_forcing(name: str) -> None:
    raw = {"name": name, "width": WIDTH, "heads": 2}
    model, batch = model_with_varied_answers(raw), synthetic_batch(SHAPE, 8, 9, seed=4)
    answers_ = answers(model, batch, settings())
    assert {len(answer) for answer in answers_} != {8}
    labels = torch.full((8, 9), NOT_ASKED)
    for row, answer in enumerate(answers_):
        labels[row, : len(answer) + 1] = torch.tensor([*answer, SHAPE.end_id])
    teacher_forced = model(Batch(batch.tokens, batch.mask, labels)).shares["accuracy_whole"]
    has_ended = torch.tensor([len(answer) < 8 for answer in answers_])
    assert teacher_forced[has_ended].all()


def test_answers_have_at_most_twice_the_length_of_training_answers() -> None:
    model, batch = (
        model_with_varied_answers({"name": "transformer", "width": WIDTH, "heads": 2}),
        synthetic_batch(SHAPE, 2, 9, 4),
    )
    model.readout.outer.bias.data[SHAPE.end_id] = -1e9
    assert [len(answer) for answer in answers(model, batch, train_config({"steps": 1}))] == [15, 15]
    assert [len(answer) for answer in answers(model, batch, settings(decode_length_max=3))] == [2, 2]
    assert [len(answer) for answer in answers(model, batch, settings(decode_length_max=1))] == [0, 0]
    assert [len(answer) for answer in answers(model, batch, settings(beam_size=4, decode_length_max=3))] == [
        2,
        2,
    ]
