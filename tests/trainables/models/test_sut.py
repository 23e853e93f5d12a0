"""Settings of the Sparse Universal Transformer, whom it calls, how it halts, and what its decoder sees."""

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
    """With `halts`, every gate's logits are that much apart, whatever the state."""
    built = build_model(SMALL | changes, SHAPE, 0).double().eval()
    if halts is not None:
        gate = built.encoder.halt
        gate.inner.weight.data.zero_()
        gate.inner.bias.data.fill_(20.0)
        gate.outer.weight.data[1] = halts / (16 * 20.0)
    return built


def lively(**changes: Any) -> nn.Module:
    built = model(**changes)
    weight = built.encoder.halt.outer.weight
    weight.data[1].uniform_(0, 1.5, generator=torch.Generator().manual_seed(1))
    return built


def decoder(**changes: Any) -> Decoder:
    built = Decoder(model_config(SMALL | changes))
    initialise(built, 1)
    return built.double().eval()


def sequences(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), 16, generator=stream, dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_defaults_are_the_published_base_model() -> None:
    found = Config()
    assert (found.width, found.max_layers, found.dropout, found.gating_dropout) == (512, 6, 0.2, 0.2)
    assert found.attention.model_dump() == {
        "experts": 24,
        "active": 4,
        "sampled": 0,
        "heads": 4,
        "head_width": 64,
        "window": 64,
    }
    assert found.feedforward.model_dump() == {"experts": 24, "active": 4, "sampled": 0, "width": 512}
    assert found.halt is not None
    assert found.halt.threshold == 0.999
    assert (found.norm, found.balance) == ("post", "mutual-information")


def test_gates_start_at_one_half() -> None:
    """The expected number of layers is then 1/2 + 2/4 + 3/8 + 4/16, and 5 with the sixteenth that is left."""
    encoded = model()(batch()).encoded
    assert encoded.ponder.tolist() == pytest.approx([1 / 2 + 2 / 4 + 3 / 8 + 4 / 16 + 5 / 16] * 3)
    assert encoded.depth.tolist() == [5.0] * 3


def released_ponder(hats: list[float], threshold: float) -> float:
    """What the released code charges a token for gates that say `hats` of states 1 to L - 1.

    It adds (j - 1) a_j for every gate, also behind the one that halts the token, and (L - 1) times what is
    left in the end unless the token has halted by then.
    """
    left, charged = 1.0, 0.0
    for number, hat in enumerate(hats):
        charged += left * hat * number
        left *= 1 - hat
    return charged + (len(hats) * left if left >= 1 - threshold else 0.0)


def ponder_of_gates(hats: list[float], threshold: float) -> tuple[float, int]:
    """Our cost of the same token, and the layers it keeps."""
    cap = torch.tensor([len(hats) + 1])
    halting = HaltingState.begin(cap, torch.float64, delay=0)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    states = States(nothing, nothing, nothing, None)
    for hat in [0.0, *hats]:
        p = torch.tensor([hat], dtype=torch.float64)
        halting, *_ = keep(halting, decide(halting, p, threshold, "undo"), states)
    return float(halting.ponder), int(halting.kept)


@pytest.mark.parametrize("threshold", [0.5, 0.9, 0.999])
def test_ponder_differs_from_the_released_one_by_what_the_documentation_says(threshold: float) -> None:
    """1 for a token that runs all layers; else within (1 - threshold) (L - 2) of it, almost reached."""
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


def test_a_gate_that_always_halts_keeps_the_first_layer() -> None:
    one = model(halts=50.0)(batch()).encoded
    assert one.depth.tolist() == one.computed.tolist() == one.ponder.tolist() == [1.0] * 3
    never = model(halts=-50.0, max_layers=1)(batch()).encoded
    torch.testing.assert_close(one.states, never.states)


def test_a_gate_that_never_halts_is_the_model_without_halting() -> None:
    never, without = model(halts=-60.0)(batch()).encoded, model(halt=None)(batch()).encoded
    torch.testing.assert_close(never.states, without.states)
    torch.testing.assert_close(never.auxiliary, without.auxiliary)
    assert never.ponder.tolist() == pytest.approx([5.0] * 3)
    assert without.ponder.tolist() == [0.0] * 3


