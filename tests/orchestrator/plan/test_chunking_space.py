"""The ready-made space of chunks fits the models that have chunks."""

import pytest

from orchestrator.plan.planner import plan
from search_spaces import catalog
from tests.orchestrator.plan.small import BASELINE, SEARCH, spec

MODELS = {
    "tlb": {"name": "tlb", "width": 16, "heads": 2},
    "gutlb": {"name": "gutlb", "width": 16, "heads": 2},
}


@pytest.mark.parametrize("name", ["chunking", "chunking.wide"])
@pytest.mark.parametrize("model", MODELS)
def test_every_dimension_of_chunking_can_be_searched(model: str, name: str) -> None:
    task = {"name": "listops", "train_length_max": 100}
    found = plan(
        spec(
            baseline={**BASELINE, "task": task, "model": MODELS[model]},
            search={**SEARCH, "spaces": [name], "also": {}, "stopper": None},
        )
    )
    assert found.baseline.space.paths == catalog.load(name).paths


def test_halting_is_searched_in_chunks_as_elsewhere() -> None:
    search = {**SEARCH, "spaces": ["chunking", "halting"], "also": {}, "stopper": None}
    found = plan(spec(baseline={**BASELINE, "model": MODELS["gutlb"]}, search=search))
    assert set(catalog.load("halting").paths) < set(found.baseline.space.paths)
