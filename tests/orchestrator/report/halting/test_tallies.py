"""The page shows depth by length and operators and expert use as counted by confirm trials."""

from typing import Any

import pytest
from scipy import stats

from orchestrator.report.writers.page import html_page
from tests.orchestrator.report.halting.test_halting_maps import ExamplesOf, make_example, with_examples
from tests.orchestrator.report.studies import make_study
from tests.orchestrator.report.writers.test_page import HOSTILE_HTML, parse_html, parse_page


def make_bins(kind: str, shift: float = 0.0, split: str = "near-iid") -> dict[str, Any]:
    rows = [[1, 1, 40, 3.0 + shift, 2.0, 4.0, 20, 40], [13, 16, 9, 5.0 + shift, 4.0, 6.0, 3, 9]]
    return {"kind": kind, "split": split, "bins": rows}


def make_expert_counts(kind: str = "digit") -> dict[str, Any]:
    mixture = {"name": "attention", "classes": [kind, "operator"], "uses": [[6, 2, 0], [0, 0, 5]]}
    return {"kind": "experts", "examples": 49, "mixtures": [mixture]}


def examples_for_all(*examples: dict[str, Any]) -> ExamplesOf:
    return lambda *_: list(examples)


@pytest.mark.parametrize(("kind", "noun"), [("lengths", "tokens"), ("operators", "operators")])
def test_depth_inside_a_split_is_the_mean_over_seeds_with_its_interval(kind: str, noun: str) -> None:
    far_split = "length-200-300"
    tested_study = with_examples(
        make_study(2, seeds=2, trials=0),
        lambda arm, seed: [] if arm else [make_bins(kind, float(seed)), make_bins(kind, split=far_split)],
    )
    page = parse_page(tested_study)
    half_width = float(stats.t.ppf(0.975, 1)) * 0.5  # the standard error of 3 and 4
    near_depth, far_depth = (
        tested_study.details().lengths if kind == "lengths" else tested_study.details().operators
    )
    assert (near_depth.split, far_depth.split) == ("near-iid", far_split)
    assert (near_depth.bins[0].mean, near_depth.bins[0].low, near_depth.bins[0].high) == pytest.approx(
        (3.5, max(0.0, 3.5 - half_width), 3.5 + half_width)
    )
    assert (far_depth.bins[0].mean, far_depth.bins[0].low) == (3.0, None), "equal seeds give no interval"
    message = page.labels("Depth of arm-0 by number")
    assert (
        f"near-iid: 1 {noun} 3.5 [0, {3.5 + half_width:.3g}] (2 to 4), 40 examples; 13-16 {noun} 5.5 ["
        in message
    )
    assert f"{far_split}: 1 {noun} 3 (2 to 4), 40 examples" in message
    assert not page.labels("Depth of arm-1 by number")


def test_depth_of_a_bin_is_clipped_to_its_bound() -> None:
    rows = [[1, 1, 40, 5.9, 5.0, 6.0, 20, 40], [13, 16, 9, 5.9, 5.0, 6.0, 3, 9]]
    bounds = ([6.0], [])

    def make_seed_examples(_: int, seed: int) -> list[dict[str, Any]]:
        bins = [[*row[:3], row[3] - 0.1 * seed, *row[4:], *bounds[index]] for index, row in enumerate(rows)]
        return [{"kind": "lengths", "split": "near-iid", "bins": bins}]

    (depth,) = with_examples(make_study(1, seeds=2, trials=0), make_seed_examples).details().lengths
    bounded_bin, unbounded_bin = depth.bins
    half_width = float(stats.t.ppf(0.975, 1)) * 0.05
    assert (bounded_bin.mean, bounded_bin.low, bounded_bin.high) == pytest.approx(
        (5.85, 5.85 - half_width, 6.0)
    )
    assert unbounded_bin.high == pytest.approx(5.85 + half_width), "trials of earlier versions wrote no bound"


def test_bins_of_different_seeds_are_merged_by_their_start() -> None:
    """A bin that only one seed has keeps the value of this seed."""
    other_bins = {"kind": "lengths", "split": "near-iid", "bins": [[2, 9, 40, 6.0, 2.0, 7.0, 20, 40]]}
    tested_study = with_examples(
        make_study(1, seeds=2, trials=0), lambda _, seed: [other_bins if seed else make_bins("lengths")]
    )
    (depth,) = tested_study.details().lengths
    assert [(bin_.fewest, bin_.seeds, bin_.mean) for bin_ in depth.bins] == [(1, 1, 3), (2, 1, 6), (13, 1, 5)]


def test_constant_depth_is_not_drawn() -> None:
    constant_bins = {
        "kind": "lengths",
        "bins": [[1, 1, 4, 6.0, 6.0, 6.0, 1, 4], [2, 2, 4, 6.0, 6.0, 6.0, 1, 4]],
    }
    page = parse_page(with_examples(make_study(1, seeds=2, trials=0), examples_for_all(constant_bins)))
    assert "Depth by length" not in page.text


def test_shares_of_experts_are_those_of_the_first_seed() -> None:
    tested_study = with_examples(
        make_study(1, seeds=2, trials=0), lambda _, seed: [make_expert_counts(f"kind-{seed}"), make_example()]
    )
    page = parse_page(tested_study)
    message = page.labels("Experts of the attention of arm-0")
    assert "kind-0: expert 1 75%, expert 2 25%, expert 3 0%; operator: expert 3 100%" in message
    assert "kind-1" not in message
    assert "arm-0, attention, seed 101" in page.text
    assert "the fullest cell is 100%" in page.text
    (expert_use,) = tested_study.details().experts
    assert expert_use.shares == ((0.75, 0.25, 0.0), (0.0, 0.0, 1.0))
    assert sum(expert_use.shares[0]) == pytest.approx(1)
    assert "experts by layer" not in page.text.lower()


def test_page_lists_expert_shares_by_layer() -> None:
    examples = make_expert_counts()
    examples["mixtures"][0]["layers"] = [[1, [6, 0, 2]], [3, [0, 1, 0]]]
    tested_study = with_examples(make_study(1, seeds=2, trials=0), examples_for_all(examples))
    message = parse_page(tested_study).labels("Experts of the attention of arm-0 by layer")
    assert "layer 1: expert 1 75%, expert 3 25%, expert 2 0%; layer 3: expert 2 100%" in message


def test_classes_of_words_are_escaped() -> None:
    tested_study = with_examples(
        make_study(1, seeds=2, trials=0), examples_for_all(make_expert_counts(HOSTILE_HTML))
    )
    html = html_page(tested_study.report(), tested_study.details())
    assert "script" not in parse_html(html).tags
    assert "\x1b" not in html