def test_no_expert_is_called_for_tokens_that_have_halted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expert map sees each token once a layer it computes, for each of its experts, and no more."""
    rows: list[int] = []
    forward = ExpertLinear.forward

    def counted(self: ExpertLinear, x: Tensor, groups: ExpertRows) -> Tensor:
        assert sum(groups.host_counts) == x.shape[0]
        rows.append(x.shape[0])
        return forward(self, x, groups)

    monkeypatch.setattr(ExpertLinear, "forward", counted)
    encoded = lively(halt={"threshold": 0.7})(batch()).encoded
    run = sum(
        layers * (length + 2) for layers, length in zip(encoded.computed.tolist(), LENGTHS, strict=True)
    )
    assert encoded.computed.max() < 5
    assert encoded.depth.tolist() == encoded.computed.tolist()
    assert sum(rows) == pytest.approx(run * 2 * (ATTENTION["active"] + FEEDFORWARD["active"]))


def test_a_lower_threshold_halts_earlier() -> None:
    depths = [lively(halt={"threshold": x})(batch()).encoded.depth.mean() for x in (0.4, 0.8, 0.999)]
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
def test_an_arm_changes_its_own_part_and_no_other(changes: dict[str, Any], changed: set[str]) -> None:
    groups = costs.parameters_by_group(build_model(SMALL, SHAPE, 0, "meta"))
    others = costs.parameters_by_group(build_model(SMALL | changes, SHAPE, 0, "meta"))
    found = {group for group in groups | others if groups.get(group) != others.get(group)}
    assert found == changed


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"attention": {"experts": 3}}, "active must be at most experts, got active=4 and experts=3; lower"),
        ({"kernel": "flash"}, "kernel must be auto, sdpa or math, got 'flash', which cannot do relative"),
        ({"causal": True, "pooling": "start"}, "got pooling='start' and causal=True"),
        ({"halt": {"threshold": 0.0}}, "greater than 0"),
        (
            {"absolute_positions": False, "position_layout": "halves"},
            "position_layout requires absolute positions, got absolute_positions=False and",
        ),
        ({"feedforward": {"heads": 2}}, "Extra inputs are not permitted"),
    ],
)
def test_impossible_settings_say_what_must_hold(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        model_config(SMALL | changes)


def test_flops_of_an_immediate_halt_are_those_of_the_least_depth() -> None:
    built = model(halts=50.0, kernel="math")
    config, (x, mask) = built.encoder.config, sequences(7)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoded: Encoded = built.encoder(x, mask)
    least, _ = costs.depth_range(config, 7)
    assert encoded.computed.tolist() == [least] == [1]
    # Keys and values of the final states are made for others, who never come.
    last = 2 * 2 * (7 + 2) * 16 * 8
    assert forward_flops(config, 7, 1) <= counter.get_total_flops() <= forward_flops(config, 7, 1) + last


def test_flops_of_a_decoder_are_what_the_counter_counts() -> None:
    built = decoder(kernel="math", early_exit="none")
    y, y_mask = sequences(7)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        built(y, y_mask, *sequences(4, seed=1))
    assert decoder_flops(built.config, 7, 4, 5) == counter.get_total_flops()


@pytest.mark.parametrize("mode", ["compact", "none"])
def test_a_decoder_sees_nothing_that_comes_later(mode: str) -> None:
    built = decoder(early_exit=mode, halt={"threshold": 0.7})
    built.halt.outer.weight.data[1].uniform_(0, 1.5, generator=torch.Generator().manual_seed(1))
    (y, mask), (memory, memory_mask) = sequences(6, 6), sequences(3, 5, seed=1)
    whole = built(y, mask, memory, memory_mask)
    assert whole.depth.max() < 5
    for seen in (1, 4):
        part = built(y[:, :seen], mask[:, :seen], memory, memory_mask)
        torch.testing.assert_close(part.states, whole.states[:, :seen])
        torch.testing.assert_close(part.pooled, whole.states[:, seen - 1])
    y.requires_grad_()
    (grad,) = torch.autograd.grad(built(y, mask, memory, memory_mask).states[:, :3].sum(), y)
    assert not grad[:, 3:].any()


def test_a_decoder_sees_all_of_its_source_and_no_padding() -> None:
    built = decoder()
    (y, mask), (memory, memory_mask) = sequences(2, 4), sequences(3, 5, seed=1)
    clean = built(y, mask, memory, memory_mask)
    noisy = torch.where(memory_mask[..., None], memory, 100.0), memory_mask
    torch.testing.assert_close(
        built(torch.where(mask[..., None], y, 100.0), mask, *noisy).states, clean.states
    )
    wider = nn.functional.pad(memory, (0, 0, 0, 3)), nn.functional.pad(memory_mask, (0, 3))
    torch.testing.assert_close(built(y, mask, *wider).states, clean.states)
    memory.requires_grad_()
    (grad,) = torch.autograd.grad(built(y, mask, memory, memory_mask).states[:, 0].sum(), memory)
    assert (grad.abs().sum(-1) > 0).tolist() == memory_mask.tolist()
