"""Every published model, and every interpretation of the papers, equals a naive implementation."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import naive_chunked, naive_transformer, naive_universal
from trainables import catalog
from trainables.assembly import initialise, model_config
from trainables.types import Encoded

TOKEN_UT = {"unit": "token", "transition": False}
PROPOSALS = {"threshold": 0.6, "halted_proposals": True}
RANDOM = {"slots": 3, "start": "random"}
TLB: dict[str, Any] = {"name": "tlb", "chunk": {"size": 2}, "memory": {"slots": 3, "update_layers": 2}}
GUTLB: dict[str, Any] = {"name": "gutlb", "chunk": {"size": 3}, "memory": RANDOM}
ARMS: dict[str, dict[str, Any]] = {
    "transformer": {"name": "transformer", "layers": 3},
    "transformer.end_pool": {"name": "transformer", "layers": 2, "pooling": "end"},
    "transformer.start_pool": {"name": "transformer", "layers": 2, "pooling": "start"},
    "ut": {"gate": False, "pooling": "mean", "halt": TOKEN_UT},
    "ut.no_halt": {"gate": False, "pooling": "mean", "halt": None, "max_layers": 4},
    "ut.end_pool": {"gate": False, "halt": TOKEN_UT},
    "ut.prefix": {"gate": False, "pooling": "mean", "halt": TOKEN_UT | {"rule": "prefix"}},
    "ut.origin_1": {"gate": False, "pooling": "mean", "halt": TOKEN_UT | {"origin": 1}},
    "gut": {},
    "gut.no_global_halt": {"halt": {"unit": "token"}},
    "gut.no_gate": {"gate": False},
    "gut.no_transition": {"halt": {"transition": False}},
    "gut.upperbound": {"early_exit": "none"},
    "gut.no_halt_upperbound": {"halt": None, "max_layers": 4},
    "gut.mean_pool": {"pooling": "mean"},
    "gut.kv_from_s": {"kv": "mixture"},
    "gut.halt_origin_1": {"halt": {"origin": 1}},
    "gut.prefix": {"halt": {"rule": "prefix"}},
    "gut.prefix_origin_1_no_transition": {"halt": {"rule": "prefix", "origin": 1, "transition": False}},
    "gut.tokens_look_at_states": {"kv": "states", "halt": {"unit": "token"}},
    "gut.tokens_prefix": {"halt": {"unit": "token", "rule": "prefix"}},
    "gut.tokens_prefix_origin_1": {"halt": {"unit": "token", "rule": "prefix", "origin": 1}},
    "gut.low_threshold": {"halt": {"threshold": 0.6}},
    "transformer.causal": {"name": "transformer", "layers": 2, "causal": True},
    "ut.causal": {"gate": False, "pooling": "mean", "halt": TOKEN_UT, "causal": True},
    "gut.causal": {"causal": True, "halt": {"threshold": 0.6}},
    "gut.causal_halted_proposals": {"causal": True, "halt": PROPOSALS, "early_exit": "batch"},
    "gut.causal_halted_proposals_prefix": {
        "causal": True,
        "halt": PROPOSALS | {"rule": "prefix"},
        "early_exit": "batch",
    },
    "gut.causal_no_transition": {"causal": True, "halt": {"transition": False}},
    "gut.causal_prefix": {"causal": True, "halt": {"rule": "prefix", "threshold": 0.6}},
    "gut.causal_kv_from_s": {"causal": True, "kv": "mixture", "halt": {"threshold": 0.6}},
    "gut.causal_no_global_halt": {"causal": True, "halt": {"unit": "token"}},
    "gut.causal_no_halt": {"causal": True, "halt": None, "max_layers": 3},
    "tlb": TLB,
    "tlb.random_slots": TLB | {"memory": RANDOM},
    "tlb.slot_positions": TLB | {"memory": {"slots": 3, "slot_positions": True}},
    "tlb.fixed_recurrence": TLB | {"chunk": {"by": "count", "count": 2}, "memory": RANDOM},
    "tlb.full_chunks": TLB | {"chunk": {"size": 3, "even": False}, "memory": RANDOM},
    "tlb.boundaries_last_slot": TLB | {"boundaries": True, "readout": "last-slot", "memory": RANDOM},
    "tlb.boundaries_end": TLB | {"boundaries": True, "readout": "end", "memory": RANDOM},
    "tlb.boundaries_start": TLB | {"boundaries": True, "readout": "start", "memory": RANDOM},
    "tlb.causal": TLB | {"causal": True, "readout": "end", "memory": RANDOM},
    "tlb.causal_as_many_slots_as_tokens": TLB | {"causal": True, "memory": RANDOM | {"slots": 2}},
    "tlb.causal_even": TLB | {"causal": True, "chunk": {"size": 3, "even": True}, "memory": RANDOM},
    "gutlb": GUTLB | {"memory": {"slots": 3}},
    "gutlb.random_slots": GUTLB,
    "gutlb.fixed_recurrence": GUTLB | {"chunk": {"by": "count", "count": 3}},
    "gutlb.end": GUTLB | {"readout": "end", "boundaries": True},
    "gutlb.no_halt": GUTLB | {"halt": None, "max_layers": 2},
    "gutlb.no_gate": GUTLB | {"gate": False},
    "gutlb.no_global_halt": GUTLB | {"halt": {"unit": "token"}},
    "gutlb.no_transition": GUTLB | {"halt": {"transition": False}},
    "gutlb.prefix": GUTLB | {"halt": {"rule": "prefix", "threshold": 0.9}},
    "gutlb.kv_from_s": GUTLB | {"kv": "mixture"},
    "gutlb.causal": GUTLB | {"causal": True, "readout": "mean", "halt": {"threshold": 0.6}},
    "gutlb.causal_halted_proposals": GUTLB
    | {"causal": True, "readout": "mean", "halt": PROPOSALS, "early_exit": "batch"},
    "gutlb.causal_no_global_halt": GUTLB | {"causal": True, "halt": {"unit": "token"}},
}
RUNS = {
    "transformer": naive_transformer.run,
    "universal": naive_universal.run,
    "tlb": naive_chunked.run,
    "gutlb": naive_chunked.run,
}
LENGTHS, WIDTH, PADDED = (5, 1, 3), 10, 7
ODD_SIZES = {"width": WIDTH, "heads": 2, "head_width": 4, "feedforward_width": 7}


def build(arm: str, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    raw = {"name": "universal"} | ODD_SIZES | ARMS[arm] | options
    if "max_layers" in catalog.load("models", raw["name"]).Config.model_fields:
        raw = {"max_layers": 7} | raw
    config = model_config(raw)
    encoder = catalog.load("models", raw["name"]).Encoder(config).double()
    initialise(encoder, seed=5)
    # Larger weights make units halt at different depths.
    return perturb_parameters(encoder, {"halt.outer.weight": 6.0}), config.model_dump() | resolved_kv(config)


def perturb_parameters(
    module: nn.Module, scaled: dict[str, float], noisy: tuple[str, ...] = ("norm.weight", "bias")
) -> nn.Module:
    """Add noise to some parameters and multiply others, so that every parameter affects the result."""
    for name, parameter in module.named_parameters():
        if name.endswith(noisy):
            parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=stream(len(name))))
        parameter.data.mul_(next((factor for suffix, factor in scaled.items() if name.endswith(suffix)), 1.0))
    return module.eval()


def resolved_kv(config: Any) -> dict[str, Any]:
    return {"kv": "mixture" if config.sees_mixture else "states"} if hasattr(config, "kv") else {}


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64)
    mask = torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]
    return x.requires_grad_(), mask


def objective(pooled: Tensor, states: list[Tensor], ponder: Tensor) -> Tensor:
    """Return a scalar in which every output of every sequence has a different weight."""
    total = (pooled * torch.randn(pooled.shape, generator=stream(2), dtype=torch.float64)).sum()
    total = total + (ponder * torch.randn(ponder.shape, generator=stream(3), dtype=torch.float64)).sum()
    for number, row_states in enumerate(states):
        total = (
            total
            + (
                row_states * torch.randn(row_states.shape, generator=stream(10 + number), dtype=torch.float64)
            ).sum()
        )
    return total


def naive(encoder: nn.Module, config: dict[str, Any], x: Tensor) -> list[naive_universal.NaiveOutput]:
    run = RUNS[config["name"]]
    parameters = dict(encoder.named_parameters())
    return [run(parameters, config, row[:length]) for row, length in zip(x, LENGTHS, strict=True)]


def gradients(encoder: nn.Module, x: Tensor, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    grads = torch.autograd.grad(value, [x, *parameters], allow_unused=True)
    return {name: grad for name, grad in zip(["x", *names], grads, strict=True) if grad is not None}


def has_halting(arm: str) -> bool:
    return not arm.startswith(("transformer", "tlb")) and ARMS[arm].get("halt", {}) is not None


def early_exits(arm: str) -> list[dict[str, Any]]:
    if not has_halting(arm):
        return [{}]
    has_halted_proposals = ARMS[arm].get("halt", {}).get("halted_proposals", False)
    return [{"early_exit": mode} for mode in ("compact", "batch", "none")[has_halted_proposals:]]


@pytest.mark.parametrize("arm", ARMS)
def test_model_equals_the_naive_implementation(arm: str) -> None:
    encoder, config = build(arm)
    x, _ = inputs()
    naive_outputs = naive(encoder, config, x)
    value = objective(
        torch.stack([output.pooled for output in naive_outputs]),
        [torch.stack(output.states) for output in naive_outputs],
        torch.stack([output.ponder for output in naive_outputs]),
    )
    expected = gradients(encoder, x, value)
    if has_halting(arm):
        depths = {output.depth for output in naive_outputs}
        assert len(depths) > 1, "the test needs sequences of different depths"
        assert min(depths) < config["max_layers"]
    for options in early_exits(arm):
        assert_equal_outputs(build(arm, **options)[0], naive_outputs, expected)


def assert_equal_outputs(
    encoder: nn.Module, naive_outputs: list[naive_universal.NaiveOutput], expected: dict[str, Tensor]
) -> None:
    x, mask = inputs()
    output: Encoded = encoder(x, mask)
    rows = [
        states[: len(naive_output.states)]
        for states, naive_output in zip(output.states, naive_outputs, strict=True)
    ]
    for row, naive_output in zip(rows, naive_outputs, strict=True):
        torch.testing.assert_close(row, torch.stack(naive_output.states))
    torch.testing.assert_close(
        output.pooled, torch.stack([naive_output.pooled for naive_output in naive_outputs])
    )
    torch.testing.assert_close(
        output.ponder, torch.stack([naive_output.ponder for naive_output in naive_outputs])
    )
    assert output.depth.tolist() == pytest.approx([naive_output.depth for naive_output in naive_outputs])
    grads = gradients(encoder, x, objective(output.pooled, rows, output.ponder))
    assert grads.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(grads[name], grad, msg=lambda text, name=name: f"{name}: {text}")
