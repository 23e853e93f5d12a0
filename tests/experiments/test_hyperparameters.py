"""Specs have the settings of the papers: one arm of each model, and the searches that start from a spec.

If a paper and its released code differ, the paper counts.
"""

from functools import cache
from typing import Any

import pytest

from orchestrator.plan.arms import resolve
from orchestrator.plan.faults import Faults
from orchestrator.spec.load import read_spec
from search_spaces.paths import lookup
from tests.experiments.tables import EXPERIMENTS

SHAPE = {"model.width": 512, "model.heads": 8, "model.dropout": 0.1, "model.attention_dropout": 0.1}
OPTIMIZER = {"train.betas": [0.9, 0.98], "train.eps": 1e-8, "train.weight_decay": 0.1, "train.clip": 1.0}
LISTOPS = SHAPE | OPTIMIZER | {"train.batch_size": 32, "train.schedule": "rsqrt", "train.patience": 10}
CHUNKS = {"model.memory.slots": 10, "model.memory.update_layers": 2, "model.chunk.size": 10}
WMT14_MODEL = {"model.max_layers": 6, "model.attention.experts": 24, "model.feedforward.experts": 24}
WMT14_DECODING = {"train.beam_size": 8, "train.length_penalty": 0.4, "train.average_best": 5}
FACTS: dict[tuple[str, str], dict[str, Any]] = {
    ("listops-o", "baseline"): LISTOPS
    | {"train.lr": 0.05, "train.warmup_steps": 1000, "train.ponder_weight": 0.1}
    | {"model.max_layers": 10, "model.halt.threshold": 0.999, "model.pooling": "end"},
    ("listops-o", "tlb"): LISTOPS
    | {"train.lr": 0.0125, "train.warmup_steps": 8000, "model.layers": 2, "model.chunk.size": 20},
    ("flipflop", "baseline"): SHAPE
    | CHUNKS
    | {"train.lr": 3e-4, "train.schedule": "linear", "train.steps": 10_000, "model.causal": True},
    ("listops-dg2", "baseline"): {"model.heads": 16, "model.gate_dropout": 0.05, "train.weight_decay": 0.09}
    | {"model.layers": 20, "model.test_layers": 24, "train.lr": 2e-4, "train.schedule": "constant"},
    ("listops-crvnn", "baseline"): {"model.width": 128, "model.cell_dropout": 0.1, "train.lr": 1e-3}
    | {"model.halt.threshold": 0.1, "train.optimizer": "ranger", "train.halve_after": 2},
    ("wmt14", "baseline"): WMT14_MODEL
    | WMT14_DECODING
    | {"train.label_smoothing": 0.1, "train.batch_tokens": 262144, "train.accumulate": 32},
    ("looped-parity", "baseline"): {"model.heads": 64, "model.layers": 1, "model.injection": True}
    | {"train.lr": 1e-4, "train.ema": 0.9999, "train.steps": 100_000, "train.hold_steps": 500 * 19},
}


@cache
def arms(name: str) -> dict[str, Any]:
    source = read_spec(EXPERIMENTS / f"{name}.yaml")
    return {each.request.label: each.system.settings for each in resolve(source.spec, Faults(source))}


@pytest.mark.parametrize(("name", "arm"), FACTS)
def test_settings_equal_those_of_the_paper(name: str, arm: str) -> None:
    settings, expected = arms(name)[arm], FACTS[name, arm]
    actual = {path: lookup(settings, path) for path in expected}
    assert {
        path: list(each) if isinstance(each, tuple) else each for path, each in actual.items()
    } == expected


SEARCHES = {
    f"search-{model}-{task}": task
    for model in ("gut", "tlb", "gutlb")
    for task in ("listops", "logical-inference", "flipflop")
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_start_with_the_published_settings(name: str) -> None:
    task, model = SEARCHES[name], name.split("-")[1]
    spec = {"listops": "listops-o"}.get(task, task)
    label = {"gut": "gut" if task == "flipflop" else "baseline"}.get(model, model)
    published = arms(spec)["baseline" if (spec, label) == ("flipflop", "tlb") else label]
    ours, first = arms(name)["as-published"], read_spec(EXPERIMENTS / f"{name}.yaml").spec.search
    assert first is not None
    assert {path: lookup(published, path) for path in first.first[0]} == dict(first.first[0])
    assert ours["model"] == published["model"]
    same = [path for path in published["train"] if path != "ponder_weight" or model != "tlb"]
    assert {path: ours["train"][path] for path in same} == {path: published["train"][path] for path in same}
