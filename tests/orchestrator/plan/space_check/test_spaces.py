"""No draw of a space that was planned can be refused by the trainables."""

from typing import Any

import pytest

from orchestrator.errors import PlanError
from orchestrator.plan.space_check.spaces import related
from tests.orchestrator.plan.small import ARMS, SEARCH, baseline, spec
from tests.support.specs.planned import plan


def searched(also: dict[str, Any], **parts: Any) -> Any:
    search = {**SEARCH, "spaces": [], "also": also, "stopper": None}
    return plan(spec(search=search, **parts))


def test_conditions_on_settings_take_dimensions_away() -> None:
    warmed = {"train.warmup_steps": {"int": [1, 50], "when": {"train.schedule": ["cosine"]}}}
    free = {"train.lr": {"float": [1e-3, 1e-2]}}
    arms = {"falling": {"why": "slower in the end", "set": {"train.schedule": "cosine"}}}
    found = searched(warmed | free, arms=arms)
    assert found.baseline.space.paths == ("train.lr",)
    assert found.baseline.dropped == ("train.warmup_steps",)
    assert set(found.arm("falling").space.paths) == {"train.lr", "train.warmup_steps"}


def test_conditions_on_dimensions_are_met_before_bounds_are_tried() -> None:
    also = {
        "train.schedule": {"choice": ["constant", "cosine"]},
        "train.warmup_steps": {"int": [1, 50], "when": {"train.schedule": ["cosine"]}},
    }
    assert searched(also).baseline.space.paths == ("train.schedule", "train.warmup_steps")


def test_a_bound_under_a_condition_is_tried() -> None:
    also = {
        "train.schedule": {"choice": ["constant", "cosine"]},
        "train.warmup_steps": {"int": [1, 500], "when": {"train.schedule": ["cosine"]}},
    }
    with pytest.raises(PlanError, match=r"train\.warmup_steps = 101, .*: warmup_steps must be at most steps"):
        searched(also)


def test_an_end_that_no_step_reaches_is_not_tried() -> None:
    also = {
        "model.halt.threshold": {"float": [0.5, 1.05], "step": 0.25},
        "model.heads": {"int": [2, 5], "step": 2},
    }
    assert searched(also, baseline=baseline(width=16)).baseline.space.paths == tuple(also)


def test_constraints_excuse_what_is_never_drawn() -> None:
    """The optimiser's space has warm-ups of 8000 steps, and a constraint that they fit into the training."""
    scheduled = {
        **baseline(),
        "train": {"steps": 400, "schedule": "rsqrt", "warmup_steps": 50, "report_every": 10},
    }
    found = plan(spec(baseline=scheduled, search={**SEARCH, "spaces": ["optimiser"], "also": {}}))
    assert "train.warmup_steps" in found.baseline.space.paths
    assert found.baseline.space.constraints


def test_fields_that_only_clash_together_are_found() -> None:
    also = {"model.width": {"choice": [16, 20]}, "model.heads": {"choice": [2, 4]}}
    with pytest.raises(PlanError, match=r"model\.width = 20, model\.heads = 4: head_width must be even"):
        searched(also)


def test_of_many_dimensions_every_pair_has_its_corners_tried() -> None:
    others = {
        f"model.{name}": {"choice": [round(0.1 * k, 1) for k in range(9)]}
        for name in ("dropout", "attention_dropout")
    }
    also = {"model.width": {"choice": [16, 20]}, "model.heads": {"choice": [2, 4]}, **others}
    with pytest.raises(PlanError, match=r"model\.width = 20, model\.heads = 4: head_width must be even"):
        searched(also)


def test_an_arm_searches_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(spec(arms={"no-halt": ARMS["no-halt"]}, search=SEARCH))
    assert found.arm("no-halt").dropped == ("train.ponder_weight", "model.halt.threshold")
    assert found.baseline.dropped == ()


def test_digest_knows_settings_and_space() -> None:
    one = searched({"train.lr": {"float": [1e-3, 1e-2]}})
    other = searched({"train.lr": {"float": [1e-3, 2e-2]}})
    third = searched({"train.lr": {"float": [1e-3, 1e-2]}}, baseline=baseline(width=32))
    assert len({each.baseline.digest for each in (one, other, third)}) == 3


LR = {"train.lr": {"float": [1e-4, 1e-3]}}
DEPTH = {"model.max_layers": {"int": [2, 4]}}


def dropping(*dropped: str, sets: dict[str, Any], also: dict[str, Any]) -> Any:
    return searched(also, arms={"arm": {"why": "as it says", "set": sets, "drop": list(dropped)}})


@pytest.mark.parametrize(
    ("dropped", "sets", "also"),
    [
        (("train.lr", "model.max_layers"), {"model.gate": False}, LR | DEPTH),
        (("train.lr",), {"train.lr": 2e-4}, LR | DEPTH),
        (("model.max_layers",), {"model.halt": None}, LR | DEPTH),
        (("train.ponder_weight",), {"model.halt": None}, {"train.ponder_weight": {"float": [0.0, 1.0]}} | LR),
        (
            ("model.max_layers",),
            {"train.schedule": "cosine"},
            LR | {"model.max_layers": {"int": [2, 4], "when": {"train.schedule": ["constant"]}}},
        ),
    ],
    ids=[
        "all, so that it is not searched",
        "what it sets",
        "a size that stays, which the arm may be about",
        "what does nothing there",
        "what is not there",
    ],
)
def test_what_an_arm_may_drop(dropped: Any, sets: Any, also: Any) -> None:
    assert not set(dropped) & set(dropping(*dropped, sets=sets, also=also).arm("arm").space.paths)


def test_when_trials_are_measured_is_searched_only_where_training_goes_by_it() -> None:
    often = {"train.report_every": {"choice": [10, 50]}}
    with pytest.raises(
        PlanError, match=r"train\.report_every: must not be searched: it says when trials are"
    ):
        searched(often | LR)
    patient = {**baseline(), "train": {"steps": 400, "report_every": 10, "patience": 2}}
    assert "train.report_every" in searched(often | LR, baseline=patient).baseline.space.paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("model.widht", ["model.width"]),
        ("wdth", ["model.width", "lr"]),
        ("modle.width", ["model.width", "lr"]),
    ],
)
def test_a_path_into_no_part_is_told_of_all_fields(path: str, expected: list[str]) -> None:
    assert related(path, iter(["model.width", "lr"])) == expected
