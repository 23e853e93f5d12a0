"""What only building or running a system shows becomes a fault of the spec, never a traceback."""

from typing import Any

import pytest

from orchestrator.errors import InputError, PlanError
from orchestrator.plan.planner import plan
from search_spaces.paths import with_value
from tests.orchestrator.plan.small import CONFIRM, SEARCH, baseline, one_arm, spec
from trainables.models import universal


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose settings are right but that cannot be built for its task with more than eight layers."""
    init = universal.Encoder.__init__

    def refuse(self: universal.Encoder, config: Any) -> None:
        if config.max_layers > 8:
            raise ValueError(f"at most 8 layers fit, got {config.max_layers}")
        init(self, config)

    monkeypatch.setattr(universal.Encoder, "__init__", refuse)


@pytest.mark.usefixtures("picky")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            spec(baseline=baseline(max_layers=9)),
            "baseline: baseline cannot be trained: at most 8",
        ),
        (
            one_arm({"model.max_layers": 10}),
            r"arms\.arm: arm cannot be trained: at most 8",
        ),
        (
            spec(search={**SEARCH, "spaces": [], "also": {"model.max_layers": {"int": [4, 12]}}}),
            r"search\.also\.model\.max_layers: .* model\.max_layers = 12: at most 8 layers fit, got 12",
        ),
        (
            spec(posthoc={"model.max_layers": [8, 20]}),
            r"posthoc\.model\.max_layers\[1\]: baseline cannot be built with .* = 20: at most 8",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_where_it_is_asked_for(asked: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(asked)


def test_a_precision_that_needs_a_gpu_is_planned_and_not_timed() -> None:
    half = {**baseline(), "train": {"steps": 5, "precision": "fp16"}}
    asked = spec(baseline=half, resources={"gpus": 0.5})
    assert plan(asked).proofs
    with pytest.raises(InputError, match="a step cannot be timed here: precision 'fp16' needs a CUDA device"):
        plan(asked, calibrate=True)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("model.halt.threshold", "model.halt.threshold does not exist: model.halt is null"),
        ("model.memory.slots", "model.memory.slots does not exist: model.memory is not there"),
        ("model.width.more.still", "model.width.more.still does not exist: model.width is 8"),
    ],
)
def test_a_path_through_nothing_is_refused(path: str, message: str) -> None:
    settings = {"model": {"width": 8, "halt": None}}
    with pytest.raises(ValueError, match=message):
        with_value(settings, path, 1)
    assert settings == {"model": {"width": 8, "halt": None}}


def test_setting_a_value_copies_what_it_changes_and_nothing_else() -> None:
    settings = {"model": {"halt": {"unit": "token"}, "sizes": [1]}, "train": {"lr": 0.1}}
    changed = with_value(settings, "model.halt.unit", "sequence")
    assert settings["model"]["halt"] == {"unit": "token"}
    assert changed["model"]["halt"] == {"unit": "sequence"}
    assert changed["train"] is settings["train"]


def test_a_vocabulary_that_is_not_there_is_a_fault_of_the_task() -> None:
    asked = spec(baseline={**baseline(), "task": {"name": "wmt14"}})
    with pytest.raises(
        PlanError, match=r"baseline\.task: folder must name a folder that holds train\.en, .*dict"
    ):
        plan(asked)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("task.data_seed", 3, r"data_seed\[0\]: baseline learned from other data .* make it an arm"),
        ("task.near_iid_examples", 500, r"near_iid_examples\[0\]: baseline learned from other data"),
        ("task.train_length_max", 50, r"train_length_max: changes nothing that is read: .* trained on"),
        (
            "task.test_examples",
            5,
            r"test_examples: changes nothing that is read: no split of confirm\.splits",
        ),
        ("model.attention", "math", r"model\.attention: changes nothing that is read"),
    ],
)
def test_a_reading_of_what_was_never_kept_from_training_or_of_nothing_else_is_refused(
    path: str, value: Any, message: str
) -> None:
    """Tests drawn anew may hold what was trained on; another kernel sums in another order."""
    with pytest.raises(PlanError, match=message):
        plan(spec(posthoc={path: [value]}))


def test_more_samples_of_a_test_that_is_drawn_apart_may_be_read() -> None:
    confirm = {**CONFIRM, "splits": ["length-200-300"]}
    assert plan(spec(confirm=confirm, posthoc={"task.test_examples": [5]})).posthoc
