"""The dry run says what matters, within 100 columns."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from orchestrator.plan.display.format import bytes_amount, duration, format_amount
from orchestrator.plan.display.render import plan_warnings, render
from orchestrator.plan.types import Change
from search_spaces.dimensions import Space
from tests.orchestrator.plan.small import SEARCH, full, one_arm, spec
from tests.orchestrator.report.studies import study
from tests.support.specs.planned import plan


def text(found: Any) -> str:
    console = Console(file=StringIO(), width=100, highlight=False)
    for part in render(found):
        console.print(part)
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue()


@pytest.fixture(scope="module")
def shown() -> str:
    return text(plan(full()))


def test_fits_into_a_hundred_columns(shown: str) -> None:
    assert max(map(len, shown.splitlines())) <= 100


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
def test_says_what_matters(shown: str, line: str) -> None:
    assert line in shown


def test_what_to_look_at_twice_stands_below_the_arm() -> None:
    shown = text(plan(one_arm({"model.halt.transition": False}, name="minus-gate")))
    assert "warning: the name says that it removes gate, but the arm changes model.halt.transition" in shown


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
def test_an_arm_that_the_search_of_its_reference_may_become_is_told(
    path: str, value: Any, expected: bool
) -> None:
    made = study(2, 3, 1, thresholds=()).plan
    arm = replace(made.arms[1], changes=(Change(path, None, value),))
    found = plan_warnings(replace(made, arms=(made.arms[0], arm)))
    assert len(found) == expected
    assert all("the search of arm-0 may choose what arm-1 sets" in line for line in found)
    # Where nothing is searched at all, the difference is what searching gives.
    assert plan_warnings(replace(made, arms=(made.arms[0], replace(arm, space=Space(()))))) == []


def row(**said: Any) -> dict[str, Any]:
    """A row of a published table."""
    return {"arm": "baseline", "metric": "accuracy", "values": {"near-iid": 0.7}, "source": "a table"} | said


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            {
                "published": [
                    row(values={"near-iid": 0.7, "lra": 0.4}),
                    row(metric="depth", values={"lra": 4}),
                ]
            },
            "accuracy of baseline on lra; depth of baseline on lra. Add the splits to confirm.splits,",
        ),
        (
            {
                "posthoc": {"model.halt.threshold": [0.5]},
                "published": [row(values={"train": 0.9}, posthoc={"model.halt.threshold": 0.5})],
            },
            "accuracy of baseline, model.halt.threshold=0.5 on train.",
        ),
        (
            {"confirm": None, "search": SEARCH, "published": [row()]},
            "accuracy of baseline on near-iid. Add confirm: what a search reads is compared with nothing",
        ),
    ],
)
def test_a_published_value_that_stands_nowhere_is_told(parts: dict[str, Any], expected: str) -> None:
    words = " ".join(text(plan(spec(**parts))).split())
    assert f"Warning: no confirmed trial reads what was published as {expected}" in words


def test_a_published_value_that_is_read_is_no_news() -> None:
    made = plan(spec(published=[row(values={"near-iid": 0.7, "valid": 0.8, "train": 0.9})]))
    assert "Look twice" not in text(made)


def test_calibrated_plans_say_how_long(shown: str) -> None:
    assert "One after the other, all steps take" not in shown
    assert "One after the other, all steps take" in text(plan(one_arm({"model.gate": False}), calibrate=True))


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
