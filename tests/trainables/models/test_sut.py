"""Settings of the Sparse Universal Transformer, its use of experts, its halting, and its decoder."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from trainables import costs
from trainables.assembly import build_model, initialise, model_config
from trainables.layers.experts import ExpertLinear, ExpertRows
from trainables.layers.halting import HaltingState, States, decide, keep
from trainables.models.sut import Config, Decoder, decoder_flops, forward_flops
from trainables.types import Batch, Encoded, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
ATTENTION = {"experts": 4, "active": 2, "heads": 2, "head_width": 4, "window": 2}
FEEDFORWARD = {"experts": 6, "active": 3, "width": 5}
SMALL: dict[str, Any] = {
    "name": "sut",
    "width": 16,
    "max_layers": 5,
    "attention": ATTENTION,
    "feedforward": FEEDFORWARD,
}
LENGTHS = (3, 1, 6)


def batch() -> Batch:
    tokens = torch.arange(18).reshape(3, 6) % 10
    return Batch(tokens, torch.arange(6) < torch.tensor(LENGTHS)[:, None], tokens[:, 0])


def model(halts: float | None = None, **changes: Any) -> nn.Module:
    """Build a model; with `halts`, the logits of every gate differ by this number in every state."""
    sut = build_model(SMALL | changes, SHAPE, 0).double().eval()
    if halts is not None:
        gate = sut.encoder.halt
        gate.inner.weight.data.zero_()
        gate.inner.bias.data.fill_(20.0)
        gate.outer.weight.data[1] = halts / (16 * 20.0)
    return sut


def perturbed_model(**changes: Any) -> nn.Module:
    sut = model(**changes)
    weight = sut.encoder.halt.outer.weight
    weight.data[1].uniform_(0, 1.5, generator=torch.Generator().manual_seed(1))
    return sut


def decoder(**changes: Any) -> Decoder:
    sut_decoder = Decoder(model_config(SMALL | changes))
    initialise(sut_decoder, 1)
    return sut_decoder.double().eval()


def sequences(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), 16, generator=stream, dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_defaults_equal_the_published_base_model() -> None:
    config = Config()
    assert (config.width, config.max_layers, config.dropout, config.gating_dropout) == (512, 6, 0.2, 0.2)
    assert config.attention.model_dump() == {
        "experts": 24,
        "active": 4,
        "sampled": 0,
        "heads": 4,
        "head_width": 64,
        "window": 64,
    }
    assert config.feedforward.model_dump() == {"experts": 24, "active": 4, "sampled": 0, "width": 512}
    assert config.halt is not None
    assert config.halt.threshold == 0.999
    assert (config.norm, config.balance) == ("post", "mutual-information")


def test_gates_start_at_one_half() -> None:
    """The expected number of layers is 1/2 + 2/4 + 3/8 + 4/16, plus 5 times the remaining sixteenth."""
    encoded = model()(batch()).encoded
    assert encoded.ponder.tolist() == pytest.approx([1 / 2 + 2 / 4 + 3 / 8 + 4 / 16 + 5 / 16] * 3)
    assert encoded.depth.tolist() == [5.0] * 3


def released_ponder(hats: list[float], threshold: float) -> float:
    """Return the ponder cost of the released code for gate values `hats` of states 1 to L - 1.

    The cost adds (j - 1) a_j for every gate, also after the gate that halts the token. If the token has not
    halted, it adds (L - 1) times the remaining probability.
    """
    remaining, cost = 1.0, 0.0
    for number, hat in enumerate(hats):
        cost += remaining * hat * number
        remaining *= 1 - hat
    return cost + (len(hats) * remaining if remaining >= 1 - threshold else 0.0)


def ponder_of_gates(hats: list[float], threshold: float) -> tuple[float, int]:
    """Return the ponder cost that haltsweep computes for the token, and its number of layers."""
    cap = torch.tensor([len(hats) + 1])
    halting = HaltingState.begin(cap, torch.float64, delay=0)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    states = States(nothing, nothing, nothing, None)
    for hat in [0.0, *hats]:
        p = torch.tensor([hat], dtype=torch.float64)
        halting, *_ = keep(halting, decide(halting, p, threshold, "undo"), states)
    return float(halting.ponder), int(halting.num_kept)


@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.999])
def test_ponder_differs_from_the_released_code_as_documented(threshold: float) -> None:
    """The difference is 1 for a token that runs all layers, else at most (1 - threshold) (L - 2)."""
    layers, rest = 12, 1 - threshold
    for seed in range(200):
        stream = torch.Generator().manual_seed(seed)
        scale = torch.rand(1, generator=stream)
        hats = (torch.rand(layers - 1, generator=stream, dtype=torch.float64) * scale).tolist()
        ours, kept = ponder_of_gates(hats, threshold)
        apart = ours - 1 - released_ponder(hats, threshold)
        assert abs(apart) <= (rest * (layers - 2) if kept < layers else 0) + 1e-12
    late = [0.0] * (layers - 2) + [threshold + 1e-9]
    at_once = [threshold + 1e-9] + [0.0] * (layers - 3) + [1.0]
    for hats, sign in ((late, 1), (at_once, -1)):
        apart = ponder_of_gates(hats, threshold)[0] - 1 - released_ponder(hats, threshold)
        assert apart * sign == pytest.approx(rest * (layers - 2), rel=1e-4)
        assert abs(apart) > rest


def test_gate_that_always_halts_runs_one_layer() -> None:
    encoded = model(halts=50.0)(batch()).encoded
    assert encoded.depth.tolist() == encoded.computed.tolist() == encoded.ponder.tolist() == [1.0] * 3
    never = model(halts=-50.0, max_layers=1)(batch()).encoded
    torch.testing.assert_close(encoded.states, never.states)


def test_gate_that_never_halts_equals_no_halting() -> None:
    never, without = model(halts=-60.0)(batch()).encoded, model(halt=None)(batch()).encoded
    torch.testing.assert_close(never.states, without.states)
    torch.testing.assert_close(never.auxiliary, without.auxiliary)
    assert never.ponder.tolist() == pytest.approx([5.0] * 3)
    assert without.ponder.tolist() == [0.0] * 3


def test_experts_are_not_called_for_halted_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expert map gets each token once in each of its layers and experts."""
    rows: list[int] = []
    forward = ExpertLinear.forward

    def count_rows(self: ExpertLinear, x: Tensor, groups: ExpertRows) -> Tensor:
        assert sum(groups.host_counts) == x.shape[0]
        rows.append(x.shape[0])
        return forward(self, x, groups)

    monkeypatch.setattr(ExpertLinear, "forward", count_rows)
    encoded = perturbed_model(halt={"threshold": 0.7})(batch()).encoded
    run = sum(
        layers * (length + 2) for layers, length in zip(encoded.computed.tolist(), LENGTHS, strict=True)
    )
    assert encoded.computed.max() < 5
    assert encoded.depth.tolist() == encoded.computed.tolist()
    assert sum(rows) == pytest.approx(run * 2 * (ATTENTION["active"] + FEEDFORWARD["active"]))


