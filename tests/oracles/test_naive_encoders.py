"""Every published model, and every interpretation of the papers, equals a naive implementation."""

from collections.abc import Sequence
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
    "ut": {"gate": False, "pooling": "mean", "halt": TOKEN_UT},
    "ut.no_halt": {"gate": False, "pooling": "mean", "halt": None, "max_layers": 4},
    "ut.prefix": {"gate": False, "pooling": "mean", "halt": TOKEN_UT | {"rule": "prefix"}},
    "gut": {},
    "gut.no_global_halt": {"halt": {"unit": "token"}},
    "gut.no_gate": {"gate": False},
    "gut.no_transition": {"halt": {"transition": False}},
    "gut.no_halt_upperbound": {"halt": None, "max_layers": 4},
    "gut.kv_from_s": {"kv": "mixture"},
    "gut.halt_origin_1": {"halt": {"origin": 1}},
    "gut.prefix": {"halt": {"rule": "prefix"}},
    "gut.prefix_origin_1_no_transition": {"halt": {"rule": "prefix", "origin": 1, "transition": False}},
    "gut.tokens_look_at_states": {"kv": "states", "halt": {"unit": "token"}},
    "gut.tokens_prefix_origin_1": {"halt": {"unit": "token", "rule": "prefix", "origin": 1}},
    "gut.low_threshold": {"halt": {"threshold": 0.6}},
    "transformer.causal": {"name": "transformer", "layers": 2, "causal": True},
    "ut.causal": {"gate": False, "pooling": "mean", "halt": TOKEN_UT, "causal": True},
    "gut.causal": {"causal": True, "halt": {"threshold": 0.6}},
    "gut.causal_halted_proposals": {"causal": True, "halt": PROPOSALS, "early_exit": "batch"},
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
    "tlb.causal": TLB | {"causal": True, "readout": "end", "memory": RANDOM},
    "tlb.causal_even": TLB | {"causal": True, "chunk": {"size": 3, "even": True}, "memory": RANDOM},
    "gutlb": GUTLB | {"memory": {"slots": 3}},
    "gutlb.random_slots": GUTLB,
    "gutlb.fixed_recurrence": GUTLB | {"chunk": {"by": "count", "count": 3}},
    "gutlb.end": GUTLB | {"readout": "end", "boundaries": True},
    "gutlb.no_halt": GUTLB | {"halt": None, "max_layers": 2},
    "gutlb.no_gate": GUTLB | {"gate": False},
    "gutlb.no_global_halt": GUTLB | {"halt": {"unit": "token"}},
    "gutlb.prefix": GUTLB | {"halt": {"rule": "prefix", "threshold": 0.9}},
    "gutlb.kv_from_s": GUTLB | {"kv": "mixture"},
    "gutlb.causal": GUTLB | {"causal": True, "readout": "mean", "halt": {"threshold": 0.6}},
    "gutlb.causal_halted_proposals": GUTLB
    | {"causal": True, "readout": "mean", "halt": PROPOSALS, "early_exit": "batch"},
}
RUNS = {
    "transformer": naive_transformer.run,
    "universal": naive_universal.run,
    "tlb": naive_chunked.run,
    "gutlb": naive_chunked.run,
}
LENGTHS, WIDTH, PADDED = (5, 1, 3), 10, 7
EXITS = ("compact", "batch", "none")
AUXILIARY_WEIGHT = 1.7
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


def has_halting(arm: str) -> bool:
    return not arm.startswith(("transformer", "tlb")) and ARMS[arm].get("halt", {}) is not None


def objective(pooled: Tensor, states: Sequence[Tensor], ponder: Tensor) -> Tensor:
    """Return a scalar in which every output of every sequence has a different weight."""
    parts = {2: pooled, 3: ponder} | dict(enumerate(states, 10))
    return sum(
        (part * torch.randn(part.shape, generator=stream(seed), dtype=torch.float64)).sum()
        for seed, part in parts.items()
    )


def stacked(naive_outputs: Sequence[Any], name: str) -> Tensor:
    return torch.stack([getattr(naive_output, name) for naive_output in naive_outputs])


def naive_objective(naive_outputs: Sequence[Any]) -> Tensor:
    states = [torch.stack(list(naive_output.states)) for naive_output in naive_outputs]
    return objective(stacked(naive_outputs, "pooled"), states, stacked(naive_outputs, "ponder"))


def gradients(module: nn.Module, inputs: dict[str, Tensor], value: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the inputs and parameters that affect the value."""
    tensors = inputs | dict(module.named_parameters())
    grads = torch.autograd.grad(value, list(tensors.values()), allow_unused=True)
    return {name: grad for name, grad in zip(tensors, grads, strict=True) if grad is not None}


def assert_equal_outputs(
    module: nn.Module,
    inputs: dict[str, Tensor],
    output: Encoded,
    naive_outputs: Sequence[Any],
    expected: dict[str, Tensor],
    auxiliary: Tensor | None = None,
) -> None:
    """Compare an output with those of single sequences, and its gradients with the expected ones."""
    rows = []
    for states, naive_output in zip(output.states, naive_outputs, strict=True):
        rows.append(states[: len(naive_output.states)])
        torch.testing.assert_close(rows[-1], torch.stack(list(naive_output.states)))
    for name in ("pooled", "ponder"):
        torch.testing.assert_close(getattr(output, name), stacked(naive_outputs, name))
    assert output.depth.tolist() == pytest.approx([naive_output.depth for naive_output in naive_outputs])
    value = objective(output.pooled, rows, output.ponder)
    if auxiliary is not None:
        torch.testing.assert_close(output.auxiliary, auxiliary.expand(len(naive_outputs)))
        value = value + AUXILIARY_WEIGHT * output.auxiliary.mean()
    torch.testing.assert_close(gradients(module, inputs, value), expected)


@pytest.mark.parametrize("arm", ARMS)
def test_model_equals_the_naive_implementation(arm: str) -> None:
    encoder, config = build(arm)
    x, _ = inputs()
    parameters, run = dict(encoder.named_parameters()), RUNS[config["name"]]
    naive_outputs = [run(parameters, config, row[:length]) for row, length in zip(x, LENGTHS, strict=True)]
    expected = gradients(encoder, {"x": x}, naive_objective(naive_outputs))
    modes = EXITS[config.get("early_exit") == "batch" :]
    if not has_halting(arm):
        modes = modes[:1]
    else:
        depths = {output.depth for output in naive_outputs}
        assert len(depths) > 1, "the test needs sequences of different depths"
        assert min(depths) < config["max_layers"]
    for mode in modes:
        encoder = build(arm, **({"early_exit": mode} if has_halting(arm) else {}))[0]
        x, mask = inputs()
        assert_equal_outputs(encoder, {"x": x}, encoder(x, mask), naive_outputs, expected)
