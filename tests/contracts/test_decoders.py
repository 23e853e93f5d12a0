"""What every decoder promises: each file in `trainables/models` that has one, in each way it can be set."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.contracts.test_models import ARMS, CASES, SEED, having, make_halting_differ
from trainables import catalog, costs
from trainables.assembly import build_model, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.types import Encoded, TaskShape

SHAPE = TaskShape(
    "sequence", vocabulary_size=9, num_classes=7, pad_id=8, length_max=9, end_id=6, answer_length_max=8
)
TIED = TaskShape(
    "sequence", 9, 9, pad_id=8, length_max=9, end_id=6, answer_length_max=8, shared_vocabulary=True
)
ROWS, LENGTH, SOURCES, WIDTH = 3, 8, 6, 12
LENGTHS, SOURCE_LENGTHS = (5, 8, 2), (6, 1, 4)

WRITING = {
    label: raw for label, raw in CASES.items() if hasattr(catalog.load("models", raw["name"]), "Decoder")
}
every_decoder = pytest.mark.parametrize("raw", WRITING.values(), ids=WRITING)
HALTING = {label: raw for label, raw in WRITING.items() if raw.get("halt") is not None}
every_halting_decoder = pytest.mark.parametrize("raw", HALTING.values(), ids=HALTING)
Answers = tuple[Tensor, Tensor, Tensor, Tensor]


def build(raw: dict[str, Any], shape: TaskShape = SHAPE, **more: Any) -> nn.Module:
    """In float64 and with halting made livelier, so that depths differ."""
    model = build_model(raw | more, shape, SEED).double()
    make_halting_differ(model)
    for name, parameter in model.named_parameters():
        if name.endswith("halt.outer.weight"):
            parameter.data.mul_(6.0)
    return model


def inputs(seed: int = 0) -> Answers:
    """Embedded answers and encoded inputs of different lengths."""
    stream = torch.Generator().manual_seed(seed)
    y = torch.randn(ROWS, LENGTH, WIDTH, generator=stream, dtype=torch.float64)
    memory = torch.randn(ROWS, SOURCES, WIDTH, generator=stream, dtype=torch.float64)
    y_mask = torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]
    return y, y_mask, memory, torch.arange(SOURCES) < torch.tensor(SOURCE_LENGTHS)[:, None]


def full(seed: int = 0) -> Answers:
    y, y_mask, memory, memory_mask = inputs(seed)
    return y, torch.ones_like(y_mask), memory, memory_mask


def test_there_are_decoders() -> None:
    assert {raw["name"] for raw in WRITING.values()} >= {"transformer", "universal", "sut"}
    assert ARMS.keys() & {raw["name"] for raw in WRITING.values()}


@every_decoder
def test_outputs_have_their_shapes_and_bounds(raw: dict[str, Any]) -> None:
    y, y_mask, memory, memory_mask = inputs()
    found: Encoded = build(raw).eval().decoder(y, y_mask, memory, memory_mask)
    assert found.states.shape == y.shape
    last = torch.tensor(LENGTHS) - 1
    assert torch.equal(found.pooled, found.states[torch.arange(ROWS), last])
    assert (found.depth >= 0).all()
    assert (found.depth <= found.computed + 1e-9).all()
    assert (found.computed <= found.bound).all()
    assert (found.ponder >= 0).all()
    assert not found.depth.requires_grad


@every_decoder
def test_no_output_depends_on_a_later_token(raw: dict[str, Any]) -> None:
    """Through attention, means, halting and experts; in training, where dropout keeps its masks."""
    model = build(having(raw, dropout=0.2, attention_dropout=0.2))
    y, y_mask, memory, memory_mask = full()
    for seen in (1, 5):
        outputs = []
        for later in (y[:, seen:], full(seed=1)[0][:, seen:] * 5):
            set_dropout_context(model.train(), seed=2, step=0)
            states = model.decoder(torch.cat((y[:, :seen], later), 1), y_mask, memory, memory_mask).states
            outputs.append(states[:, :seen])
        torch.testing.assert_close(outputs[0], outputs[1])


@every_decoder
def test_the_beginning_of_an_answer_is_written_without_its_end(raw: dict[str, Any]) -> None:
    """So that it can be written token by token; how deep its tokens go is decided then."""
    decoder = build(raw).eval().decoder
    y, y_mask, memory, memory_mask = full()
    whole = decoder(y, y_mask, memory, memory_mask)
    depth = torch.zeros(ROWS, dtype=whole.depth.dtype)
    for seen in (1, 3, LENGTH):
        part = decoder(y[:, :seen], y_mask[:, :seen], memory, memory_mask)
        torch.testing.assert_close(part.states, whole.states[:, :seen])
        assert (part.depth * seen - depth > -1e-4).all()
        depth = part.depth * seen
    torch.testing.assert_close(depth / LENGTH, whole.depth)


@every_decoder
def test_the_whole_input_is_seen_by_every_token_and_nothing_else(raw: dict[str, Any]) -> None:
    model = build(raw).eval()
    y, y_mask, memory, memory_mask = inputs()
    memory.requires_grad_()
    for column in (0, 1):
        states = model.decoder(y, y_mask, memory, memory_mask).states[:, column]
        (grad,) = torch.autograd.grad(states.square().sum(), memory)
        assert torch.equal(grad.abs().sum(-1) > 0, memory_mask)


@every_decoder
def test_padding_never_leaks(raw: dict[str, Any]) -> None:
    decoder = build(raw).eval().decoder
    y, y_mask, memory, memory_mask = inputs()
    clean = decoder(y, y_mask, memory, memory_mask)
    noisy = decoder(
        torch.where(y_mask[..., None], y, y + 100),
        y_mask,
        torch.where(memory_mask[..., None], memory, memory + 100),
        memory_mask,
    )
    wide = decoder(
        *(nn.functional.pad(each, (0, 0, 0, 3)[2 * (each.dim() == 2) :]) for each in (y, y_mask)),
        *(nn.functional.pad(each, (0, 0, 0, 2)[2 * (each.dim() == 2) :]) for each in (memory, memory_mask)),
    )
    for other in (noisy, wide):
        torch.testing.assert_close(other.states[:, :LENGTH][y_mask], clean.states[y_mask])
        torch.testing.assert_close(other.pooled, clean.pooled)
        torch.testing.assert_close(other.depth, clean.depth)
        torch.testing.assert_close(other.ponder, clean.ponder)


@every_decoder
def test_an_answer_does_not_depend_on_its_batch(raw: dict[str, Any]) -> None:
    decoder = build(raw).eval().decoder
    together = decoder(*inputs())
    for row in range(ROWS):
        alone = decoder(*(each[row : row + 1] for each in inputs()))
        length = LENGTHS[row]
        torch.testing.assert_close(alone.states[0, :length], together.states[row, :length])
        torch.testing.assert_close(alone.ponder, together.ponder[row : row + 1])


def train(model: nn.Module, step: int) -> tuple[Tensor, dict[str, Tensor]]:
    set_dropout_context(model.train(), SEED, step)
    output = model(synthetic_batch(model.shape, 5, 9, seed=step))
    auxiliary = 0 if output.encoded.auxiliary is None else output.encoded.auxiliary
    value = output.loss + 0.1 * output.encoded.ponder + 0.1 * auxiliary
    model.zero_grad()
    value.sum().backward()
    return value.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@every_decoder
@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_gets_a_gradient(raw: dict[str, Any], tied: bool) -> None:
    model = build(having(raw, dropout=0.1, attention_dropout=0.1, tied_output=tied), TIED if tied else SHAPE)
    _, gradients = train(model, step=1)
    assert [name for name, _ in model.named_parameters() if name not in gradients] == []
    assert [name for name, gradient in gradients.items() if not gradient.any()] == []


@every_halting_decoder
def test_early_exit_modes_agree(raw: dict[str, Any]) -> None:
    results = {
        mode: train(build(having(raw, early_exit=mode, dropout=0.2, attention_dropout=0.1)), step=1)
        for mode in ("none", "batch", "compact")
    }
    value, gradients = results["none"]
    for other, other_gradients in (results["batch"], results["compact"]):
        torch.testing.assert_close(other, value)
        for name, gradient in gradients.items():
            torch.testing.assert_close(other_gradients[name], gradient)


@every_decoder
def test_flops_are_what_the_counter_counts(raw: dict[str, Any]) -> None:
    tied = [*WRITING.values()].index(raw) % 2 == 1
    shape = TIED if tied else SHAPE
    raw = having(raw, attention="math", kernel="math", early_exit="none", tied_output=tied)
    config = model_config(raw)
    model = build_model(config, shape, SEED).eval()
    given = synthetic_batch(shape, 1, 9, seed=0)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(given)
    layers = costs.depth_range(config, 9)[1]
    assert costs.flops(config, shape, 9, layers) == counter.get_total_flops()


@every_decoder
def test_memory_is_estimated_within_a_factor_of_one_and_a_half(raw: dict[str, Any]) -> None:
    config = model_config(having(raw, width=24, feedforward_width=40, head_width=8))
    model = build_model(config, SHAPE, SEED)
    set_dropout_context(model, seed=0, step=0)
    storages: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    given = synthetic_batch(SHAPE, 30, 9, seed=0)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = model(given)
    assert output.loss.requires_grad
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = sum(size for pointer, size in storages.items() if pointer not in weights)
    filled = (given.mask.sum() + (given.labels >= 0).sum()) / (given.mask.numel() + given.labels.numel())
    own = costs.ADAM_COPIES * costs.FLOAT_BYTES * costs.parameters(model)
    estimate = (costs.peak_memory_bytes(config, SHAPE, 30, 9) - own) * float(filled)
    assert 1 / 1.5 < estimate / kept < 1.5