def test_lower_threshold_halts_earlier() -> None:
    depths = [perturbed_model(halt={"threshold": x})(batch()).encoded.depth.mean() for x in (0.4, 0.8, 0.999)]
    assert depths[0] < depths[1] < depths[2]


@pytest.mark.parametrize(
    ("changes", "changed"),
    [
        ({"balance": "switch"}, set()),
        ({"halt": None}, {"halt"}),
        ({"attention": ATTENTION | {"experts": 8, "active": 4, "heads": 1}}, {"attention"}),
        ({"attention": ATTENTION | {"experts": 1, "active": 1}}, {"attention"}),
        ({"feedforward": FEEDFORWARD | {"experts": 1, "active": 1}}, {"feedforward"}),
        ({"norm": "pre"}, {"norm"}),
        ({"position_layout": "halves"}, set()),
        ({"absolute_positions": False}, set()),
        ({"causal": True}, {"boundaries"}),
    ],
)
def test_arm_changes_only_its_part(changes: dict[str, Any], changed: set[str]) -> None:
    groups = costs.parameters_by_group(build_model(SMALL, SHAPE, 0, "meta"))
    changed_groups = costs.parameters_by_group(build_model(SMALL | changes, SHAPE, 0, "meta"))
    different = {group for group in groups | changed_groups if groups.get(group) != changed_groups.get(group)}
    assert different == changed


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"attention": {"experts": 3}}, "active=4 and experts=3"),
        ({"kernel": "flash"}, "kernel .*'flash'"),
        ({"causal": True, "pooling": "start"}, "pooling='start' and causal=True"),
        ({"halt": {"threshold": 0.0}}, r"halt.threshold.*\n.*greater_than"),
        ({"absolute_positions": False, "position_layout": "halves"}, "absolute_positions=False and"),
        ({"feedforward": {"heads": 2}}, r"feedforward.heads.*\n.*extra_forbidden"),
    ],
)
def test_impossible_settings_raise_an_error(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        model_config(SMALL | changes)


def test_flops_of_an_immediate_halt_equal_the_least_depth() -> None:
    sut = model(halts=50.0, kernel="math")
    config, (x, mask) = sut.encoder.config, sequences(7)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoded: Encoded = sut.encoder(x, mask)
    least, _ = costs.depth_range(config, 7)
    assert encoded.computed.tolist() == [least] == [1]
    # The model also projects keys and values of the final states, which no token uses.
    last = 2 * 2 * (7 + 2) * 16 * 8
    assert forward_flops(config, 7, 1) <= counter.get_total_flops() <= forward_flops(config, 7, 1) + last


def test_flops_of_a_decoder_equal_the_count_of_pytorch() -> None:
    sut_decoder = decoder(kernel="math", early_exit="none")
    y, y_mask = sequences(7)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        sut_decoder(y, y_mask, *sequences(4, seed=1))
    assert decoder_flops(sut_decoder.config, 7, 4, 5) == counter.get_total_flops()


@pytest.mark.parametrize("mode", ["compact", "none"])
def test_decoder_ignores_later_tokens(mode: str) -> None:
    sut_decoder = decoder(early_exit=mode, halt={"threshold": 0.7})
    sut_decoder.halt.outer.weight.data[1].uniform_(0, 1.5, generator=torch.Generator().manual_seed(1))
    (y, mask), (memory, memory_mask) = sequences(6, 6), sequences(3, 5, seed=1)
    states = sut_decoder(y, mask, memory, memory_mask)
    assert states.depth.max() < 5
    for length in (1, 4):
        part = sut_decoder(y[:, :length], mask[:, :length], memory, memory_mask)
        torch.testing.assert_close(part.states, states.states[:, :length])
        torch.testing.assert_close(part.pooled, states.states[:, length - 1])
    y.requires_grad_()
    (grad,) = torch.autograd.grad(sut_decoder(y, mask, memory, memory_mask).states[:, :3].sum(), y)
    assert not grad[:, 3:].any()


def test_decoder_attends_to_the_whole_source_without_padding() -> None:
    sut_decoder = decoder()
    (y, mask), (memory, memory_mask) = sequences(2, 4), sequences(3, 5, seed=1)
    clean = sut_decoder(y, mask, memory, memory_mask)
    noisy = torch.where(memory_mask[..., None], memory, 100.0), memory_mask
    torch.testing.assert_close(
        sut_decoder(torch.where(mask[..., None], y, 100.0), mask, *noisy).states, clean.states
    )
    wider = nn.functional.pad(memory, (0, 0, 0, 3)), nn.functional.pad(memory_mask, (0, 3))
    torch.testing.assert_close(sut_decoder(y, mask, *wider).states, clean.states)
    memory.requires_grad_()
    (grad,) = torch.autograd.grad(sut_decoder(y, mask, memory, memory_mask).states[:, 0].sum(), memory)
    assert (grad.abs().sum(-1) > 0).tolist() == memory_mask.tolist()
