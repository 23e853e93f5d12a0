"""Computed costs equal PyTorch's counts of real runs."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.support.numerics.parameter_groups import parameters_by_group
from tests.support.specs.box import MODELS
from trainables import catalog, costs
from trainables.assembly import build_model, model_config
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import with_fields
from trainables.types import Batch, TaskShape

LISTOPS = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
TOKEN_UT = {"gate": False, "pooling": "mean", "halt": {"unit": "token", "transition": False}}


def parameters_by_part(width: int = 512, heads: int = 8, head_width: int = 64) -> dict[str, int]:
    """Return the number of parameters of each part at the sizes of ListOps, computed by hand."""
    feedforward_width, vocabulary, classes = 1024, 18, 10
    feedforward = width * feedforward_width + feedforward_width + feedforward_width * width + width
    return {
        "attention": 4 * width * heads * head_width,
        "feedforward": feedforward,
        "gate": feedforward,
        "norm": 2 * 2 * width,
        "halt.token": (width * width + width) + (width + 1),
        "halt.transition": (2 * width * width + width) + (width + 1),
        "readout": (width * width + width) + (width * classes + classes),
        "embedding": vocabulary * width,
        "boundaries": 2 * width,
    }


def test_chunked_models_have_the_expected_parameters() -> None:
    """Sizes are as published, with 20 slots and one update layer, without START and END."""
    width, heads, head_width, slots = 512, 8, 64, 20
    part = parameters_by_part(width, heads, head_width)
    norm = 2 * width
    block = 2 * part["attention"] + 4 * norm + part["feedforward"]
    update = part["attention"] + 3 * norm + 2 * (width * width + width)
    rest = update + slots * width + norm + part["readout"] + part["embedding"]
    expected = {"tlb": 2 * block + rest, "gutlb": block + part["gate"] + part["halt.transition"] + rest}
    assert expected == {"tlb": 8_167_946, "gutlb": 6_592_011}
    for name, count in expected.items():
        assert costs.parameters(build_model({"name": name}, LISTOPS, seed=0, device="meta")) == count


def test_neural_data_router_has_the_expected_parameters() -> None:
    """Sizes are as published: width 512, 16 heads of 32, feed-forward 1,024."""
    width, heads, feedforward_width = 512, 16, 1024
    expected = {
        "attention": 4 * width**2 + (width * 2 * heads + 2 * heads) + width + 3,
        "feedforward": 2 * width * feedforward_width + feedforward_width + width,
        "gate": 2 * (width**2 + width),
        "norm": 2 * 2 * width,
        "readout": (width * width + width) + (width * 10 + 10),
        "embedding": 18 * width,
        "boundaries": 2 * width,
    }
    model = build_model({"name": "ndr"}, LISTOPS, seed=0, device="meta")
    assert parameters_by_group(model) == expected
    assert sum(expected.values()) == 2_921_005


def test_crvnn_has_the_expected_parameters() -> None:
    """Sizes are as published: width 128, cell 512, a window of 5, transition features of 64."""
    width, inner, window, features = 128, 512, 5, 64
    expected = {
        "cell": (width**2 + width) + (2 * width * inner + inner) + (inner * 4 * width + 4 * width),
        "scorer": (window * width * width + width) + (width + 1),
        "norm": 2 * 2 * width,
        "readout": (width * width + width) + (width * 10 + 10),
        "embedding": 18 * width,
        "boundaries": 2 * width,
    }
    published = parameters_by_group(build_model({"name": "crvnn"}, LISTOPS, seed=0, device="meta"))
    assert published == expected
    assert sum(expected.values()) == 513_803
    raw = {"name": "crvnn", "transition_features": features, "shared_norm": True}
    first = parameters_by_group(build_model(raw, LISTOPS, seed=0, device="meta"))
    additional_parameters = features * width + 2 * features
    assert first == expected | {"scorer": expected["scorer"] + additional_parameters, "norm": 2 * width}


def test_sparse_universal_transformer_has_the_expected_parameters() -> None:
    """Sizes are as published for translation: width 512, 24 attention experts with 4 heads of width 64, and
    24 feed-forward experts of width 512."""
    width, experts, inner, window, feedforward_width = 512, 24, 4 * 64, 64, 512
    router = (width**2 + width) + width * experts
    offsets = inner * (2 * window + 1)
    expert = width * feedforward_width + feedforward_width + feedforward_width * width + width
    expected = {
        "attention": router + 2 * experts * width * inner + 2 * width * inner + offsets,
        "feedforward": router + experts * expert,
        "norm": 2 * 2 * width,
        "halt": (width**2 + width) + 2 * width,
        "readout": (width * width + width) + (width * 10 + 10),
        "embedding": 18 * width,
        "boundaries": 2 * width,
    }
    raw = {"name": "sut"}
    assert parameters_by_group(build_model(raw, LISTOPS, seed=0, device="meta")) == expected
    assert sum(expected.values()) == 20_287_754
    with torch.device("meta"):
        config = model_config(raw)
        decoder = catalog.load("models", "sut").Decoder(config)
    encoder_groups = {group: expected[group] for group in ("attention", "feedforward", "norm", "halt")}
    recall = {"recall": expected["attention"] - offsets, "norm": 3 * 2 * width}
    assert parameters_by_group(decoder) == encoder_groups | recall
    # The published 66 million parameters include the usual vocabulary of some 37,000 pieces for this task.
    encoder_and_decoder = 2 * sum(encoder_groups.values()) + recall["recall"] + 2 * width + 37_000 * width
    assert round(encoder_and_decoder / 1e6) == 66
    assert round((encoder_and_decoder - 2 * encoder_groups["halt"]) / 1e6) == 65


def small_version(name: str, **changes: Any) -> dict[str, Any]:
    """Return the small version of a model, a little wider; its contract counts the costs of all arms."""
    raw = MODELS[name]().every_arm()["small"]
    return with_fields(raw, width=24, feedforward_width=40, early_exit="none", **changes)


def batch(rows: int, length: int) -> Batch:
    tokens = torch.arange(rows * length).reshape(rows, length) % LISTOPS.vocabulary_size
    return Batch(tokens, torch.ones(rows, length, dtype=torch.bool), torch.zeros(rows, dtype=torch.int64))


@pytest.mark.parametrize("name", MODELS)
def test_flops_equal_the_count_of_pytorch(name: str) -> None:
    config = model_config(small_version(name, attention="math", kernel="math"))
    model = build_model(config, LISTOPS, seed=0).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        output = model(batch(1, 9))
    layers = round(float(output.encoded.computed))
    assert costs.flops(config, LISTOPS, 9, layers) == counter.get_total_flops()


def saved_bytes(model: torch.nn.Module, batch_: Batch) -> tuple[int, int]:
    """Return the bytes that autograd stores besides the weights, and the bytes of the weights."""
    set_dropout_context(model, seed=0, step=0)
    storages: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = model(batch_)
    assert output.loss.requires_grad
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    stored = sum(size for pointer, size in storages.items() if pointer not in weights)
    return stored, costs.FLOAT_BYTES * costs.parameters(model)


@pytest.mark.parametrize("attention_dropout", [0.0, 0.2])
@pytest.mark.parametrize("name", MODELS)
def test_memory_estimate_is_within_a_factor_of_one_and_a_half(name: str, attention_dropout: float) -> None:
    config = model_config(small_version(name, attention_dropout=attention_dropout))
    stored, weights = saved_bytes(build_model(config, LISTOPS, seed=0), batch(16, 30))
    estimate = costs.peak_memory_bytes(config, LISTOPS, 16, 30) - costs.ADAM_COPIES * weights
    assert 1 / 1.5 < estimate / stored < 1.5


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"name": "universal", "halt": None, "max_layers": 4}, (4, 4)),
        ({"name": "ndr", "layers": 3, "test_layers": 4}, (3, 4)),
        ({"name": "crvnn"}, (1, 9)),
        ({"name": "crvnn", "halt": None}, (9, 9)),
        ({"name": "crvnn", "structure": "balanced"}, (4, 4)),
    ],
)
def test_depth_range_is_a_single_depth_without_halting(
    raw: dict[str, Any], expected: tuple[int, int]
) -> None:
    """The input has 9 tokens; composition takes a step for each, or as many as the tree is deep."""
    assert costs.depth_range(model_config(raw), 9) == expected


def test_compact_mode_computes_only_the_layers_of_each_sequence() -> None:
    config = model_config(
        {"name": "universal", "width": 16, "heads": 2, "attention": "math", "max_layers": 8}
    )
    model = build_model(config, LISTOPS, seed=0).eval()
    model.embedding.weight.data.mul_(50.0)
    model.encoder.halt.outer.weight.data.mul_(10.0)
    tokens = torch.randint(0, 16, (20, 9), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoded = model(Batch(tokens, tokens < 16, tokens[:, 0] % 10)).encoded
    assert encoded.computed.unique().numel() > 2
    expected = sum(costs.flops(config, LISTOPS, 9, int(layers)) for layers in encoded.computed.tolist())
    assert counter.get_total_flops() == expected


def test_published_models_have_the_expected_parameters() -> None:
    part = parameters_by_part()
    block = part["attention"] + part["feedforward"] + part["norm"]
    rest = part["readout"] + part["embedding"] + part["boundaries"]
    for raw, expected, published in (
        ({"name": "transformer", "layers": 4}, 4 * block + rest, 8_680_970),
        ({"name": "universal", **TOKEN_UT}, block + part["halt.token"] + rest, 2_641_931),
        ({"name": "universal"}, block + part["gate"] + part["halt.transition"] + rest, 3_954_187),
    ):
        model = build_model(raw, LISTOPS, seed=0, device="meta")
        assert costs.parameters(model) == expected == published
