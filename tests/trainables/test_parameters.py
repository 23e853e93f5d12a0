"""Parameters of all arms, and with every head, equal sums over the parts, derived by hand.

`test_costs` tests the models as published.
"""

from typing import Any

import pytest

from tests.trainables.test_costs import LISTOPS, TOKEN_UT, parameters_by_part
from trainables import costs, task_catalog
from trainables.assembly import build_model
from trainables.types import TaskShape

PART = parameters_by_part()
BLOCK = PART["attention"] + PART["feedforward"] + PART["norm"]
REST = PART["readout"] + PART["embedding"] + PART["boundaries"]
UT = BLOCK + PART["halt.token"] + REST
GUT = BLOCK + PART["gate"] + PART["halt.transition"] + REST
TLB, GUTLB, NDR, CRVNN, SUT = 8_167_946, 6_592_011, 2_921_005, 513_803, 20_287_754
WIDTH = 512


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def sparse_attention(experts: int, inner: int, *, is_self_attention: bool = True) -> int:
    """Count router, queries and outputs of all experts, keys and values; self-attention adds 129 offsets."""
    router = linear(WIDTH, WIDTH) + WIDTH * experts if experts > 1 else 0
    return (
        router + 2 * experts * WIDTH * inner + 2 * WIDTH * inner + (inner * 129 if is_self_attention else 0)
    )


def sparse_feedforward(experts: int, inner: int) -> int:
    router = linear(WIDTH, WIDTH) + WIDTH * experts if experts > 1 else 0
    return router + experts * (linear(WIDTH, inner) + linear(inner, WIDTH))


SUT_HALT = linear(WIDTH, WIDTH) + 2 * WIDTH
SUT_ATTENTION, SUT_FEEDFORWARD = sparse_attention(24, 256), sparse_feedforward(24, 512)
GEOMETRIC = (WIDTH * 32 + 32) + 2
"""Directions of 16 heads, their scale, and the bias of all matches."""
RELATIVE = WIDTH**2 + WIDTH + linear(WIDTH, 16)
"""Projection of relative positions, biases of queries, and gates of heads."""
SCORER = linear(5 * 128, 128) + linear(128, 1)
CELL = linear(2 * 128, 512) + linear(512, 4 * 128)
BOUNDARY_PARAMETERS = 2 * 128
CRVNN_FIXED_TREE = CRVNN - SCORER - BOUNDARY_PARAMETERS
ARMS: dict[str, tuple[dict[str, Any], int]] = {
    "ut.no_halt": (TOKEN_UT | {"halt": None}, UT - PART["halt.token"]),
    "ut.end_pool": (TOKEN_UT | {"pooling": "end"}, UT),
    "ut.causal": (TOKEN_UT | {"causal": True}, UT - PART["boundaries"]),
    "gut.no_global_halt": ({"halt": {"unit": "token"}}, GUT),
    "gut.no_gate": ({"gate": False}, GUT - PART["gate"]),
    "gut.no_transition": (
        {"halt": {"transition": False}},
        GUT - PART["halt.transition"] + PART["halt.token"],
    ),
    "gut.upperbound": ({"early_exit": "none"}, GUT),
    "gut.no_halt_upperbound": ({"halt": None}, GUT - PART["halt.transition"]),
    "gut.mean_pool": ({"pooling": "mean"}, GUT),
    "gut.kv_from_s": ({"kv": "mixture"}, GUT),
    "gut.halt_origin_1": ({"halt": {"origin": 1}}, GUT),
    "gut.prefix": ({"halt": {"rule": "prefix"}}, GUT),
    "gut.causal": ({"causal": True}, GUT - PART["boundaries"]),
    "transformer.causal": (
        {"name": "transformer", "layers": 6, "causal": True},
        6 * BLOCK + PART["readout"] + PART["embedding"],
    ),
    "tlb.fixed_recurrence": ({"name": "tlb", "chunk": {"by": "count", "count": 5}}, TLB),
    "tlb.slot_positions": ({"name": "tlb", "memory": {"slot_positions": True}}, TLB),
    "tlb.boundaries": ({"name": "tlb", "boundaries": True}, TLB + PART["boundaries"]),
    "tlb.causal": ({"name": "tlb", "causal": True}, TLB),
    "gutlb.no_halt": ({"name": "gutlb", "halt": None}, GUTLB - PART["halt.transition"]),
    "gutlb.no_gate": ({"name": "gutlb", "gate": False}, GUTLB - PART["gate"]),
    "gutlb.causal": ({"name": "gutlb", "causal": True}, GUTLB),
    "ndr.no_gate": ({"name": "ndr", "heads": 16, "gate": False}, NDR - 2 * linear(WIDTH, WIDTH)),
    "ndr.no_geometric": ({"name": "ndr", "heads": 16, "geometric": False}, NDR - GEOMETRIC + RELATIVE),
    "ndr.no_direction": ({"name": "ndr", "heads": 16, "direction": False}, NDR - GEOMETRIC + 1),
    "ndr.row_norm": ({"name": "ndr", "heads": 16, "normalise_rows": False}, NDR),
    "crvnn.product_retriever": ({"name": "crvnn", "retriever": "product"}, CRVNN),
    "crvnn.no_modulation": ({"name": "crvnn", "modulated": False}, CRVNN),
    "crvnn.no_halt": ({"name": "crvnn", "halt": None}, CRVNN),
    "crvnn.relu": ({"name": "crvnn", "activation": "relu"}, CRVNN),
    "crvnn.lstm_cell": (
        {"name": "crvnn", "cell": "lstm", "cell_width": None},
        CRVNN - linear(128, 128) - CELL - 4 * 128 + linear(128, 2 * 128) + linear(2 * 128, 5 * 128),
    ),
    "crvnn.left_to_right": ({"name": "crvnn", "structure": "left-to-right"}, CRVNN_FIXED_TREE + 128),
    "crvnn.balanced": ({"name": "crvnn", "structure": "balanced"}, CRVNN_FIXED_TREE),
    "sut.no_mim": ({"name": "sut", "balance": "switch"}, SUT),
    "sut.sampled": ({"name": "sut", "attention": {"sampled": 1}}, SUT),
    "sut.no_momha": (
        {"name": "sut", "attention": {"experts": 96, "active": 16, "heads": 1}},
        SUT - SUT_ATTENTION + sparse_attention(96, 64),
    ),
    "sut.no_halting": ({"name": "sut", "halt": None}, SUT - SUT_HALT),
    "sut.dense": (
        {
            "name": "sut",
            "attention": {"experts": 1, "active": 1, "heads": 45},
            "feedforward": {"experts": 1, "active": 1, "width": 12_288},
        },
        SUT - SUT_ATTENTION - SUT_FEEDFORWARD + sparse_attention(1, 45 * 64) + sparse_feedforward(1, 12_288),
    ),
    "sut.causal": ({"name": "sut", "causal": True}, SUT - PART["boundaries"]),
}


