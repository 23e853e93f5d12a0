"""The dry run prints the important facts of a plan within 100 columns."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from orchestrator.plan.display.format import bytes_amount, duration, format_amount
from orchestrator.plan.display.render import plan_warnings, render
from orchestrator.plan.types import Change
from search_spaces.dimensions import Space
from tests.orchestrator.plan.small_specs import SEARCH, make_full_spec, make_one_arm_spec, make_spec
from tests.orchestrator.report.studies import make_study
from tests.support.specs.planned import plan


def print_plan(sweep_plan: Any) -> str:
    console = Console(file=StringIO(), width=100, highlight=False)
    for part in render(sweep_plan):
        console.print(part)
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


@pytest.fixture(scope="module")
def plan_text() -> str:
    return print_plan(plan(make_full_spec()))


def test_plan_fits_into_a_hundred_columns(plan_text: str) -> None:
    assert max(map(len, plan_text.splitlines())) <= 100


@pytest.mark.parametrize(
    "line",
    [
        "small  Does it plan?",
        "minus-gate  plain feed-forward block",
        "model.gate  true  ->  false",
        "searches train.lr: 0.0001 to 0.002, log",
        "searches what the baseline searches, but not train.ponder_weight, model.halt.threshold",
        "- encoder.block.gate: FeedForward",
        "differs in weights, FLOPs, loss, gradient",
        "54 trials;",
        "With 3 seeds and 4 comparisons, a difference in near-iid/accuracy",
    ],
)
def test_plan_prints_important_facts(plan_text: str, line: str) -> None:
    assert line in plan_text


def test_warning_is_printed_below_its_arm() -> None:
    plan_text = print_plan(plan(make_one_arm_spec({"model.halt.transition": False}, name="minus-gate")))
    assert (
        "warning: the name says that it removes gate, but the arm changes model.halt.transition" in plan_text
    )


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("model.layers", 6, True),
        ("model.gate", False, True),
        ("model.layers", 20, False),
        ("train.lr", 0.01, False),
        ("model.width", 6, False),
    ],
)
def test_warning_names_an_arm_that_the_baseline_search_may_find(
    path: str, value: Any, expected: bool
) -> None:
    sweep_plan = make_study(2, 3, 1, thresholds=()).plan
    arm = replace(sweep_plan.arms[1], changes=(Change(path, None, value),))
    warnings = plan_warnings(replace(sweep_plan, arms=(sweep_plan.arms[0], arm)))
    assert len(warnings) == expected
    assert all("the search of arm-0 may choose what arm-1 sets" in line for line in warnings)
    # Without a searched field, the difference is the effect of the search itself.
    assert plan_warnings(replace(sweep_plan, arms=(sweep_plan.arms[0], replace(arm, space=Space(()))))) == []


def make_published_row(**fields: Any) -> dict[str, Any]:
    """Make a row of a published table."""
    return {
        "arm": "baseline",
        "metric": "accuracy",
        "values": {"near-iid": 0.7},
        "source": "a table",
    } | fields


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            {
                "published": [
                    make_published_row(values={"near-iid": 0.7, "lra": 0.4}),
                    make_published_row(metric="depth", values={"lra": 4}),
                ]
            },
            "accuracy of baseline on lra; depth of baseline on lra. Add the splits to confirm.splits,",
        ),
        (
            {
                "posthoc": {"model.halt.threshold": [0.5]},
                "published": [
                    make_published_row(values={"train": 0.9}, posthoc={"model.halt.threshold": 0.5})
                ],
            },
            "accuracy of baseline, model.halt.threshold=0.5 on train.",
        ),
        (
            {"confirm": None, "search": SEARCH, "published": [make_published_row()]},
            "accuracy of baseline on near-iid. Add confirm: what a search reads is compared with nothing",
        ),
    ],
)
def test_warning_names_a_published_value_that_no_trial_measures(parts: dict[str, Any], expected: str) -> None:
    words = " ".join(print_plan(plan(make_spec(**parts))).split())
    assert f"Warning: no confirmed trial reads what was published as {expected}" in words


def test_measured_published_value_causes_no_warning() -> None:
    sweep_plan = plan(
        make_spec(published=[make_published_row(values={"near-iid": 0.7, "valid": 0.8, "train": 0.9})])
    )
    assert "Look twice" not in print_plan(sweep_plan)


def test_calibrated_plan_marks_times_as_measured(plan_text: str) -> None:
    assert "a step," not in plan_text
    assert "a step," in print_plan(plan(make_one_arm_spec({"model.gate": False}), calibrate=True))


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (999.4, "999"), (999.6, "1 k"), (4.5504e8, "455 M"), (1.234e4, "12.3 k"), (1e30, "1000000 Y")],
)
def test_amounts(value: float, words: str) -> None:
    assert format_amount(value) == words


@pytest.mark.parametrize(("value", "words"), [(1, "1 B"), (2048, "2 KiB"), (2.57e9, "2.39 GiB")])
def test_bytes(value: float, words: str) -> None:
    assert bytes_amount(value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0032, "3.2 ms"),
        (41, "41.0 s"),
        (119, "119 s"),
        (720, "12.0 min"),
        (19_800, "5.5 h"),
        (267_840, "3.1 d"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
