"""Depth by operators and experts by class on the page are what confirm trials counted."""

from typing import Any

import pytest

from orchestrator.report.page import page
from tests.orchestrator.report.studies import study
from tests.orchestrator.report.test_halting_maps import Kept, example, keeping
from tests.orchestrator.report.test_page import EVIL, read, shown


def operators(shift: float = 0.0) -> dict[str, Any]:
    rows = [[1, 1, 40, 3.0 + shift, 2.0, 4.0, 20, 40], [13, 16, 9, 5.0 + shift, 4.0, 6.0, 3, 9]]
    return {"kind": "operators", "bins": rows}


def experts(kind: str = "digit") -> dict[str, Any]:
    mixture = {"name": "attention", "classes": [kind, "operator"], "uses": [[6, 2, 0], [0, 0, 5]]}
    return {"kind": "experts", "examples": 49, "mixtures": [mixture]}


def every(*kept: dict[str, Any]) -> Kept:
    return lambda *_: list(kept)


def test_depth_by_operators_is_the_mean_over_seeds() -> None:
    made = keeping(study(2, seeds=2, trials=0), lambda arm, seed: [operators(float(seed))] if not arm else [])
    seen = shown(made)
    told = "1 operators 3.5 (2 to 4), 40 examples; 13-16 operators 5.5 (4 to 6), 9 examples"
    assert seen.labels("Depth of arm-0 by number") == f"Depth of arm-0 by number of operators: {told}"
    assert not seen.labels("Depth of arm-1 by number")


def test_depth_that_never_moves_is_not_drawn() -> None:
    still = {"kind": "operators", "bins": [[1, 1, 4, 6.0, 6.0, 6.0, 1, 4], [2, 2, 4, 6.0, 6.0, 6.0, 1, 4]]}
    seen = shown(keeping(study(1, seeds=2, trials=0), every(still)))
    assert "Depth by number of operators" not in seen.text


def test_shares_of_experts_are_those_of_the_first_seed() -> None:
    made = keeping(study(1, seeds=2, trials=0), lambda _, seed: [experts(f"kind-{seed}"), example()])
    seen = shown(made)
    told = seen.labels("Experts of the attention of arm-0")
    assert "kind-0: expert 1 75%, expert 2 25%, expert 3 0%; operator: expert 3 100%" in told
    assert "kind-1" not in told
    assert "arm-0, attention, seed 101" in seen.text
    assert "the fullest cell is 100%" in seen.text
    (use,) = made.details().experts
    assert use.shares == ((0.75, 0.25, 0.0), (0.0, 0.0, 1.0))
    assert sum(use.shares[0]) == pytest.approx(1)


def test_classes_of_others_are_no_mark_up() -> None:
    made = keeping(study(1, seeds=2, trials=0), every(experts(EVIL)))
    html = page(made.report(), made.details())
    assert "script" not in read(html).tags
    assert "\x1b" not in html
