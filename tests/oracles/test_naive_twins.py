"""Every published system and every other reading, against its naive twin: values and all gradients."""

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


def build(arm: str, **more: Any) -> tuple[nn.Module, dict[str, Any]]:
    raw = {"name": "universal"} | ODD_SIZES | ARMS[arm] | more
    if "max_layers" in catalog.load("models", raw["name"]).Config.model_fields:
        raw = {"max_layers": 7} | raw
    config = model_config(raw)
    encoder = catalog.load("models", raw["name"]).Encoder(config).double()
    initialise(encoder, seed=5)
    # Units halt at different depths.
    return beyond_initial(encoder, {"halt.outer.weight": 6.0}), config.model_dump() | resolved(config)


def beyond_initial(
    module: nn.Module, scaled: dict[str, float], noisy: tuple[str, ...] = ("norm.weight", "bias")
) -> nn.Module:
    """Every parameter counts: some with noise, some multiplied."""
    for name, parameter in module.named_parameters():
        if name.endswith(noisy):
            parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=stream(len(name))))
        parameter.data.mul_(next((by for end, by in scaled.items() if name.endswith(end)), 1.0))
    return module.eval()


def resolved(config: Any) -> dict[str, Any]:
    return {"kv": "mixture" if config.sees_mixture else "states"} if hasattr(config, "kv") else {}


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64)
    mask = torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]
    return x.requires_grad_(), mask


def objective(pooled: Tensor, states: list[Tensor], ponder: Tensor) -> Tensor:
    """A scalar in which every output of every sequence has a weight of its own."""
    total = (pooled * torch.randn(pooled.shape, generator=stream(2), dtype=torch.float64)).sum()
    total = total + (ponder * torch.randn(ponder.shape, generator=stream(3), dtype=torch.float64)).sum()
    for number, each in enumerate(states):
        total = (
            total + (each * torch.randn(each.shape, generator=stream(10 + number), dtype=torch.float64)).sum()
        )
    return total


def naive(encoder: nn.Module, config: dict[str, Any], x: Tensor) -> list[naive_universal.Naive]:
    run = RUNS[config["name"]]
    parameters = dict(encoder.named_parameters())
    return [run(parameters, config, row[:length]) for row, length in zip(x, LENGTHS, strict=True)]


def gradients(encoder: nn.Module, x: Tensor, value: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    grads = torch.autograd.grad(value, [x, *parameters], allow_unused=True)
    return {name: grad for name, grad in zip(["x", *names], grads, strict=True) if grad is not None}


def halts(arm: str) -> bool:
    return not arm.startswith(("transformer", "tlb")) and ARMS[arm].get("halt", {}) is not None


def early_exits(arm: str) -> list[dict[str, Any]]:
    if not halts(arm):
        return [{}]
    goes_on = ARMS[arm].get("halt", {}).get("halted_proposals", False)
    return [{"early_exit": mode} for mode in ("compact", "batch", "none")[goes_on:]]


@pytest.mark.parametrize("arm", ARMS)
def test_model_equals_its_naive_twin(arm: str) -> None:
    encoder, config = build(arm)
    x, _ = inputs()
    theirs = naive(encoder, config, x)
    value = objective(
        torch.stack([twin.pooled for twin in theirs]),
        [torch.stack(twin.states) for twin in theirs],
        torch.stack([twin.ponder for twin in theirs]),
    )
    expected = gradients(encoder, x, value)
    if halts(arm):
        depths = {twin.depth for twin in theirs}
        assert len(depths) > 1, "sequences that all ran to the bound would prove little"
        assert min(depths) < config["max_layers"]
    for more in early_exits(arm):
        check(build(arm, **more)[0], theirs, expected)


def check(encoder: nn.Module, theirs: list[naive_universal.Naive], expected: dict[str, Tensor]) -> None:
    x, mask = inputs()
    ours: Encoded = encoder(x, mask)
    rows = [states[: len(twin.states)] for states, twin in zip(ours.states, theirs, strict=True)]
    for row, twin in zip(rows, theirs, strict=True):
        torch.testing.assert_close(row, torch.stack(twin.states))
    torch.testing.assert_close(ours.pooled, torch.stack([twin.pooled for twin in theirs]))
    torch.testing.assert_close(ours.ponder, torch.stack([twin.ponder for twin in theirs]))
    assert ours.depth.tolist() == pytest.approx([twin.depth for twin in theirs])
    mine = gradients(encoder, x, objective(ours.pooled, rows, ours.ponder))
    assert mine.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(mine[name], grad, msg=lambda text, name=name: f"{name}: {text}")
