"""What every model promises, for each file in `trainables/models` and each way its halting can be set."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.examples import examples
from trainables import catalog, costs
from trainables.assembly import build_model, model_config
from trainables.layers.dropout import set_dropout_context
from trainables.models._universal import UniversalSettings
from trainables.types import Batch, Encoded, Output, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=7, num_classes=5, pad_id=6, length_max=20)
SMALL: dict[str, Any] = {
    "width": 12,
    "heads": 2,
    "feedforward_width": 10,
    "max_layers": 6,
    "layers": 3,
    "test_layers": 4,
    "loops": 4,
    "chunk": {"size": 4},
    "memory": {"slots": 3},
}
HALTS: dict[str, dict[str, Any] | None] = {
    "sequence": {"unit": "sequence"},
    "token": {"unit": "token"},
    "token-now": {"unit": "token", "transition": False},
    "sequence-prefix": {"unit": "sequence", "rule": "prefix", "threshold": 0.9},
    "nobody": None,
}
CAUSAL = {"causal": True, "chunk": {"size": 4, "even": False}}
WHOLE = {"boundaries": True, "readout": "end", "memory": {"slots": 4, "slot_positions": True}}
SPARSE: dict[str, Any] = {
    "attention": {"experts": 3, "active": 2, "heads": 2, "head_width": 3, "window": 2},
    "feedforward": {"experts": 4, "active": 2, "width": 5},
}
DENSE = {"experts": 1, "active": 1}
OWN: dict[str, dict[str, Any]] = {"sut": SPARSE}
"""Sizes of models whose fields mean something else elsewhere."""
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "crvnn": {
        "halting": {"halt": {"threshold": 0.3}},
        "penalised": {"halt": {"threshold": 0.2, "penalty": True}, "transition_features": 5},
        "product": {"halt": {"threshold": 0.3}, "retriever": "product", "shared_norm": True},
        "unmodulated": {"halt": {"threshold": 0.2}, "modulated": False, "activation": "relu"},
        "lstm": {"halt": {"threshold": 0.3}, "cell": "lstm", "tanh_gelu": True},
        "nobody": {"halt": None},
        "left-to-right": {"structure": "left-to-right"},
        "balanced": {"structure": "balanced"},
    },
    "transformer": {"causal": {"causal": True, "pooling": "end"}},
    "universal": {
        "causal": {"causal": True, "halt": {"threshold": 0.9}},
        "causal-token": {"causal": True, "halt": {"unit": "token"}},
    },
    "tlb": {"whole": WHOLE, "count": {"chunk": {"by": "count", "count": 3}}, "causal": CAUSAL},
    "gutlb": {"whole": WHOLE, "causal": CAUSAL | {"halt": {"threshold": 0.9}}},
    "sut": {
        "switch": {"balance": "switch"},
        "single-heads": {"attention": SPARSE["attention"] | {"experts": 6, "heads": 1}},
        "dense": {"attention": DENSE | {"heads": 2, "head_width": 3}, "feedforward": DENSE | {"width": 10}},
        "pre-norm": {"norm": "pre", "absolute_positions": False, "balance": "none"},
        "nobody": {"halt": None},
        "causal": {"causal": True},
        "sampled": {"attention": SPARSE["attention"] | {"sampled": 1}},
        "halves": {"position_layout": "halves"},
    },
    "ndr": {
        "relative": {"geometric": False},
        "relative-as-released": {"geometric": False, "proposal": "tanh", "gate_dropout": 0.0},
        "ungated": {"gate": False},
        "unnormalised": {"normalise_rows": False, "direction": False, "pooling": "start"},
    },
    "looped": {
        "minus-injection": {"injection": False},
        "norm-at-the-end": {"final_norm": "end"},
        "unshared": {"recurrence": "unshared", "loops": 2},
    },
}
"""Arms that are built of other parts, model by model."""
SEED = 3


def variants(name: str) -> dict[str, dict[str, Any]]:
    """Small settings of a model: one for each way to halt, or just one, and its arms."""
    config = catalog.load("models", name).Config
    base = {"name": name} | {field: value for field, value in SMALL.items() if field in config.model_fields}
    base |= OWN.get(name, {})
    arms = {f"{name}-{label}": base | arm for label, arm in ARMS.get(name, {}).items()}
    if not issubclass(config, UniversalSettings):
        return {name: base} | arms
    return {f"{name}-{label}": base | {"halt": halt} for label, halt in HALTS.items()} | arms


def having(raw: dict[str, Any], **more: Any) -> dict[str, Any]:
    """`raw` with those settings of `more` that its model has."""
    own = OWN.get(raw["name"], {})
    fields = catalog.load("models", raw["name"]).Config.model_fields.keys() - own.keys()
    return raw | {field: value for field, value in more.items() if field in fields}


CASES = {label: raw for name in catalog.names("models") for label, raw in variants(name).items()}
EXITS = {label: raw for label, raw in CASES.items() if "halt" in raw and raw["halt"] is not None}
every_model = pytest.mark.parametrize("raw", CASES.values(), ids=CASES)
every_halting_model = pytest.mark.parametrize("raw", EXITS.values(), ids=EXITS)


def build(raw: dict[str, Any], **more: Any) -> nn.Module:
    """In float64 and with halting made livelier, so that depths differ."""
    model = build_model(raw | more, SHAPE, SEED).double()
    make_halting_differ(model)
    for name, parameter in model.named_parameters():
        if name.endswith("halt.outer.weight"):
            parameter.data.mul_(8.0)
        if name.endswith("halt.outer.bias"):
            parameter.data.add_(0.5)
    return model


def make_halting_differ(model: nn.Module) -> None:
    """Where halting starts out the same for all."""
    for name, parameter in model.named_parameters():
        if name.endswith("halt.outer.weight") and not parameter.any():
            parameter.data[-1].uniform_(0, 0.2, generator=torch.Generator().manual_seed(SEED))


def batch(lengths: list[int], width: int | None = None) -> Batch:
    stream = torch.Generator().manual_seed(len(lengths))
    wide = max(lengths)
    tokens = torch.randint(0, 6, (len(lengths), wide), generator=stream)
    labels = torch.randint(0, 5, (len(lengths),), generator=stream)
    columns = torch.arange(width or wide)
    mask = columns < torch.tensor(lengths)[:, None]
    padded = torch.full((len(lengths), len(columns)), SHAPE.pad_id)
    padded[:, :wide] = tokens
    return Batch(torch.where(mask, padded, SHAPE.pad_id), mask, labels)


def embedded(model: nn.Module, given: Batch) -> Tensor:
    return nn.functional.embedding(given.tokens, model.embedding())


def train(model: nn.Module, given: Batch, step: int = 1) -> tuple[Output, dict[str, Tensor]]:
    """One forward and backward pass with dropout on."""
    set_dropout_context(model.train(), SEED, step)
    output = model(given)
    model.zero_grad()
    auxiliary = 0 if output.encoded.auxiliary is None else output.encoded.auxiliary
    (output.loss + 0.1 * output.encoded.ponder + 0.1 * auxiliary).sum().backward()
    return output, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(one: Encoded, other: Encoded, *, without: tuple[str, ...] = ()) -> None:
    for field in dataclasses.fields(Encoded):
        if field.name not in without and getattr(one, field.name) is not None:
            torch.testing.assert_close(getattr(one, field.name), getattr(other, field.name))


@every_model
def test_outputs_have_their_shapes_and_bounds(raw: dict[str, Any]) -> None:
    given = batch([5, 1, 9, 3])
    output = build(raw).eval()(given)
    encoded = output.encoded
    assert encoded.pooled.shape == (4, 12)
    assert encoded.states.shape[0] == 4
    assert encoded.states.shape[2] == 12
    assert (encoded.depth >= 0).all()
    assert (encoded.depth <= encoded.bound).all()
    assert (encoded.depth <= encoded.computed).all()
    assert (encoded.computed <= encoded.bound).all()
    assert (encoded.ponder >= 0).all()
    assert (encoded.ponder <= encoded.bound).all()
    assert not encoded.depth.requires_grad
    assert not encoded.computed.requires_grad
    assert output.counts.tolist() == [1] * 4
    assert set(output.hits.tolist()) <= {0.0, 1.0}
    assert output.loss.isfinite().all()


@every_model
def test_depth_is_within_the_range_that_costs_state(raw: dict[str, Any]) -> None:
    config = model_config(raw)
    lengths = [5, 1, 9, 3]
    computed = build(raw).eval()(batch(lengths)).encoded.computed
    for length, layers in zip(lengths, computed.tolist(), strict=True):
        least, greatest = costs.depth_range(config, length)
        assert least <= layers <= greatest


@every_model
def test_padding_never_leaks(raw: dict[str, Any]) -> None:
    model, given, longer = build(raw).eval(), batch([5, 1, 9, 3]), batch([5, 1, 9, 3], width=14)
    x = embedded(model, given)
    noisy = torch.where(given.mask[..., None], x, x + 100)
    clean = model.encoder(x, given.mask)
    assert_same(model.encoder(noisy, given.mask), clean)
    wide = model.encoder(embedded(model, longer), longer.mask)
    assert torch.equal(wide.states[:, : clean.states.shape[1]], clean.states)
    assert_same(wide, clean, without=("states",))


@every_model
def test_a_sample_does_not_depend_on_its_batch(raw: dict[str, Any]) -> None:
    model, given = build(raw).eval(), batch([5, 1, 9, 3])
    x = embedded(model, given)
    together = model.encoder(x, given.mask)
    for row in range(4):
        alone = model.encoder(x[row : row + 1], given.mask[row : row + 1])
        torch.testing.assert_close(alone.pooled, together.pooled[row : row + 1])
        torch.testing.assert_close(alone.depth, together.depth[row : row + 1])
        torch.testing.assert_close(alone.ponder, together.ponder[row : row + 1])


@every_model
def test_every_parameter_gets_a_gradient(raw: dict[str, Any]) -> None:
    model = build(having(raw, dropout=0.1, attention_dropout=0.1))
    _, gradients = train(model, batch([5, 1, 9, 3, 7]))
    without = [name for name, _ in model.named_parameters() if name not in gradients]
    zero = [name for name, gradient in gradients.items() if not gradient.any()]
    assert (without, zero) == ([], [])


@every_halting_model
@examples(5)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_early_exit_modes_agree(raw: dict[str, Any], lengths: list[int], seed: int) -> None:
    given_batch = batch(lengths)
    results = {
        mode: train(
            build(having(raw, early_exit=mode, dropout=0.2, attention_dropout=0.1)), given_batch, step=seed
        )
        for mode in ("none", "batch", "compact")
    }
    output, gradients = results["none"]
    for other, other_gradients in (results["batch"], results["compact"]):
        torch.testing.assert_close(other.loss, output.loss)
        assert_same(other.encoded, output.encoded, without=("computed",))
        for name, gradient in gradients.items():
            # What nobody came to ask has no gradient at all.
            other_gradient = other_gradients.get(name, torch.zeros_like(gradient))
            torch.testing.assert_close(other_gradient, gradient)
    assert (results["compact"][0].encoded.computed <= output.encoded.computed).all()


@every_halting_model
def test_compact_runs_no_layer_for_who_has_halted(raw: dict[str, Any]) -> None:
    """A unit runs what it keeps, and at most the one step that is then undone."""
    encoded = build(raw, early_exit="compact").eval()(batch([5, 1, 9, 3, 8, 2])).encoded
    assert (encoded.computed - encoded.depth).max() <= 1
    assert encoded.depth.unique().numel() > 1


@every_model
def test_dropout_is_a_function_of_its_context(raw: dict[str, Any]) -> None:
    model, given = build(having(raw, dropout=0.2, attention_dropout=0.2)), batch([5, 1, 9])
    first, _ = train(model, given, step=1)
    other, _ = train(model, given, step=2)
    again, _ = train(model, given, step=1)
    assert torch.equal(first.loss, again.loss)
    assert not torch.equal(first.loss, other.loss)


@pytest.mark.parametrize("name", catalog.names("models"))
def test_arms_of_a_model_start_equal_where_they_share(name: str) -> None:
    baseline, *others = (build_model(raw, SHAPE, SEED) for raw in variants(name).values())
    theirs = {module: shapes(part) for module, part in baseline.named_modules()}
    for other in others:
        alike = [module for module, part in other.named_modules() if shapes(part) == theirs.get(module)]
        assert len(alike) > len(list(other.modules())) / 2
        for module in alike:
            for one, same in zip(
                other.get_submodule(module).parameters(recurse=False),
                baseline.get_submodule(module).parameters(recurse=False),
                strict=True,
            ):
                assert torch.equal(one, same), module


def shapes(module: nn.Module) -> list[torch.Size]:
    """What tells whether two arms share a module, its children left aside."""
    return [parameter.shape for parameter in module.parameters(recurse=False)]


@every_model
def test_building_is_a_function_of_the_seed_alone(raw: dict[str, Any]) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (build_model(raw, SHAPE, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


@every_model
def test_on_meta_a_model_has_the_same_parameters_and_no_storage(raw: dict[str, Any]) -> None:
    real = build_model(raw, SHAPE, SEED)
    ghost = build_model(raw, SHAPE, SEED, device="meta")
    assert {name: p.shape for name, p in ghost.named_parameters()} == {
        name: p.shape for name, p in real.named_parameters()
    }
    assert all(p.is_meta for p in ghost.parameters())


@every_model
def test_settings_survive_a_round_trip(raw: dict[str, Any]) -> None:
    config = model_config(raw)
    assert model_config(config.model_dump(mode="json")) == config


@every_model
def test_sums_stay_in_32_bits_under_autocast(raw: dict[str, Any]) -> None:
    model = build_model(raw, SHAPE, SEED).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(batch([5, 1, 9, 3]))
    assert output.loss.dtype == torch.float32
    assert output.encoded.ponder.dtype == torch.float32
    exact = model(batch([5, 1, 9, 3]))
    torch.testing.assert_close(output.loss, exact.loss, rtol=0.1, atol=0.1)


@every_model
def test_flops_grow_with_length_and_layers(raw: dict[str, Any]) -> None:
    config = model_config(raw)
    least, greatest = costs.depth_range(config, 10)
    here = costs.flops(config, SHAPE, 10, greatest)
    assert here < costs.flops(config, SHAPE, 11, greatest)
    assert here >= costs.flops(config, SHAPE, 10, least)
