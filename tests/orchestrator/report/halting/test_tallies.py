"""The page shows depth by length and operators and expert use as counted by confirm trials."""

from typing import Any

import pytest
from scipy import stats

from tests.orchestrator.report.halting.test_halting_maps import make_example, with_examples
from tests.orchestrator.report.studies import make_study
from tests.orchestrator.report.writers.test_page import parse_page


def make_bins(kind: str, shift: float = 0.0) -> dict[str, Any]:
    rows = [[1, 1, 40, 3.0 + shift, 2.0, 4.0, 20, 40], [13, 16, 9, 5.0 + shift, 4.0, 6.0, 3, 9]]
    return {"kind": kind, "split": "near-iid", "bins": rows}


def make_expert_counts(kind: str) -> dict[str, Any]:
    mixture = {"name": "attention", "classes": [kind, "operator"], "uses": [[6, 2, 0], [0, 0, 5]]}
    return {"kind": "experts", "examples": 49, "mixtures": [mixture]}


@pytest.mark.usefixtures("undrawn")
def test_depth_inside_a_split_is_the_mean_over_seeds_with_its_interval() -> None:
    tested_study = with_examples(
        make_study(2, seeds=2, trials=0), lambda arm, seed: [] if arm else [make_bins("lengths", float(seed))]
    )
    half_width = float(stats.t.ppf(0.975, 1)) * 0.5  # the standard error of 3 and 4
    (depth,) = tested_study.details().lengths
    assert (depth.bins[0].mean, depth.bins[0].low, depth.bins[0].high) == pytest.approx(
        (3.5, max(0.0, 3.5 - half_width), 3.5 + half_width)
    )
    page = parse_page(tested_study)
    interval = f"near-iid: 1 tokens 3.5 [0, {3.5 + half_width:.3g}] (2 to 4), 40 examples"
    assert interval in page.labels("Depth of arm-0")
    assert interval not in page.labels("Depth of arm-1")


def test_bins_of_different_seeds_are_merged_by_their_start() -> None:
    """A bin that only one seed has keeps the value of this seed."""
    other_bins = {"kind": "lengths", "split": "near-iid", "bins": [[2, 9, 40, 6.0, 2.0, 7.0, 20, 40]]}
    tested_study = with_examples(
        make_study(1, seeds=2, trials=0), lambda _, seed: [other_bins if seed else make_bins("lengths")]
    )
    (depth,) = tested_study.details().lengths
    assert [(bin_.fewest, bin_.seeds, bin_.mean) for bin_ in depth.bins] == [(1, 1, 3), (2, 1, 6), (13, 1, 5)]


@pytest.mark.usefixtures("undrawn")
def test_shares_of_experts_are_those_of_the_first_seed() -> None:
    tested_study = with_examples(
        make_study(1, seeds=2, trials=0), lambda _, seed: [make_expert_counts(f"kind-{seed}"), make_example()]
    )
    page = parse_page(tested_study)
    message = page.labels("Experts of the attention of arm-0")
    assert "kind-0: expert 1 75%, expert 2 25%, expert 3 0%; operator: expert 3 100%" in message
    assert "kind-1" not in message
    (expert_use,) = tested_study.details().experts
    assert expert_use.shares == ((0.75, 0.25, 0.0), (0.0, 0.0, 1.0))
