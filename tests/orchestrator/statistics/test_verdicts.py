"""What may be said of an arm, and when it may not."""

import numpy as np
import pytest

from orchestrator.statistics.paired import PairedEstimate, compare
from orchestrator.statistics.verdicts import no_collapse_probability, verdict
from tests.orchestrator.statistics import studies

SEEDS = (101, 102, 103, 104, 105, 106, 107, 108)
CLEAR = (0.021, 0.024, 0.017, 0.022, 0.031, 0.022, 0.019, 0.018)
NOTHING = (0.001, -0.002, 0.003, -0.001, 0.002, -0.003, 0.001, -0.001)
UNCLEAR = (0.021, -0.014, 0.037, 0.012, -0.021, 0.032, 0.009, 0.008)


def paired(values: tuple[float, ...], family: int = 4) -> PairedEstimate:
    return compare({("arm", "x"): dict(zip(SEEDS, values, strict=False))}, family=family)["arm", "x"]


@pytest.mark.parametrize(
    ("sign", "good", "kind"),
    [
        (1, "max", "better"),
        (-1, "max", "worse"),
        (1, "min", "worse"),
        (-1, "min", "better"),
        (1, None, "higher"),
    ],
)
def test_a_clear_difference_has_a_direction(sign: int, good: str, kind: str) -> None:
    found = verdict(paired(tuple(sign * value for value in CLEAR)), better=good)  # type: ignore[arg-type]
    assert (found.kind, found.text, found.withheld) == (kind, kind, "")


def test_no_difference_is_only_claimed_against_a_margin() -> None:
    same = paired(NOTHING)
    assert verdict(same, margin=0.01).text == "no difference larger than 0.01"
    assert verdict(same).kind == "undecided"
    assert same.low is not None
    assert verdict(same, margin=-same.low).kind == "undecided", "the margin itself is not within the margin"


def test_a_difference_too_small_to_matter_is_told_as_such() -> None:
    assert verdict(paired(CLEAR), margin=0.05, better="max").text == "better, by less than 0.05"
    assert verdict(paired(CLEAR), margin=0.02, better="max").text == "better"


def test_wide_interval_is_undecided() -> None:
    for margin in (None, 0.001):
        found = verdict(paired(UNCLEAR), margin=margin)
        assert (found.kind, found.text, found.withheld) == ("undecided", "undecided", "")


def test_failures_leave_it_undecided_however_good_the_others_are() -> None:
    found = verdict(paired(CLEAR), num_failed=3, better="max")
    assert (found.kind, found.text) == ("undecided", "undecided: 3 seeds failed")
    assert verdict(None, num_failed=1).text == "undecided: 1 seed failed"
    assert verdict(None).text == "undecided: no pairs of seeds"


def test_two_seeds_and_values_all_alike_give_none() -> None:
    assert verdict(paired((0.02, 0.0200001))).text == "undecided: fewer than 3 seeds"
    assert (
        verdict(paired((0.5,) * 4)).text
        == "undecided: all values are the same, which tells nothing of chance"
    )


def test_a_verdict_that_one_seed_makes_is_withheld() -> None:
    """The interval leaves out 0 with all five seeds; without 103 the others alone do not."""
    found = paired((0.0, 0.02, 0.03, 0.03, 0.01), family=1)
    assert found.shown
    held = verdict(found, better="max")
    assert held.kind == "undecided"
    assert held.text == "undecided: it hangs on seed 103"
    assert held.withheld


def test_simulated_verdicts_are_these() -> None:
    found = studies.differences(studies.normal(np.random.default_rng(5), (200, 5, 2))) + 2.0
    vectorised = studies.verdicts(found)[:, 0]
    ours = [verdict(paired(tuple(study[:, 0]), family=1)).kind == "higher" for study in found]
    negative = [verdict(paired(tuple(study[:, 0]), family=1)).kind == "lower" for study in found]
    assert [a or b for a, b in zip(ours, negative, strict=True)] == list(vectorised)
    assert 0 < sum(ours) < len(ours)
    assert any(studies.rejected(found)[:, 0] & ~vectorised), "some are withheld"


def test_collapses_that_no_seed_shows() -> None:
    assert no_collapse_probability(0.2, 4) == pytest.approx(0.4096)
    assert no_collapse_probability(0.1, 8) == pytest.approx(0.43046721)