@pytest.mark.parametrize("arm", ARMS)
def test_arm_has_the_parameters_of_its_parts(arm: str) -> None:
    raw, expected = ARMS[arm]
    assert costs.parameters(build_model({"name": "universal"} | raw, LISTOPS, 0, "meta")) == expected


STACK = {"recurrence": "unshared", "loops": 20, "injection": False, "final_norm": "end"}
LOOPED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "loop.wo_injection": ({"injection": False}, {}, 1),
    "loop.fixed": ({"loops": 20}, {}, 1),
    "loop.stop_batch": ({"stop": "batch"}, {}, 1),
    "fop": (STACK, {}, 20),
    "fop.pause": (STACK, {"pause_tokens": 20}, 20),
    "ntp": (STACK, {"form": "next_token"}, 20),
    "ntp.pause": (STACK, {"form": "next_token", "pause_tokens": 20}, 20),
    "ntp.loop": ({"loops": 20}, {"form": "next_token"}, 1),
}
"""By arm: settings of model and task, number of blocks."""


@pytest.mark.parametrize("arm", LOOPED)
def test_looped_baseline_has_the_parameters_of_its_blocks(arm: str) -> None:
    """The task copy: two layers a block, 8 heads, width 256; 56 words and three classes in all forms."""
    model, task, blocks = LOOPED[arm]
    shape = task_catalog.shape(task_catalog.task_config({"name": "algorithms", "problem": "copy"} | task))
    width, inner, layers = 256, 1024, 2
    layer = 4 * width**2 + linear(width, inner) + linear(inner, width) + 2 * 2 * width
    expected = blocks * layers * layer + 2 * width + 56 * width + linear(width, width) + linear(width, 3)
    raw = {"name": "looped", "heads": 8, "layers": layers} | model
    assert costs.parameters(build_model(raw, shape, 0, "meta")) == expected


def test_pair_head_reads_four_times_the_width() -> None:
    """Logical inference has 11 words, a separator, padding and seven relations."""
    shape = task_catalog.shape(task_catalog.task_config({"name": "logical_inference"}))
    assert (shape.head, shape.num_classes) == ("pair", 7)
    words = shape.vocabulary_size * WIDTH
    readout = linear(4 * WIDTH, WIDTH) + linear(WIDTH, 7)
    for raw, encoder in (
        ({"name": "transformer", "layers": 4}, 4 * BLOCK + PART["boundaries"]),
        ({"name": "universal"}, GUT - PART["readout"] - PART["embedding"]),
        ({"name": "gutlb"}, GUTLB - PART["readout"] - PART["embedding"]),
    ):
        assert costs.parameters(build_model(raw, shape, 0, "meta")) == encoder + readout + words


@pytest.mark.parametrize("tied", [True, False])
def test_sparse_translator_has_two_layers_and_one_vocabulary(tied: bool) -> None:
    shape = TaskShape(
        "sequence",
        37_000,
        37_000,
        pad_id=0,
        length_max=250,
        end_id=1,
        answer_length_max=250,
        shared_vocabulary=True,
    )
    encoder = SUT_ATTENTION + SUT_FEEDFORWARD + SUT_HALT + 2 * 2 * WIDTH + PART["boundaries"]
    decoder = encoder - PART["boundaries"] + sparse_attention(24, 256, is_self_attention=False) + 2 * WIDTH
    readout = 0 if tied else linear(WIDTH, WIDTH) + linear(WIDTH, 37_000)
    model = build_model({"name": "sut", "tied_output": tied}, shape, 0, "meta")
    assert costs.parameters(model) == encoder + decoder + 37_000 * WIDTH + readout
