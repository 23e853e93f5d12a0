"""What a finished sweep says of its arms: one line each, never stronger than its seeds."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.plan.types import AnswerPlan, Arm, ConfirmPlan, Plan, SearchPlan
from orchestrator.report.caveats.notes import notes, verdict_lines
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.summary import arm_metrics, arm_tags, summarise
from orchestrator.report.results.types import Grid, Report
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.tables import all_tables, screen_table
from orchestrator.report.writers.write import write_report_folder
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Space
from trainables.metrics import Metric
from trainables.protocol import Measurement

SEEDS = (101, 102, 103, 104, 105, 106, 107, 108)
NOISE = (0.004, -0.006, 0.001, 0.003, -0.002, -0.004, 0.005, -0.001)
METRICS = (
    Metric(
        "accuracy", "max", low=0.0, high=1.0, shown=("table", "headline", "posthoc", "figure"), floor=0.15
    ),
    Metric("depth", unit="layers", low=0.0, shown=("table", "beside", "posthoc")),
)
EFFECTS = {"baseline": 0.0, "good": 0.05, "bad": -0.05, "same": 0.0005}


def arm(name: str) -> Arm:
    reference = "" if name == "baseline" else "baseline"
    return Arm(name, "", {}, (), Space(), (), name, reference)


def plan(names: tuple[str, ...] = tuple(EFFECTS), **parts: object) -> Plan:
    made = Plan(
        name="study",
        question="Does it?",
        spec_digest="0",
        arms=tuple(map(arm, names)),
        search=None,
        confirm=ConfirmPlan(1, SEEDS, ("iid", "far")),
        posthoc=(),
        resources=Resources(),
        wall_clock_hours=None,
        trials=(),
        answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, len(names) - 1),
        metrics=METRICS,
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def record(name: str, seed: int, outcome: OutcomeKind = OutcomeKind.FINISHED, **parts: object) -> Record:
    place = SEEDS.index(seed)
    own = NOISE[(place * 3 + len(name)) % 8] + EFFECTS.get(name, 0.0)
    accuracy = 0.8 + NOISE[place] + own
    metrics = {f"{split}/accuracy": accuracy for split in ("iid", "far", "valid")} | {"iid/depth": 3.0 + own}
    made = Record(
        trial_id=f"{name}-{seed}",
        sweep="study",
        arm=name,
        phase="confirm",
        number=place,
        seed=seed,
        rank=0,
        assignment={},
        overrides={},
        settings={},
        outcome=outcome,
        reason="",
        last=Measurement(step=1, seconds=1.0, metrics=metrics),
        best=None,
        started_at=0.0,
        ended_at=1.0,
        attempts=1,
    )
    return replace(made, **parts)  # type: ignore[arg-type]


def records(**failing: tuple[int, ...]) -> list[Record]:
    """All arms and seeds, those named by arm diverged."""
    return [
        record(name, seed, OutcomeKind.DIVERGED if seed in failing.get(name, ()) else OutcomeKind.FINISHED)
        for name in EFFECTS
        for seed in SEEDS
    ]


def kinds(report: Report) -> dict[str, str]:
    return {verdict.arm: verdict.kind for verdict in report.verdicts}


def test_every_arm_gets_one_verdict_on_the_primary_outcome() -> None:
    found = summarise(plan(), records())
    assert kinds(found) == {"good": "better", "bad": "worse", "same": "no difference"}
    effects = {effect.arm: effect for effect in found.effects if effect.primary}
    assert {effect.metric for effect in effects.values()} == {"iid/accuracy"}
    for each in effects.values():
        assert each.p is not None
        assert each.estimate.low is not None
        assert each.estimate.high is not None
        assert (each.p <= 0.05) == (each.estimate.low > 0 or each.estimate.high < 0)
    assert all(effect.p is effect.p_sign_flips is None for effect in found.effects if not effect.primary)
    assert found.verdicts[0].line == (
        f"good: better (iid/accuracy {found.verdicts[0].line.split('accuracy ')[1].split(' against')[0]} "
        f"against baseline, p={effects['good'].p:.2g}, 8 of 8 seeds finished)"
    )


def test_moderated_variances_share_a_reported_prior() -> None:
    answer = AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3, moderated=True)
    asked, plain = summarise(plan(answer=answer), records()), summarise(plan(), records())
    priors = {verdict.prior for verdict in asked.verdicts}
    assert len(priors) == 1
    assert {verdict.prior for verdict in plain.verdicts} == {None}
    (prior,) = priors
    assert prior is not None
    assert 0 < prior.freedom <= 3 * 7
    assert f"with {prior.freedom:.3g} degrees of freedom" in "\n".join(notes(asked))
    assert json.loads(as_json(asked))["verdicts"][0]["prior"] == asdict(prior)


def test_an_arm_with_a_failed_seed_keeps_its_own_variance() -> None:
    """So that bounds for the failed seed are those of the ordinary t."""
    answer = AnswerPlan(("iid/accuracy",), 0.02, 0.05, 4, moderated=True)
    names = (*EFFECTS, "more")
    found = [record(name, seed) for name in names for seed in SEEDS]
    failed = [
        replace(record, outcome=OutcomeKind.DIVERGED)
        if (record.arm, record.seed) == ("good", SEEDS[0])
        else record
        for record in found
    ]
    with_prior = {
        verdict.arm for verdict in summarise(plan(names, answer=answer), failed).verdicts if verdict.prior
    }
    assert with_prior == {"bad", "same", "more"}


def test_every_comparison_shows_the_share_of_seeds_in_which_the_arm_is_better() -> None:
    """`good` wins with each of 8 seeds, `bad` with none; of depth nobody said which values are good."""
    found = summarise(plan(), records())
    good, bad = (
        next(verdict for verdict in found.verdicts if verdict.arm == name) for name in ("good", "bad")
    )
    assert good.wins is not None
    assert bad.wins is not None
    assert (good.wins.wins, good.wins.share, good.wins.high) == (8, 1.0, 1.0)
    assert good.wins.low == pytest.approx(0.025 ** (1 / 8)), "Clopper and Pearson"
    assert (bad.wins.wins, bad.wins.low, bad.wins.high) == (0, 0.0, pytest.approx(1 - 0.025 ** (1 / 8)))
    table = next(grid for grid in all_tables(found) if "primary outcome" in grid.title)
    shown = {row[0]: row[table.headers.index("P(better)")] for row in table.rows}
    assert shown["good - baseline"] == "1.00 [0.63, 1.00]"
    written = json.loads(as_json(found))
    assert written["verdicts"][0]["wins"]["share"] == 1.0
    effects = {(effect["arm"], effect["metric"]): effect["wins"] for effect in written["effects"]}
    assert effects["good", "iid/depth"]["better"] is None
    assert effects["good", "iid/depth"]["n"] == len(SEEDS)


def test_an_arm_whose_seeds_all_failed_has_no_number(tmp_path: Path) -> None:
    found = summarise(plan(), records(good=SEEDS))
    assert found.cell("good", "iid/accuracy") is None
    assert found.effect("good", "iid/accuracy") is None
    (said,) = [verdict for verdict in found.verdicts if verdict.arm == "good"]
    assert (
        said.line == "good: undecided: 8 seeds failed (iid/accuracy against baseline, 0 of 8 seeds finished)"
    )
    row = next(row for row in screen_table(found).rows if row[0] == "good")
    assert row == (
        "good",
        "0 of 8 finished",
        "0 of 8 finished",
        "0 of 8 finished",
        "-",
        "undecided: 8 seeds failed",
    )
    assert arm_metrics(found)["good"] == {"seeds_finished": 0, "seeds_failed": 8}
    assert "0.150" not in next(row for grid in all_tables(found) for row in grid.rows if row[0] == "good")
    assert "0 of 8 finished" in write_report_folder(found, tmp_path / "report").read_text()


def test_failed_seeds_make_no_arm_better() -> None:
    """The three worst seeds of an arm diverge: what finished looks better, and nothing is claimed."""
    worst = sorted(SEEDS, key=lambda seed: record("good", seed).last.metrics["iid/accuracy"])[:3]  # type: ignore[union-attr]
    found = summarise(plan(), records(good=tuple(worst)))
    cell, whole = (
        found.cell("good", "iid/accuracy"),
        summarise(plan(), records()).cell("good", "iid/accuracy"),
    )
    assert cell is not None
    assert whole is not None
    assert cell.estimate.mean > whole.estimate.mean
    assert kinds(found)["good"] == "undecided"
    assert kinds(found)["bad"] == "worse", "other arms keep their verdicts"
    (said,) = [verdict for verdict in found.verdicts if verdict.arm == "good"]
    assert "p=" not in said.line
    effect = found.effect("good", "iid/accuracy")
    assert effect is not None
    assert (effect.primary, effect.p, effect.p_sign_flips) == (True, None, None)
    row = next(row for row in screen_table(found).rows if row[0] == "good")
    assert row[1] == "5 of 8 finished"
    tracked = arm_metrics(found)["good"]
    assert tracked["seeds_failed"] == 3
    assert "answer/p" not in tracked, "nothing is claimed"


def test_primary_outcomes_come_first_in_the_tracking_ui() -> None:
    found = summarise(plan(), records())
    effect, tracked = found.effect("good", "iid/accuracy"), arm_metrics(found)
    assert effect is not None
    answer = {name: value for name, value in tracked["good"].items() if name.startswith("answer")}
    assert all(value == float(f"{value:.10g}") for value in answer.values()), "no rounding errors"
    assert pytest.approx(answer, rel=1e-9) == {
        "answer/p": effect.p,
        **{
            f"answer/{name}": tracked["good"][f"iid/accuracy{end}"]
            for end, name in (
                ("", "estimate"),
                (".ci_high", "estimate_high"),
                (".ci_low", "estimate_low"),
                (".diff", "difference"),
                (".diff_high", "difference_high"),
                (".diff_low", "difference_low"),
                (".n", "n"),
            )
        },
    }
    assert arm_tags(found)["good"]["answer"] == "iid/accuracy"
    assert "answer/p" not in tracked["baseline"]
    assert not [name for name in arm_metrics(replace(found, left=1))["good"] if name.endswith("/p")]


def test_undecided_verdicts_state_the_chance_of_a_decision() -> None:
    found = summarise(plan(answer=AnswerPlan(("iid/accuracy",), None, 0.05, 3)), records())
    (open_,) = [verdict for verdict in found.verdicts if verdict.kind == "undecided"]
    assert [outlook.more for outlook in open_.outlooks] == [4, 8, 24]
    assert all(0 <= outlook.chance <= 1 for outlook in open_.outlooks)
    differences = [outlook.difference for outlook in open_.outlooks]
    assert differences == sorted(differences, reverse=True)
    chance = f"{open_.outlooks[1].chance:.0%}"
    assert open_.text == f"undecided: 8 more seeds would decide it in {chance} of cases"
    assert not any(verdict.outlooks for verdict in found.verdicts if verdict is not open_)
    (grid,) = [
        all_table for all_table in all_tables(found) if "chance that more seeds decide" in all_table.title
    ]
    assert grid.headers == ("arm", "4 more seeds", "8 more seeds", "24 more seeds")
    assert [row[0] for row in grid.rows] == [open_.arm]
    assert grid.rows[0][2].startswith(chance)
    assert json.loads(as_json(found))["verdicts"][2]["outlooks"][1]["more"] == 8


def test_a_failed_seed_of_the_baseline_leaves_every_arm_undecided() -> None:
    assert set(kinds(summarise(plan(), records(baseline=(103,)))).values()) == {"undecided"}


def test_open_seeds_leave_an_arm_undecided() -> None:
    """A look before the end is no test: the seeds that are there were not chosen beforehand."""
    known = records()
    planned = tuple(
        PlannedTrial(record.trial_id, record.arm, "confirm", 0, record.seed, 0) for record in known
    )
    missing = [trial for trial in known if trial.trial_id not in ("good-107", "good-108")]
    found = summarise(plan(trials=planned), missing)
    said = {verdict.arm: verdict.text for verdict in found.verdicts}
    assert said["good"] == "undecided: 2 seeds not run"
    assert {verdict.arm: verdict.seeds for verdict in found.verdicts}["good"] == "6 of 8 seeds finished"
    assert {effect.arm: effect.p is None for effect in found.effects if effect.primary} == {
        **dict.fromkeys(said, False),
        "good": True,
    }
    assert said["bad"] == "worse"


def test_an_arm_without_any_result_has_no_verdict() -> None:
    known = [record for record in records() if record.arm != "good"]
    planned = tuple(PlannedTrial(f"good-{seed}", "good", "confirm", 0, seed, 0) for seed in SEEDS)
    found = summarise(plan(trials=planned), known)
    verdict = found.verdict("good")
    assert verdict is not None
    assert (verdict.kind, verdict.is_decided, "undecided" in verdict.line) == (None, False, False)
    assert [
        verdict["kind"] for verdict in json.loads(as_json(found))["verdicts"] if verdict["arm"] == "good"
    ] == [None]
    assert not any("good" in line for line in verdict_lines(found))


def test_further_outcomes_widen_every_interval_and_have_verdicts_of_their_own() -> None:
    asked = AnswerPlan(("iid/accuracy", "iid/depth"), 0.02, 0.05, 6)
    wide, narrow = summarise(plan(answer=asked), records()), summarise(plan(), records())
    both = [report.effect("good", "iid/accuracy") for report in (wide, narrow)]
    ends = [effect.estimate.low for effect in both if effect is not None]
    assert None not in ends
    assert ends[0] < ends[1]  # type: ignore[operator]
    depth = {verdict.arm: verdict.kind for verdict in wide.verdicts if verdict.metric == "iid/depth"}
    assert depth["good"] == "higher", "nobody said which depth is good, and the margin is of accuracy"
    tags = {"answer", "answer2", "decision", "verdict", "verdict.iid/depth", "intervals"}
    assert set(arm_tags(wide)["good"]) == tags
    tracked = list(arm_metrics(wide)["good"])
    assert tracked[0] == "answer/estimate"
    assert tracked[7:9] == ["answer/p", "answer2/estimate"]


def test_screen_lists_decided_and_undecided_arms() -> None:
    asked = AnswerPlan(("iid/accuracy", "far/accuracy"), 0.02, 0.05, 6)
    found = summarise(plan(answer=asked), records(good=(103,)))
    decided = [
        verdict.line
        for verdict in found.verdicts
        if verdict.arm != "good" and verdict.metric == "iid/accuracy"
    ]
    *first, last, _ = verdict_lines(found)
    assert first[:2] == [f"decided: {line}" for line in decided]
    assert "undecided: good in iid/accuracy, which does not mean that there is no difference" in first
    assert last == "undecided: good, same in far/accuracy, which does not mean that there is no difference"
    *nothing, _ = verdict_lines(summarise(plan(), records(baseline=(103,))))
    assert nothing == [
        "undecided: every arm in iid/accuracy, which does not mean that there is no difference"
    ]


def test_crashed_reevaluation_has_no_value() -> None:
    overrides = {"model.halt.threshold": 0.5}
    again = [
        record("good", seed, outcome, phase="posthoc", overrides=overrides, trial_id=f"again-{seed}")
        for seed, outcome in zip(
            SEEDS[:3], (OutcomeKind.FINISHED, OutcomeKind.CRASHED, OutcomeKind.CRASHED), strict=True
        )
    ]
    found = summarise(plan(posthoc=(overrides,)), [*records(), *again])
    (cell,) = [each for each in found.posthoc if each.metric == "iid/accuracy"]
    assert (cell.estimate.n, cell.failed) == (1, 2)
    assert cell.estimate.mean == pytest.approx(record("good", 101).last.metrics["iid/accuracy"])  # type: ignore[union-attr]
    (grid,) = [all_table for all_table in all_tables(found) if "re-evaluated" in all_table.title]
    assert grid.rows[0][2].endswith("(1 of 3 finished)")


def _seeds_of(found: Report) -> list[Grid]:
    return [all_table for all_table in all_tables(found) if all_table.title.endswith("seed by seed")]


def test_points_of_a_front_are_reported_separately() -> None:
    """Two points, one accurate and deep, one shallow and poor: their mean is no system."""
    objectives = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))
    search = SearchPlan(4, {"name": "tpe"}, None, objectives, 0)
    confirm = ConfirmPlan(2, SEEDS, ("iid",))
    shallow = []
    for each in records():
        assert each.last is not None
        metrics = {
            **each.last.metrics,
            "iid/accuracy": each.last.metrics["iid/accuracy"] - 0.4,
            "iid/depth": 1.0,
        }
        last = replace(each.last, metrics=metrics)
        shallow.append(
            replace(each, rank=1, trial_id=f"{each.trial_id}-1", last=last, assignment={"lr": 0.1})
        )
    found = summarise(plan(search=search, confirm=confirm), [*records(), *shallow])
    cell = found.cell("baseline", "iid/accuracy")
    assert cell is not None
    assert cell.estimate.mean == pytest.approx(0.8, abs=0.01)
    points = {
        point.setting: point.estimate.mean
        for point in found.points
        if (point.arm, point.metric) == ("baseline", "iid/accuracy")
    }
    assert list(points) == ["point 1: ", "point 2: lr=0.1"]
    assert list(points.values()) == pytest.approx([0.8, 0.4], abs=0.01)
    (grid,) = [all_table for all_table in all_tables(found) if all_table.title.startswith("confirmed points")]
    assert len(grid.rows) == 8
    assert any("those of point 1" in warning_text for warning_text in warning_texts(found))
    alone = replace(search, objectives=objectives[:1])
    averaged = summarise(plan(search=alone, confirm=confirm), [*records(), *shallow]).cell(
        "baseline", "iid/accuracy"
    )
    assert averaged is not None
    [shown] = warning_texts(summarise(plan(search=alone, confirm=confirm), [*records(), *shallow]))
    assert shown.startswith("The 2 best params of each arm were confirmed")
    assert averaged.estimate.mean == pytest.approx(0.6, abs=0.01)


def test_a_search_that_confirms_on_no_test_split_claims_nothing() -> None:
    objectives = (Objective(metric="valid/accuracy", goal="max"),)
    search = SearchPlan(4, {"name": "tpe"}, None, objectives, 0)
    asked = plan(search=search, confirm=ConfirmPlan(1, SEEDS, ()), answer=AnswerPlan((), None, 0.05, 3))
    found = summarise(asked, records())
    assert found.verdicts == ()
    assert not any(effect.primary for effect in found.effects)
    assert "valid/accuracy" in screen_table(found).headers
    assert "confirm: {splits: [test]}" in " ".join(warning_texts(found))


def measured_as(values: Callable[[str, int], float], names: tuple[str, ...]) -> Report:
    """What is said where seeds of an arm measured these in the primary outcome."""
    made = plan(names, answer=AnswerPlan(("iid/accuracy",), None, 0.05, 1))
    given = [record(name, seed) for name in names for seed in SEEDS]
    known = [
        replace(record, last=replace(record.last, metrics={"iid/accuracy": values(record.arm, record.seed)}))
        for record in given
        if record.last is not None
    ]
    return summarise(made, known)


def test_rounding_errors_make_no_arm_better() -> None:
    def values(arm: str, seed: int) -> float:
        return 0.5 + NOISE[SEEDS.index(seed)] + (2e-16 * (2 + seed % 3) if arm == "good" else 0.0)

    (verdict,) = measured_as(values, ("baseline", "good")).verdicts
    assert verdict.kind == "undecided"
    assert verdict.difference is not None
    assert verdict.difference.mean == 0.0


def test_claims_about_small_values_are_displayed() -> None:
    """An error of squares in units of physics, say."""

    def values(arm: str, seed: int) -> float:
        place = SEEDS.index(seed)
        own = 1e-14 + 1e-15 * NOISE[(place * 3) % 8] if arm == "good" else 0.0
        return 1e-13 * (1 + NOISE[place]) + own

    (verdict,) = measured_as(values, ("baseline", "good")).verdicts
    assert verdict.kind == "better"
    assert "+1e-14 [+" in verdict.line
