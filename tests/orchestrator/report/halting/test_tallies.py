"""Depth by length and operators and use of experts on the page are what confirm trials counted."""

from typing import Any

import pytest
from scipy import stats

from orchestrator.report.writers.page import html_page
from tests.orchestrator.report.halting.test_halting_maps import Kept, example, keeping
from tests.orchestrator.report.studies import study
from tests.orchestrator.report.writers.test_page import EVIL, read, shown


def binned(kind: str, shift: float = 0.0, split: str = "near-iid") -> dict[str, Any]:
    rows = [[1, 1, 40, 3.0 + shift, 2.0, 4.0, 20, 40], [13, 16, 9, 5.0 + shift, 4.0, 6.0, 3, 9]]
    return {"kind": kind, "split": split, "bins": rows}


def experts(kind: str = "digit") -> dict[str, Any]:
    mixture = {"name": "attention", "classes": [kind, "operator"], "uses": [[6, 2, 0], [0, 0, 5]]}
    return {"kind": "experts", "examples": 49, "mixtures": [mixture]}


def every(*kept: dict[str, Any]) -> Kept:
    return lambda *_: list(kept)


@pytest.mark.parametrize(("kind", "what"), [("lengths", "tokens"), ("operators", "operators")])
def test_depth_inside_a_split_is_the_mean_over_seeds_with_its_interval(kind: str, what: str) -> None:
    far = "length-200-300"
    made = keeping(
        study(2, seeds=2, trials=0),
        lambda arm, seed: [] if arm else [binned(kind, float(seed)), binned(kind, split=far)],
    )
    seen = shown(made)
    half = float(stats.t.ppf(0.975, 1)) * 0.5  # the standard error of 3 and 4
    first, second = made.details().lengths if kind == "lengths" else made.details().operators
    assert (first.split, second.split) == ("near-iid", far)
    assert (first.bins[0].mean, first.bins[0].low, first.bins[0].high) == pytest.approx(
        (3.5, max(0.0, 3.5 - half), 3.5 + half)
    )
    assert (second.bins[0].mean, second.bins[0].low) == (3.0, None), "equal seeds do not tell a spread"
    message = seen.labels("Depth of arm-0 by number")
    assert (
        f"near-iid: 1 {what} 3.5 [0, {3.5 + half:.3g}] (2 to 4), 40 examples; 13-16 {what} 5.5 [" in message
    )
    assert f"{far}: 1 {what} 3 (2 to 4), 40 examples" in message
    assert not seen.labels("Depth of arm-1 by number")


def test_depth_inside_a_split_ends_where_nothing_would_halt() -> None:
    rows = [[1, 1, 40, 5.9, 5.0, 6.0, 20, 40], [13, 16, 9, 5.9, 5.0, 6.0, 3, 9]]
    bounds = ([6.0], [])

    def kept(_: int, seed: int) -> list[dict[str, Any]]:
        bins = [[*row[:3], row[3] - 0.1 * seed, *row[4:], *bounds[at]] for at, row in enumerate(rows)]
        return [{"kind": "lengths", "split": "near-iid", "bins": bins}]

    (depth,) = keeping(study(1, seeds=2, trials=0), kept).details().lengths
    bounded, old = depth.bins
    half = float(stats.t.ppf(0.975, 1)) * 0.05
    assert (bounded.mean, bounded.low, bounded.high) == pytest.approx((5.85, 5.85 - half, 6.0))
    assert old.high == pytest.approx(5.85 + half), "trials of earlier versions wrote no bound"


def test_a_seed_with_other_bins_stands_beside_the_others() -> None:
    """Bins are merged where they begin alike: what nobody else has is its own seed's alone."""
    odd = {"kind": "lengths", "split": "near-iid", "bins": [[2, 9, 40, 6.0, 2.0, 7.0, 20, 40]]}
    made = keeping(study(1, seeds=2, trials=0), lambda _, seed: [odd if seed else binned("lengths")])
    (depth,) = made.details().lengths
    assert [(each.fewest, each.seeds, each.mean) for each in depth.bins] == [(1, 1, 3), (2, 1, 6), (13, 1, 5)]


def test_depth_that_never_moves_is_not_drawn() -> None:
    still = {"kind": "lengths", "bins": [[1, 1, 4, 6.0, 6.0, 6.0, 1, 4], [2, 2, 4, 6.0, 6.0, 6.0, 1, 4]]}
    seen = shown(keeping(study(1, seeds=2, trials=0), every(still)))
    assert "Depth by length" not in seen.text


def test_shares_of_experts_are_those_of_the_first_seed() -> None:
    made = keeping(study(1, seeds=2, trials=0), lambda _, seed: [experts(f"kind-{seed}"), example()])
    seen = shown(made)
    message = seen.labels("Experts of the attention of arm-0")
    assert "kind-0: expert 1 75%, expert 2 25%, expert 3 0%; operator: expert 3 100%" in message
    assert "kind-1" not in message
    assert "arm-0, attention, seed 101" in seen.text
    assert "the fullest cell is 100%" in seen.text
    (use,) = made.details().experts
    assert use.shares == ((0.75, 0.25, 0.0), (0.0, 0.0, 1.0))
    assert sum(use.shares[0]) == pytest.approx(1)
    assert "experts by layer" not in seen.text.lower()


def test_shares_of_experts_are_told_layer_by_layer() -> None:
    kept = experts()
    kept["mixtures"][0]["layers"] = [[1, [6, 0, 2]], [3, [0, 1, 0]]]
    made = keeping(study(1, seeds=2, trials=0), every(kept))
    message = shown(made).labels("Experts of the attention of arm-0 by layer")
    assert "layer 1: expert 1 75%, expert 3 25%, expert 2 0%; layer 3: expert 2 100%" in message


def test_classes_of_words_are_escaped() -> None:
    made = keeping(study(1, seeds=2, trials=0), every(experts(EVIL)))
    html = html_page(made.report(), made.details())
    assert "script" not in read(html).tags
    assert "\x1b" not in html
