"""Main effects and interactions of arms that are all combinations of components."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, Plan
from orchestrator.report.comparisons.factorial import FactorialEffect
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.report.writers.tables import all_tables
from orchestrator.statistics.paired import compare, half_width
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from tests.orchestrator.report.comparisons.test_answers import SEEDS, plan, record

WITHOUT = {
    "minus-gate": ("gate",),
    "minus-halt": ("halt",),
    "minus-all": ("gate", "halt"),
}
NOISE = (0.004, -0.006, 0.001, 0.003, -0.002, -0.004, 0.005, -0.001)
GATE, BOTH = 0.06, 0.02
"""The planted main effect of the gate, and what both do together beyond that."""


def combined(**parts: object) -> Plan:
    made = plan(
        ("baseline", *WITHOUT), factors=("gate", "halt"), answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3)
    )
    arms = tuple(replace(each, without=WITHOUT.get(each.name, ())) for each in made.arms)
    return replace(made, **{"arms": arms, **parts})  # type: ignore[arg-type]


def planted(name: str, seed: int) -> float:
    gate, halt = (1 if part not in WITHOUT.get(name, ()) else -1 for part in ("gate", "halt"))
    place = SEEDS.index(seed)
    noise = NOISE[place] + NOISE[(place * 3 + len(WITHOUT.get(name, ())) + len(name)) % 8] / 4
    return 0.7 + gate * GATE / 2 + gate * halt * BOTH / 2 + noise


def records(left_out: Mapping[str, tuple[int, ...]] = {}, **failing: tuple[int, ...]) -> list[Record]:
    """All arms and seeds with the planted effects; by arm with underscores the seeds that diverged."""
    return [
        _record(
            name,
            seed,
            OutcomeKind.DIVERGED if seed in failing.get(name.replace("-", "_"), ()) else OutcomeKind.FINISHED,
        )
        for name in ("baseline", *WITHOUT)
        for seed in SEEDS
        if seed not in left_out.get(name, ())
    ]


def _record(name: str, seed: int, outcome: OutcomeKind) -> Record:
    made = record(name, seed, outcome)
    assert made.last is not None
    return replace(made, last=replace(made.last, metrics={"iid/accuracy": planted(name, seed)}))


def by_term(report: Report) -> dict[str, FactorialEffect]:
    return {" x ".join(each.components): each for each in report.factorial}


def test_equal_values_of_all_seeds_have_no_p() -> None:
    def steady(each: Record) -> Record:
        assert each.last is not None
        without = WITHOUT.get(each.arm, ())
        # The gate is worth the same in every seed, up to rounding; the halt is not.
        halt = NOISE[SEEDS.index(each.seed)] * ("halt" not in without)
        value = 0.7 + 0.1 * ("gate" not in without) + halt
        return replace(each, last=replace(each.last, metrics={"iid/accuracy": value}))

    report = summarise(combined(), [steady(each) for each in records()])
    found = by_term(report)
    gate, halt = found["gate"], found["halt"]
    assert gate.alike
    assert gate.p is None
    assert gate.estimate is not None
    assert gate.estimate.mean == pytest.approx(0.1)
    assert not halt.alike
    assert halt.p is not None
    rows = {row[0]: row for grid in all_tables(report) for row in grid.rows if "effect" in grid.headers}
    assert "none, all seeds are alike" in rows["gate"]


def test_planted_effects_are_found() -> None:
    found = by_term(summarise(combined(), records()))
    assert list(found) == ["gate", "halt", "gate x halt"]
    for name, value in {"gate": GATE, "halt": 0.0, "gate x halt": BOTH}.items():
        each = found[name]
        assert each.estimate is not None
        assert each.estimate.n == 8
        assert each.estimate.mean == pytest.approx(value, abs=0.002)
        assert each.p is not None
        assert each.estimate.low is not None
        assert each.estimate.high is not None
        assert (each.p <= 0.05) == (value != 0) == (each.estimate.low > 0 or each.estimate.high < 0)
        assert each.lacking == ()


def test_terms_are_tested_as_a_separate_family() -> None:
    report = summarise(combined(), records())
    assert {each.family for each in report.factorial} == {3}
    alone = compare(
        {(str(each.components), each.metric): dict(each.by_seed) for each in report.factorial}, family=3
    )
    for each in report.factorial:
        assert each.p == alone[str(each.components), each.metric].p
    by_hand = {
        seed: (planted("baseline", seed) + planted("minus-halt", seed)) / 2
        - (planted("minus-gate", seed) + planted("minus-all", seed)) / 2
        for seed in SEEDS
    }
    assert dict(by_term(report)["gate"].by_seed) == pytest.approx(by_hand)
    assert report.answer is not None
    assert report.answer.family == 3, "the verdicts' family is what it was"


def test_resolution_bounds_the_spread_of_a_contrast() -> None:
    steps = [
        replace(each, last=replace(each.last, metrics={"iid/accuracy": 0.5}))
        for each in records()
        if each.last
    ]
    off = [
        replace(each, last=replace(each.last, metrics={"iid/accuracy": 0.4}))
        if each.arm in ("minus-gate", "minus-all") and each.last
        else each
        for each in steps
    ]
    found = by_term(summarise(combined(), off))["gate"]
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(0.1)
    assert found.estimate.low is not None
    expected = compare({("gate", "a"): {1: 0.1, 2: 0.1}}, family=1, resolutions={"a": 0.1 / 2**0.5})
    # r / sqrt(3 * 2^k) with k = 2, over 8 seeds.
    assert expected["gate", "a"].spread == pytest.approx(0.1 / 12**0.5)
    assert found.estimate.low == pytest.approx(0.1 - half_width(8, 3) * 0.1 / 12**0.5 / 8**0.5)


def test_failed_seed_removes_the_p_of_terms() -> None:
    report = summarise(combined(), records(minus_all=(103,)))
    for each in report.factorial:
        assert 103 not in dict(each.by_seed)
        assert len(each.by_seed) == 7
        assert each.p is None
        assert each.lacking == ("seed 103: minus-all diverged",)
    table, seeds = (grid for grid in all_tables(report) if "main effects" in grid.title)
    assert table.headers == ("components", "seeds", "effect", "p", "lacking")
    assert table.rows[0][1] == "7 of 8"
    assert table.rows[0][3:] == ("-", "seed 103: minus-all diverged")
    assert "103" not in seeds.headers


def test_failed_arm_removes_the_values_of_terms() -> None:
    report = summarise(combined(), records(minus_gate=SEEDS))
    assert {(each.estimate, each.p, each.by_seed) for each in report.factorial} == {(None, None, ())}
    (table,) = (grid for grid in all_tables(report) if "main effects" in grid.title)
    assert table.rows[0] == (
        "gate",
        "0 of 8",
        "no value: no seed has all arms",
        "-",
        "seed 101: minus-gate diverged; seed 102: minus-gate diverged; and 6 more seeds",
    )


def test_terms_have_no_p_before_the_end() -> None:
    trials = tuple(
        PlannedTrial(f"{name}-{seed}", name, "confirm", place, seed, rank=0)
        for name in ("baseline", *WITHOUT)
        for place, seed in enumerate(SEEDS)
    )
    report = summarise(combined(trials=trials), records({"minus-halt": (107, 108)}))
    assert {each.lacking for each in report.factorial} == {
        ("seed 107: minus-halt not run yet", "seed 108: minus-halt not run yet")
    }
    assert all(each.p is None and len(each.by_seed) == 6 for each in report.factorial)


def test_every_cell_of_a_grid_has_separate_terms() -> None:
    made = combined()
    second = tuple(
        replace(
            each, name=f"{each.name}, width=8", reference="baseline, width=8" if each.without else "baseline"
        )
        for each in made.arms
    )
    both = replace(made, arms=(*made.arms, *second), answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, 7))
    again = [replace(each, arm=f"{each.arm}, width=8", trial_id=f"{each.trial_id}-8") for each in records()]
    report = summarise(both, [*records(), *again])
    assert {(each.cell, each.family) for each in report.factorial} == {
        ("baseline", 6),
        ("baseline, width=8", 6),
    }
    table = next(grid for grid in all_tables(report) if "main effects" in grid.title)
    assert [row[0] for row in table.rows][::2] == [
        "gate (baseline)",
        "gate x halt (baseline)",
        "halt (baseline, width=8)",
    ]
