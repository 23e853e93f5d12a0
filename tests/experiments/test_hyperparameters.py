"""Specs that quote published values have the settings of the papers, or else of the released code.

If the two differ, the baseline has the paper's value and an arm the released value. Examples are the bound on
layers in Long Range Arena and the chunks of flip-flop. Dropout on logical inference is the reverse.
"""

from functools import cache
from typing import Any

import pytest

from orchestrator.plan.arms import resolve_built_in_arms
from orchestrator.plan.faults import Faults
from orchestrator.spec.load import read_spec
from search_spaces.paths import lookup
from tests.experiments.tables import EXPERIMENTS

BATCH, LR, STEPS, EVERY = "train.batch_size", "train.lr", "train.steps", "train.report_every"
WARMUP, SCHEDULE, BETAS, EPS = "train.warmup_steps", "train.schedule", "train.betas", "train.eps"
DECAY, PATIENCE, CLIP, BETA = "train.weight_decay", "train.patience", "train.clip", "train.ponder_weight"
WIDTH, HEADS, INNER, BOUND = "model.width", "model.heads", "model.feedforward_width", "model.max_layers"
LAYERS, CHUNK, SLOTS, UPDATES = (
    *("model.layers", "model.chunk.size", "model.memory.slots", "model.memory.update_layers"),
)
DROPOUT, ATTENTION, POOLING = "model.dropout", "model.attention_dropout", "model.pooling"


def sizes(width: int, heads: int, inner: int) -> dict[str, Any]:
    return {WIDTH: width, HEADS: heads, INNER: inner}


def dropouts(states: float, attention: float) -> dict[str, Any]:
    return {DROPOUT: states, ATTENTION: attention}


def adam(betas: list[float], eps: float, decay: float, clip: float | None) -> dict[str, Any]:
    return {BETAS: betas, EPS: eps, DECAY: decay, CLIP: clip}


def schedule(name: str, warmup: int, batch: int) -> dict[str, Any]:
    return {SCHEDULE: name, WARMUP: warmup, BATCH: batch}


ADAM = adam([0.9, 0.98], 1e-8, 0.1, 1.0)
LISTOPS = sizes(512, 8, 1024) | dropouts(0.1, 0.1) | ADAM | {BATCH: 32, SCHEDULE: "rsqrt", PATIENCE: 10}
SIDE = {LR: 0.05, WARMUP: 1000}
CHUNKED = {LR: 0.0125, WARMUP: 8000}
LOGIC = sizes(512, 8, 1024) | dropouts(0.2, 0.5) | ADAM | schedule("warmup", 4000, 256)
LOGIC |= {LR: 7e-4, STEPS: 150 * 477, EVERY: 477, PATIENCE: 20}
FLIPFLOP = sizes(512, 8, 2048) | dropouts(0.1, 0.1) | schedule("linear", 50, 16)
FLIPFLOP |= {LR: 3e-4, BETAS: [0.9, 0.999], DECAY: 0.1, CLIP: 1.0, STEPS: 10_000, EVERY: 1_000}
FLIPFLOP |= {"train.onecycle_beta1": True, "model.causal": True}
TEXT = LISTOPS | {WIDTH: 256, HEADS: 4, WARMUP: 8000, STEPS: 100 * 703, EVERY: 703}
RETRIEVAL = LISTOPS | sizes(128, 4, 512) | {WARMUP: 8000, BETAS: [0.9, 0.999], PATIENCE: 5}
UNCLIPPED = adam([0.9, 0.98], 1e-9, 0.0, None)
IMAGE = sizes(128, 8, 128) | dropouts(0.3, 0.2) | UNCLIPPED | schedule("cosine", 175, 256)
IMAGE |= {STEPS: 200 * 175, PATIENCE: 100}
PATHFINDER = sizes(64, 2, 128) | adam([0.9, 0.999], 1e-6, 0.0, 1.0) | schedule("linear", 312, 128)
PATHFINDER |= {LR: 2e-4, STEPS: 125_000, EVERY: 1250, PATIENCE: 20}
PATHFINDER_CHUNKS = sizes(128, 8, 128) | UNCLIPPED | schedule("cosine", 312, 512)
PATHFINDER_CHUNKS |= {LR: 5e-4, STEPS: 200 * 312, EVERY: 312, PATIENCE: 200}
ROUTER = sizes(512, 16, 1024) | dropouts(0.1, 0.1) | {"model.gate_dropout": 0.05}
ROUTER |= {BATCH: 512, LR: 2e-4, SCHEDULE: "constant", DECAY: 0.09, BETAS: [0.9, 0.999], CLIP: 1.0}
RECURSIVE = {BATCH: 128, LR: 1e-3, DECAY: 0.01, PATIENCE: 4, "train.halve_after": 2}
RECURSIVE |= {"train.optimizer": "ranger", DROPOUT: 0.1, "model.halt.threshold": 0.1}
RECURSIVE |= {"model.cell_dropout": 0.1, "model.readout_dropout": 0.1}
TRANSLATION = {WIDTH: 512, BOUND: 6, "model.gating_dropout": 0.2} | dropouts(0.2, 0.2) | UNCLIPPED
TRANSLATION |= {WARMUP: 4000, SCHEDULE: "rsqrt", "train.label_smoothing": 0.1, "train.average_best": 5}
TRANSLATION |= {"train.beam_size": 8, "train.length_penalty": 0.4}
TRANSLATION |= {"train.batch_tokens": 262144, "train.accumulate": 32}
THRESHOLD = {"model.halt.threshold": 0.999}


