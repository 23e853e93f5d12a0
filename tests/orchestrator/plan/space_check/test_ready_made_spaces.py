"""Every ready-made search space fits the models for which it was made."""

import pytest

from orchestrator.search import space_catalog as catalog
from tests.orchestrator.plan.small_specs import BASELINE, SEARCH, make_spec
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
MODELS_BY_SPACE = {
    "chunking": ("tlb", "gutlb"),
    "composing": ("crvnn",),
    "depth": ("universal", "gutlb"),
    "experts": ("sut",),
    "halting": ("universal", "gutlb", "sut"),
    "looping": ("looped",),
    "optimiser": ("transformer",),
    "routing": ("ndr",),
}
"""Models by search space; a space without an entry fails its test."""
TASKS = {"looping": {"name": "algorithms", "problem": "copy", "length_max": 5, "test_lengths": [6]}}
# A curriculum must start before the end of the training; a schedule must have its parameters.
TRAININGS = {"looping": {"steps": 10_000}, "optimiser": {"schedule": "cosine"}}
PAIRS = [(name, model) for name in catalog.space_names() for model in MODELS_BY_SPACE.get(name, ("nothing",))]


@pytest.mark.parametrize("variant", ["", ".wide"])
@pytest.mark.parametrize(("name", "model"), PAIRS)
def test_every_dimension_can_be_searched(name: str, model: str, variant: str) -> None:
    assert model in MODELS, f"name a model that the space {name!r} was made for, in MODELS_BY_SPACE"
    task = TASKS.get(name, {"name": "listops", "train_length_max": 100})
    train = BASELINE["train"] | TRAININGS.get(name, {})
    baseline = {"task": task, "model": MODELS[model], "train": train}
    search = {**SEARCH, "spaces": [name + variant], "also": {}, "stopper": None}
    sweep_plan = plan(make_spec(baseline=baseline, search=search, confirm={"seeds": [101, 102, 103]}))
    assert sweep_plan.baseline.space.paths == catalog.load(name + variant).paths
