"""Verdicts of a finished sweep: one line per arm, never stronger than the seeds allow."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.plan.types import AnswerPlan, Arm, ConfirmPlan, Plan, SearchPlan
from orchestrator.report.caveats.notes import notes, verdict_lines
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics, arm_tags
from orchestrator.report.results.types import Report
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


def make_study_arm(name: str) -> Arm:
    reference = "" if name == "baseline" else "baseline"
    return Arm(name, "", {}, (), Space(), (), name, reference)


def make_study_plan(names: tuple[str, ...] = tuple(EFFECTS), **fields: object) -> Plan:
    default_plan = Plan(
        name="study",
        question="Does it?",
        spec_digest="0",
        arms=tuple(map(make_study_arm, names)),
        search=None,
        confirm=ConfirmPlan(1, SEEDS, ("iid", "far")),
        posthoc=(),
        resources=Resources(),
        wall_clock_hours=None,
        trials=(),
        answer=AnswerPlan(("iid/accuracy",), 0.02, 0.05, len(names) - 1),
        metrics=METRICS,
    )
    return replace(default_plan, **fields)  # type: ignore[arg-type]


def make_study_record(
    name: str, seed: int, outcome: OutcomeKind = OutcomeKind.FINISHED, **fields: object
) -> Record:
    index = SEEDS.index(seed)
    arm_offset = NOISE[(index * 3 + len(name)) % 8] + EFFECTS.get(name, 0.0)
    accuracy = 0.8 + NOISE[index] + arm_offset
    metrics = {f"{split}/accuracy": accuracy for split in ("iid", "far", "valid")} | {
        "iid/depth": 3.0 + arm_offset
    }
    default_record = Record(
        trial_id=f"{name}-{seed}",
        sweep="study",
        arm=name,
        phase="confirm",
        number=index,
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
    return replace(default_record, **fields)  # type: ignore[arg-type]


def make_study_records(**failed_seeds: tuple[int, ...]) -> list[Record]:
    """Return records of all arms and seeds; `failed_seeds` of an arm diverged."""
    return [
        make_study_record(
            name, seed, OutcomeKind.DIVERGED if seed in failed_seeds.get(name, ()) else OutcomeKind.FINISHED
        )
        for name in EFFECTS
        for seed in SEEDS
    ]


def verdict_kinds(report: Report) -> dict[str, str]:
    return {verdict.arm: verdict.kind for verdict in report.verdicts}


def test_every_arm_has_one_verdict_on_the_primary_outcome() -> None:
    report = summarise(make_study_plan(), make_study_records())
    assert verdict_kinds(report) == {"good": "better", "bad": "worse", "same": "no difference"}
    effects = {effect.arm: effect for effect in report.effects if effect.primary}
    assert {effect.metric for effect in effects.values()} == {"iid/accuracy"}
    for effect in effects.values():
        assert effect.p is not None
        assert effect.estimate.low is not None
        assert effect.estimate.high is not None
        assert (effect.p <= 0.05) == (effect.estimate.low > 0 or effect.estimate.high < 0)
    assert all(effect.p is effect.p_sign_flips is None for effect in report.effects if not effect.primary)
    assert report.verdicts[0].line == (
        f"good: better (iid/accuracy {report.verdicts[0].line.split('accuracy ')[1].split(' against')[0]} "
        f"against baseline, p={effects['good'].p:.2g}, 8 of 8 seeds finished)"
    )


def test_moderated_variances_share_a_reported_prior() -> None:
    answer = AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3, moderated=True)
    moderated_report, plain_report = (
        summarise(make_study_plan(answer=answer), make_study_records()),
        summarise(make_study_plan(), make_study_records()),
    )
    priors = {verdict.prior for verdict in moderated_report.verdicts}
    assert len(priors) == 1
    assert {verdict.prior for verdict in plain_report.verdicts} == {None}
    (prior,) = priors
    assert prior is not None
    assert 0 < prior.freedom <= 3 * 7
    assert f"with {prior.freedom:.3g} degrees of freedom" in "\n".join(notes(moderated_report))
    assert json.loads(as_json(moderated_report))["verdicts"][0]["prior"] == asdict(prior)


def test_arm_with_a_failed_seed_has_no_moderated_variance() -> None:
    """The bounds for a failed seed use the ordinary t distribution."""
    answer = AnswerPlan(("iid/accuracy",), 0.02, 0.05, 4, moderated=True)
    names = (*EFFECTS, "more")
    study_records = [make_study_record(name, seed) for name in names for seed in SEEDS]
    records_with_failure = [
        replace(record, outcome=OutcomeKind.DIVERGED)
        if (record.arm, record.seed) == ("good", SEEDS[0])
        else record
        for record in study_records
    ]
    moderated_arms = {
        verdict.arm
        for verdict in summarise(make_study_plan(names, answer=answer), records_with_failure).verdicts
        if verdict.prior
    }
    assert moderated_arms == {"bad", "same", "more"}


def test_every_comparison_shows_the_share_of_won_seeds() -> None:
    """`good` wins with every seed, `bad` with none; depth has no declared direction."""
    report = summarise(make_study_plan(), make_study_records())
    good_verdict, bad_verdict = (
        next(verdict for verdict in report.verdicts if verdict.arm == name) for name in ("good", "bad")
    )
    assert good_verdict.wins is not None
    assert bad_verdict.wins is not None
    assert (good_verdict.wins.wins, good_verdict.wins.share, good_verdict.wins.high) == (8, 1.0, 1.0)
    assert good_verdict.wins.low == pytest.approx(0.025 ** (1 / 8)), "Clopper and Pearson"
    assert (bad_verdict.wins.wins, bad_verdict.wins.low, bad_verdict.wins.high) == (
        0,
        0.0,
        pytest.approx(1 - 0.025 ** (1 / 8)),
    )
    table = next(candidate for candidate in all_tables(report) if "primary outcome" in candidate.title)
    shares = {row[0]: row[table.headers.index("P(better)")] for row in table.rows}
    assert shares["good - baseline"] == "1.00 [0.63, 1.00]"
    report_json = json.loads(as_json(report))
    assert report_json["verdicts"][0]["wins"]["share"] == 1.0
    effects = {(effect["arm"], effect["metric"]): effect["wins"] for effect in report_json["effects"]}
    assert effects["good", "iid/depth"]["better"] is None
    assert effects["good", "iid/depth"]["n"] == len(SEEDS)


def test_arm_with_only_failed_seeds_has_no_number(tmp_path: Path) -> None:
    report = summarise(make_study_plan(), make_study_records(good=SEEDS))
    assert report.cell("good", "iid/accuracy") is None
    assert report.effect("good", "iid/accuracy") is None
    (good_verdict,) = [verdict for verdict in report.verdicts if verdict.arm == "good"]
    assert (
        good_verdict.line
        == "good: undecided: 8 seeds failed (iid/accuracy against baseline, 0 of 8 seeds finished)"
    )
    row = next(row for row in screen_table(report).rows if row[0] == "good")
    assert row == (
        "good",
        "0 of 8 finished",
        "0 of 8 finished",
        "0 of 8 finished",
        "-",
        "undecided: 8 seeds failed",
    )
    assert arm_metrics(report)["good"] == {"seeds_finished": 0, "seeds_failed": 8}
    assert "0.150" not in next(row for grid in all_tables(report) for row in grid.rows if row[0] == "good")
    assert "0 of 8 finished" in write_report_folder(report, tmp_path / "report").read_text()


def test_failed_seeds_do_not_make_an_arm_better() -> None:
    """The three worst seeds of an arm diverge, so the finished seeds look better."""
    worst_seeds = sorted(
        SEEDS, key=lambda seed: make_study_record("good", seed).last.metrics["iid/accuracy"]
    )[:3]  # type: ignore[union-attr]
    report = summarise(make_study_plan(), make_study_records(good=tuple(worst_seeds)))
    cell, complete_cell = (
        report.cell("good", "iid/accuracy"),
        summarise(make_study_plan(), make_study_records()).cell("good", "iid/accuracy"),
    )
    assert cell is not None
    assert complete_cell is not None
    assert cell.estimate.mean > complete_cell.estimate.mean
    assert verdict_kinds(report)["good"] == "undecided"
    assert verdict_kinds(report)["bad"] == "worse", "other arms keep their verdicts"
    (good_verdict,) = [verdict for verdict in report.verdicts if verdict.arm == "good"]
    assert "p=" not in good_verdict.line
    effect = report.effect("good", "iid/accuracy")
    assert effect is not None
    assert (effect.primary, effect.p, effect.p_sign_flips) == (True, None, None)
    row = next(row for row in screen_table(report).rows if row[0] == "good")
    assert row[1] == "5 of 8 finished"
    metrics_of_arm = arm_metrics(report)["good"]
    assert metrics_of_arm["seeds_failed"] == 3
    assert "answer/p" not in metrics_of_arm, "nothing is claimed"


def test_primary_outcomes_come_first_in_the_tracking_ui() -> None:
    report = summarise(make_study_plan(), make_study_records())
    effect, metrics_of_arms = report.effect("good", "iid/accuracy"), arm_metrics(report)
    assert effect is not None
    answer = {name: value for name, value in metrics_of_arms["good"].items() if name.startswith("answer")}
    assert all(value == float(f"{value:.10g}") for value in answer.values()), "no rounding errors"
    assert pytest.approx(answer, rel=1e-9) == {
        "answer/p": effect.p,
        **{
            f"answer/{name}": metrics_of_arms["good"][f"iid/accuracy{suffix}"]
            for suffix, name in (
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
    assert arm_tags(report)["good"]["answer"] == "iid/accuracy"
    assert "answer/p" not in metrics_of_arms["baseline"]
    assert not [name for name in arm_metrics(replace(report, left=1))["good"] if name.endswith("/p")]


def test_undecided_verdicts_state_the_chance_of_a_decision() -> None:
    report = summarise(
        make_study_plan(answer=AnswerPlan(("iid/accuracy",), None, 0.05, 3)), make_study_records()
    )
    (undecided_verdict,) = [verdict for verdict in report.verdicts if verdict.kind == "undecided"]
    assert [outlook.more for outlook in undecided_verdict.outlooks] == [4, 8, 24]
    assert all(0 <= outlook.chance <= 1 for outlook in undecided_verdict.outlooks)
    differences = [outlook.difference for outlook in undecided_verdict.outlooks]
    assert differences == sorted(differences, reverse=True)
    chance = f"{undecided_verdict.outlooks[1].chance:.0%}"
    assert undecided_verdict.text == f"undecided: 8 more seeds would decide it in {chance} of cases"
    assert not any(verdict.outlooks for verdict in report.verdicts if verdict is not undecided_verdict)
    (table,) = [
        candidate for candidate in all_tables(report) if "chance that more seeds decide" in candidate.title
    ]
    assert table.headers == ("arm", "4 more seeds", "8 more seeds", "24 more seeds")
    assert [row[0] for row in table.rows] == [undecided_verdict.arm]
    assert table.rows[0][2].startswith(chance)
    assert json.loads(as_json(report))["verdicts"][2]["outlooks"][1]["more"] == 8


def test_failed_seed_of_the_baseline_leaves_every_arm_undecided() -> None:
    assert set(verdict_kinds(summarise(make_study_plan(), make_study_records(baseline=(103,)))).values()) == {
        "undecided"
    }


def test_open_seeds_leave_an_arm_undecided() -> None:
    """An early look is no test, because nobody fixed the finished seeds in advance."""
    study_records = make_study_records()
    planned_trials = tuple(
        PlannedTrial(record.trial_id, record.arm, "confirm", 0, record.seed, 0) for record in study_records
    )
    ended_records = [trial for trial in study_records if trial.trial_id not in ("good-107", "good-108")]
    report = summarise(make_study_plan(trials=planned_trials), ended_records)
    texts = {verdict.arm: verdict.text for verdict in report.verdicts}
    assert texts["good"] == "undecided: 2 seeds not run"
    assert {verdict.arm: verdict.seeds for verdict in report.verdicts}["good"] == "6 of 8 seeds finished"
    assert {effect.arm: effect.p is None for effect in report.effects if effect.primary} == {
        **dict.fromkeys(texts, False),
        "good": True,
    }
    assert texts["bad"] == "worse"


def test_arm_without_results_has_no_verdict() -> None:
    study_records = [record for record in make_study_records() if record.arm != "good"]
    planned_trials = tuple(PlannedTrial(f"good-{seed}", "good", "confirm", 0, seed, 0) for seed in SEEDS)
    report = summarise(make_study_plan(trials=planned_trials), study_records)
    verdict = report.verdict("good")
    assert verdict is not None
    assert (verdict.kind, verdict.is_decided, "undecided" in verdict.line) == (None, False, False)
    assert [
        verdict["kind"] for verdict in json.loads(as_json(report))["verdicts"] if verdict["arm"] == "good"
    ] == [None]
    assert not any("good" in line for line in verdict_lines(report))


def test_additional_outcomes_widen_intervals_and_have_verdicts() -> None:
    answer = AnswerPlan(("iid/accuracy", "iid/depth"), 0.02, 0.05, 6)
    two_outcome_report, one_outcome_report = (
        summarise(make_study_plan(answer=answer), make_study_records()),
        summarise(make_study_plan(), make_study_records()),
    )
    effects = [report.effect("good", "iid/accuracy") for report in (two_outcome_report, one_outcome_report)]
    lower_ends = [effect.estimate.low for effect in effects if effect is not None]
    assert None not in lower_ends
    assert lower_ends[0] < lower_ends[1]  # type: ignore[operator]
    depth_kinds = {
        verdict.arm: verdict.kind for verdict in two_outcome_report.verdicts if verdict.metric == "iid/depth"
    }
    assert depth_kinds["good"] == "higher", (
        "depth has no declared direction, and the margin belongs to accuracy"
    )
    tags = {"answer", "answer2", "decision", "verdict", "verdict.iid/depth", "intervals"}
    assert set(arm_tags(two_outcome_report)["good"]) == tags
    metric_names = list(arm_metrics(two_outcome_report)["good"])
    assert metric_names[0] == "answer/estimate"
    assert metric_names[7:9] == ["answer/p", "answer2/estimate"]


def test_screen_lists_decided_and_undecided_arms() -> None:
    answer = AnswerPlan(("iid/accuracy", "far/accuracy"), 0.02, 0.05, 6)
    report = summarise(make_study_plan(answer=answer), make_study_records(good=(103,)))
    decided_lines = [
        verdict.line
        for verdict in report.verdicts
        if verdict.arm != "good" and verdict.metric == "iid/accuracy"
    ]
    *first_lines, last_line, _ = verdict_lines(report)
    assert first_lines[:2] == [f"decided: {line}" for line in decided_lines]
    assert "undecided: good in iid/accuracy, which does not mean that there is no difference" in first_lines
    assert (
        last_line == "undecided: good, same in far/accuracy, which does not mean that there is no difference"
    )
    *undecided_lines, _ = verdict_lines(summarise(make_study_plan(), make_study_records(baseline=(103,))))
    assert undecided_lines == [
        "undecided: every arm in iid/accuracy, which does not mean that there is no difference"
    ]


def test_crashed_reevaluation_has_no_value() -> None:
    overrides = {"model.halt.threshold": 0.5}
    reevaluations = [
        make_study_record(
            "good", seed, outcome, phase="posthoc", overrides=overrides, trial_id=f"reevaluation-{seed}"
        )
        for seed, outcome in zip(
            SEEDS[:3], (OutcomeKind.FINISHED, OutcomeKind.CRASHED, OutcomeKind.CRASHED), strict=True
        )
    ]
    report = summarise(make_study_plan(posthoc=(overrides,)), [*make_study_records(), *reevaluations])
    (cell,) = [cell for cell in report.posthoc if cell.metric == "iid/accuracy"]
    assert (cell.estimate.n, cell.failed) == (1, 2)
    assert cell.estimate.mean == pytest.approx(make_study_record("good", 101).last.metrics["iid/accuracy"])  # type: ignore[union-attr]
    (table,) = [candidate for candidate in all_tables(report) if "re-evaluated" in candidate.title]
    assert table.rows[0][2].endswith("(1 of 3 finished)")


def test_points_of_a_front_are_reported_separately() -> None:
    """The mean of an accurate deep point and a poor shallow point describes neither."""
    objectives = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))
    search = SearchPlan(4, {"name": "tpe"}, None, objectives, 0)
    confirm = ConfirmPlan(2, SEEDS, ("iid",))
    second_points = []
    for record in make_study_records():
        assert record.last is not None
        metrics = {
            **record.last.metrics,
            "iid/accuracy": record.last.metrics["iid/accuracy"] - 0.4,
            "iid/depth": 1.0,
        }
        last = replace(record.last, metrics=metrics)
        second_points.append(
            replace(record, rank=1, trial_id=f"{record.trial_id}-1", last=last, assignment={"lr": 0.1})
        )
    report = summarise(
        make_study_plan(search=search, confirm=confirm), [*make_study_records(), *second_points]
    )
    cell = report.cell("baseline", "iid/accuracy")
    assert cell is not None
    assert cell.estimate.mean == pytest.approx(0.8, abs=0.01)
    means_of_points = {
        point.setting: point.estimate.mean
        for point in report.points
        if (point.arm, point.metric) == ("baseline", "iid/accuracy")
    }
    assert list(means_of_points) == ["point 1: ", "point 2: lr=0.1"]
    assert list(means_of_points.values()) == pytest.approx([0.8, 0.4], abs=0.01)
    (table,) = [
        candidate for candidate in all_tables(report) if candidate.title.startswith("confirmed points")
    ]
    assert len(table.rows) == 8
    assert any("those of point 1" in warning_text for warning_text in warning_texts(report))
    single_search = replace(search, objectives=objectives[:1])
    averaged_cell = summarise(
        make_study_plan(search=single_search, confirm=confirm), [*make_study_records(), *second_points]
    ).cell("baseline", "iid/accuracy")
    assert averaged_cell is not None
    [warning] = warning_texts(
        summarise(
            make_study_plan(search=single_search, confirm=confirm), [*make_study_records(), *second_points]
        )
    )
    assert warning.startswith("The 2 best params of each arm were confirmed")
    assert averaged_cell.estimate.mean == pytest.approx(0.6, abs=0.01)


def test_search_without_a_test_split_has_no_verdict() -> None:
    objectives = (Objective(metric="valid/accuracy", goal="max"),)
    search = SearchPlan(4, {"name": "tpe"}, None, objectives, 0)
    search_plan = make_study_plan(
        search=search, confirm=ConfirmPlan(1, SEEDS, ()), answer=AnswerPlan((), None, 0.05, 3)
    )
    report = summarise(search_plan, make_study_records())
    assert report.verdicts == ()
    assert not any(effect.primary for effect in report.effects)
    assert "valid/accuracy" in screen_table(report).headers
    assert "confirm: {splits: [test]}" in " ".join(warning_texts(report))


def report_of_values(values: Callable[[str, int], float], names: tuple[str, ...]) -> Report:
    """Return the report of arms that measured these values in the primary outcome."""
    outcome_plan = make_study_plan(names, answer=AnswerPlan(("iid/accuracy",), None, 0.05, 1))
    study_records = [make_study_record(name, seed) for name in names for seed in SEEDS]
    measured_records = [
        replace(record, last=replace(record.last, metrics={"iid/accuracy": values(record.arm, record.seed)}))
        for record in study_records
        if record.last is not None
    ]
    return summarise(outcome_plan, measured_records)


def test_rounding_errors_make_no_arm_better() -> None:
    def value_of(arm: str, seed: int) -> float:
        return 0.5 + NOISE[SEEDS.index(seed)] + (2e-16 * (2 + seed % 3) if arm == "good" else 0.0)

    (verdict,) = report_of_values(value_of, ("baseline", "good")).verdicts
    assert verdict.kind == "undecided"
    assert verdict.difference is not None
    assert verdict.difference.mean == 0.0


def test_claims_about_small_values_are_displayed() -> None:
    """An example is a squared error in physical units."""

    def value_of(arm: str, seed: int) -> float:
        index = SEEDS.index(seed)
        arm_offset = 1e-14 + 1e-15 * NOISE[(index * 3) % 8] if arm == "good" else 0.0
        return 1e-13 * (1 + NOISE[index]) + arm_offset

    (verdict,) = report_of_values(value_of, ("baseline", "good")).verdicts
    assert verdict.kind == "better"
    assert "+1e-14 [+" in verdict.line