def chunks(size: int, slots: int, updates: int = 1) -> dict[str, Any]:
    return {CHUNK: size, SLOTS: slots, UPDATES: updates}


def looped(heads: int, layers: int, interval: int, ema: float | None, growths: int = 18) -> dict[str, Any]:
    """Return settings whose learning rate falls after the curriculum has grown `growths` times to its end."""
    model = {HEADS: heads, LAYERS: layers, WIDTH: 256, "model.injection": True}
    rates = {LR: 1e-4, SCHEDULE: "cosine", "train.hold_steps": interval * growths, "train.ema": ema}
    return model | rates | {BATCH: 64, STEPS: 100_000}


FACTS: dict[tuple[str, str], dict[str, Any]] = {
    ("listops-o", "baseline"): LISTOPS | SIDE | THRESHOLD | {BOUND: 10, BETA: 0.1, POOLING: "end"},
    ("listops-o", "ut"): LISTOPS | SIDE | THRESHOLD | {BOUND: 10, BETA: 0.1, POOLING: "mean"},
    ("listops-o", "ut-no-halt"): LISTOPS | SIDE | {BOUND: 10, POOLING: "mean"},
    ("listops-o", "transformer"): LISTOPS | SIDE | {LAYERS: 4, POOLING: "mean"},
    ("listops-o", "tlb"): LISTOPS | CHUNKED | chunks(20, 20) | {LAYERS: 2},
    ("listops-o", "gutlb"): LISTOPS | CHUNKED | chunks(20, 20) | {BOUND: 5, BETA: 0.1} | THRESHOLD,
    ("logical-inference", "baseline"): LOGIC | THRESHOLD | {BOUND: 15, BETA: 0.0, POOLING: "end"},
    ("logical-inference", "ut"): LOGIC | THRESHOLD | {BOUND: 15, BETA: 0.0, POOLING: "mean"},
    ("logical-inference", "transformer"): LOGIC | {LAYERS: 4, POOLING: "mean"},
    ("logical-inference", "tlb"): LOGIC | chunks(10, 10) | {LAYERS: 2},
    ("logical-inference", "gutlb"): LOGIC | chunks(10, 10) | {BOUND: 5, BETA: 0.0},
    ("flipflop", "baseline"): FLIPFLOP | chunks(10, 10, 2) | {LAYERS: 3},
    ("flipflop", "fixed-recurrence"): FLIPFLOP | {LAYERS: 3, "model.chunk.count": 5, SLOTS: 10, UPDATES: 2},
    ("flipflop", "gutlb"): FLIPFLOP | chunks(10, 10, 2) | THRESHOLD | {BOUND: 10, BETA: 0.1},
    ("flipflop", "gut"): FLIPFLOP | THRESHOLD | {BOUND: 20, BETA: 0.1},
    ("flipflop", "ut"): FLIPFLOP | THRESHOLD | {BOUND: 10, BETA: 0.1},
    ("flipflop", "transformer"): FLIPFLOP | {LAYERS: 6},
    ("lra-listops", "baseline"): LISTOPS | SIDE | THRESHOLD | {BOUND: 15, BETA: 0.1, POOLING: "end"},
    ("lra-listops", "ut"): LISTOPS | SIDE | {BOUND: 10, BETA: 0.1, POOLING: "mean"},
    ("lra-listops", "transformer"): LISTOPS | SIDE | {LAYERS: 4, POOLING: "mean"},
    ("lra-listops", "tlb"): LISTOPS | CHUNKED | chunks(100, 100) | {LAYERS: 2},
    ("lra-listops", "gutlb"): LISTOPS | CHUNKED | chunks(100, 100) | {BOUND: 5, BETA: 0.1},
    ("lra-text", "baseline"): TEXT | THRESHOLD | {LR: 0.05, BOUND: 15, BETA: 0.1, POOLING: "end"},
    ("lra-text", "ut"): TEXT | {LR: 0.05, BOUND: 10, BETA: 0.1, POOLING: "mean"},
    ("lra-text", "transformer"): TEXT | {LR: 0.05, LAYERS: 4, POOLING: "mean"},
    ("lra-text", "tlb"): TEXT | chunks(10, 10) | {LR: 0.025, LAYERS: 2},
    ("lra-text", "gutlb"): TEXT | chunks(10, 10) | {LR: 0.025, BOUND: 2, BETA: 0.1},
    ("lra-retrieval", "baseline"): RETRIEVAL | THRESHOLD | {LR: 0.05, BOUND: 15, STEPS: 50 * 4597, BETA: 0.1},
    ("lra-retrieval", "ut"): RETRIEVAL | {LR: 0.05, BOUND: 10, POOLING: "mean"},
    ("lra-retrieval", "transformer"): RETRIEVAL | {LR: 0.05, LAYERS: 4, POOLING: "mean"},
    ("lra-retrieval", "tlb"): RETRIEVAL | chunks(100, 10) | {LR: 0.025, LAYERS: 2, BATCH: 128, EVERY: 1149},
    ("lra-retrieval", "gutlb"): RETRIEVAL | chunks(100, 10) | {LR: 0.025, BOUND: 2, BATCH: 128, EVERY: 1149},
    ("lra-image", "baseline"): IMAGE | THRESHOLD | {LR: 5e-4, BOUND: 15, BETA: 0.1, POOLING: "end"},
    ("lra-image", "ut"): IMAGE | {LR: 5e-4, BOUND: 3, BETA: 0.1, POOLING: "start"},
    ("lra-image", "transformer"): IMAGE | {LR: 5e-4, LAYERS: 1, POOLING: "start"},
    ("lra-image", "tlb"): IMAGE | chunks(32, 5) | {LR: 1e-3, LAYERS: 1},
    ("lra-image", "gutlb"): IMAGE | chunks(32, 5) | {LR: 1e-3, BOUND: 2, BETA: 0.1},
    ("lra-pathfinder", "baseline"): PATHFINDER | THRESHOLD | {BOUND: 15, BETA: 0.1, POOLING: "end"},
    ("lra-pathfinder", "ut"): PATHFINDER | {BOUND: 4, BETA: 0.1, POOLING: "mean"},
    ("lra-pathfinder", "transformer"): PATHFINDER | {LAYERS: 2, POOLING: "mean"},
    ("lra-pathfinder", "tlb"): PATHFINDER_CHUNKS | chunks(64, 5) | {LAYERS: 2},
    ("lra-pathfinder", "gutlb"): PATHFINDER_CHUNKS | chunks(64, 5) | {BOUND: 3, BETA: 0.1},
    ("listops-dg2", "baseline"): ROUTER | {LAYERS: 20, "model.test_layers": 24, STEPS: 97_650, EVERY: 1953},
    ("listops-dg2", "crvnn"): RECURSIVE
    | {WIDTH: 128, STEPS: 781_200, EVERY: 7812, "train.select_by": "loss"},
    ("listops-dg2", "transformer"): LISTOPS | SIDE | {LAYERS: 4, STEPS: 3_125_000, EVERY: 31_250},
    ("logical-inference-routers", "baseline"): ROUTER
    | {LAYERS: 15, "model.test_layers": 15, STEPS: 50 * 239},
    ("logical-inference-routers", "crvnn"): RECURSIVE | {WIDTH: 200, "model.cell_width": 800, STEPS: 95_300},
    ("logical-inference-routers", "transformer"): LOGIC | {LAYERS: 4},
    ("listops-ndr", "baseline"): ROUTER
    | {LAYERS: 20, "model.test_layers": 24, STEPS: 100_000, PATIENCE: None},
    ("listops-crvnn", "baseline"): RECURSIVE | {WIDTH: 128, EVERY: 621, STEPS: 62_100, PATIENCE: 10},
    ("listops-crvnn", "ndr"): ROUTER | {LAYERS: 20, STEPS: 100_000, PATIENCE: None},
    ("listops-dependency", "baseline"): ROUTER | {LAYERS: 20, STEPS: 100_000, "model.normalise_rows": False},
    ("wmt14", "baseline"): TRANSLATION | {"model.attention.experts": 24, "model.feedforward.experts": 24},
    ("wmt14-big", "baseline"): TRANSLATION | {"model.attention.experts": 48, "model.feedforward.experts": 48},
    ("looped-parity", "baseline"): looped(64, 1, 500, 0.9999, 19),
    ("looped-copy", "baseline"): looped(8, 2, 1000, None),
    ("looped-addition", "baseline"): looped(8, 3, 1600, None),
    ("looped-multiplication", "baseline"): looped(8, 4, 500, None, 10),
    ("looped-binary-sum", "baseline"): looped(16, 2, 500, 0.9999),
    ("looped-unique-set", "baseline"): looped(8, 3, 1000, None),
}


