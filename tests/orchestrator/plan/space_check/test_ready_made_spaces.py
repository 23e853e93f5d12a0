"""Every ready-made space fits the models it was made for."""

import pytest

from orchestrator.search import space_catalog as catalog
from tests.orchestrator.plan.small import BASELINE, SEARCH, spec
from tests.support.specs.planned import plan

MODELS = {
    "crvnn": {"name": "crvnn", "width": 16},
    "gutlb": {"name": "gutlb", "width": 16, "heads": 2},
    "looped": {"name": "looped", "width": 128, "heads": 8},
    "ndr": {"name": "ndr", "width": 16, "heads": 2, "layers": 6},
    "sut": {
        "name": "sut",
        "width": 16,
        "attention": {"heads": 1, "head_width": 4},
        "feedforward": {"width": 8},
    },
    "tlb": {"name": "tlb", "width": 16, "heads": 2},
    "transformer": {"name": "transformer", "width": 16, "heads": 2},
    "universal": {"name": "universal", "width": 16, "heads": 2},
}
MADE_FOR = {
    "chunking": ("tlb", "gutlb"),
    "composing": ("crvnn",),
    "depth": ("universal", "gutlb"),
    "experts": ("sut",),
    "halting": ("universal", "gutlb", "sut"),
    "looping": ("looped",),
    "optimiser": ("transformer",),
    "routing": ("ndr",),
}
"""Space to models; one that is not here is tried on none, which fails."""
TASKS = {"looping": {"name": "algorithms", "problem": "copy", "length_max": 5, "test_lengths": [6]}}
# A curriculum must begin before the end of a training, a schedule must have what it goes by.
TRAININGS = {"looping": {"steps": 10_000}, "optimiser": {"schedule": "cosine"}}
PAIRS = [(name, model) for name in catalog.names() for model in MADE_FOR.get(name, ("nothing",))]


@pytest.mark.parametrize("variant", ["", ".wide"])
@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_every_dimension_can_be_searched(name: str, model: str, variant: str) -> None:
    assert model in MODELS, f"name a model that the space {name!r} was made for, in MADE_FOR"
    task = TASKS.get(name, {"name": "listops", "train_length_max": 100})
    train = BASELINE["train"] | TRAININGS.get(name, {})
    baseline = {"task": task, "model": MODELS[model], "train": train}
    search = {**SEARCH, "spaces": [name + variant], "also": {}, "stopper": None}
    found = plan(spec(baseline=baseline, search=search, confirm={"seeds": [101, 102, 103]}))
    assert found.baseline.space.paths == catalog.load(name + variant).paths


def test_halting_is_searched_in_chunks_as_elsewhere() -> None:
    search = {**SEARCH, "spaces": ["chunking", "halting"], "also": {}, "stopper": None}
    found = plan(spec(baseline={**BASELINE, "model": MODELS["gutlb"]}, search=search))
    assert set(catalog.load("halting").paths) < set(found.baseline.space.paths)
