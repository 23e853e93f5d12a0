"""Possible verdicts of an arm and the conditions that withhold them."""

import numpy as np
import pytest

from orchestrator.statistics.paired import PairedEstimate, estimate_differences
from orchestrator.statistics.verdicts import verdict
from tests.orchestrator.statistics import studies

SEEDS = (101, 102, 103, 104, 105, 106, 107, 108)
CLEAR_DIFFERENCES = (0.021, 0.024, 0.017, 0.022, 0.031, 0.022, 0.019, 0.018)
SMALL_DIFFERENCES = (0.001, -0.002, 0.003, -0.001, 0.002, -0.003, 0.001, -0.001)
NOISY_DIFFERENCES = (0.021, -0.014, 0.037, 0.012, -0.021, 0.032, 0.009, 0.008)


def compare_values(values: tuple[float, ...], family: int = 4) -> PairedEstimate:
    return estimate_differences({("arm", "x"): dict(zip(SEEDS, values, strict=False))}, family=family)[
        "arm", "x"
    ]


@pytest.mark.parametrize(
    ("sign", "better", "kind"),
    [
        (1, "max", "better"),
        (-1, "max", "worse"),
        (1, "min", "worse"),
        (-1, "min", "better"),
        (1, None, "higher"),
    ],
)
def test_clear_difference_has_a_direction(sign: int, better: str, kind: str) -> None:
    result = verdict(compare_values(tuple(sign * value for value in CLEAR_DIFFERENCES)), better=better)  # type: ignore[arg-type]
    assert (result.kind, result.text, result.withheld) == (kind, kind, "")


def test_no_difference_requires_a_margin() -> None:
    comparison = compare_values(SMALL_DIFFERENCES)
    assert verdict(comparison, margin=0.01).kind == "no difference"
    assert verdict(comparison).kind == "undecided"
    assert comparison.low is not None
    assert verdict(comparison, margin=-comparison.low).kind == "undecided", (
        "the margin itself is not within the margin"
    )


def test_difference_below_the_margin_is_reported_as_small() -> None:
    assert "0.05" in verdict(compare_values(CLEAR_DIFFERENCES), margin=0.05, better="max").text
    assert verdict(compare_values(CLEAR_DIFFERENCES), margin=0.02, better="max").text == "better"


def test_wide_interval_is_undecided() -> None:
    for margin in (None, 0.001):
        result = verdict(compare_values(NOISY_DIFFERENCES), margin=margin)
        assert (result.kind, result.text, result.withheld) == ("undecided", "undecided", "")


def test_failed_seeds_leave_the_verdict_undecided() -> None:
    result = verdict(compare_values(CLEAR_DIFFERENCES), num_failed=3, better="max")
    assert (result.kind, "3 seeds" in result.withheld) == ("undecided", True)
    assert verdict(None).withheld


def test_two_seeds_or_constant_values_give_no_verdict() -> None:
    assert "3 seeds" in verdict(compare_values((0.02, 0.0200001))).withheld
    assert verdict(compare_values((0.5,) * 4)).kind == "undecided"


def test_verdict_that_depends_on_one_seed_is_withheld() -> None:
    """The interval excludes 0 with five seeds, but not without seed 103."""
    comparison = compare_values((0.0, 0.02, 0.03, 0.03, 0.01), family=1)
    assert comparison.excludes_zero
    withheld_verdict = verdict(comparison, better="max")
    assert (withheld_verdict.kind, "seed 103" in withheld_verdict.withheld) == ("undecided", True)


def test_simulated_verdicts_match() -> None:
    study_differences = (
        studies.paired_differences(studies.sample_normal(np.random.default_rng(5), (200, 5, 2))) + 2.0
    )
    is_decided = studies.decided_verdicts(study_differences)[:, 0]
    is_higher = [
        verdict(compare_values(tuple(study[:, 0]), family=1)).kind == "higher" for study in study_differences
    ]
    is_lower = [
        verdict(compare_values(tuple(study[:, 0]), family=1)).kind == "lower" for study in study_differences
    ]
    assert [higher or lower for higher, lower in zip(is_higher, is_lower, strict=True)] == list(is_decided)
    assert 0 < sum(is_higher) < len(is_higher)
    assert any(studies.interval_rejections(study_differences)[:, 0] & ~is_decided), (
        "the simulation withholds some verdicts"
    )