@cache
def arms(name: str) -> dict[str, Any]:
    source = read_spec(EXPERIMENTS / f"{name}.yaml")
    return {
        each.request.label: each.system.settings
        for each in resolve_built_in_arms(source.spec, Faults(source))
    }


@pytest.mark.parametrize(("name", "arm"), FACTS)
def test_settings_equal_those_of_the_paper(name: str, arm: str) -> None:
    settings, expected = arms(name)[arm], FACTS[name, arm]
    actual = {path: lookup(settings, path) for path in expected}
    assert {
        path: list(each) if isinstance(each, tuple) else each for path, each in actual.items()
    } == expected


SEARCHES = {
    **{f"search-gut-{task}": task for task in ("listops", "logical-inference", "flipflop")},
    **{f"search-tlb-{task}": task for task in ("listops", "logical-inference", "flipflop")},
    **{f"search-gutlb-{task}": task for task in ("listops", "logical-inference", "flipflop")},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_start_with_the_published_settings(name: str) -> None:
    task, model = SEARCHES[name], name.split("-")[1]
    spec = {"listops": "listops-o"}.get(task, task)
    label = {"gut": "gut" if task == "flipflop" else "baseline"}.get(model, model)
    published = arms(spec)["baseline" if (spec, label) == ("flipflop", "tlb") else label]
    arm_settings, first = arms(name)["as-published"], read_spec(EXPERIMENTS / f"{name}.yaml").spec.search
    assert {path: lookup(published, path) for path in first.first[0]} == dict(first.first[0])
    assert arm_settings["model"] == published["model"]
    compared_fields = [path for path in published["train"] if path != "ponder_weight" or model != "tlb"]
    assert {path: arm_settings["train"][path] for path in compared_fields} == {
        path: published["train"][path] for path in compared_fields
    }
