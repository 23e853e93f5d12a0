"""Verdicts of a finished sweep: one line per arm, never stronger than the seeds allow."""

import json
from dataclasses import asdict, replace

import pytest

from orchestrator.plan.types import AnswerPlan, Arm, ConfirmPlan, Plan, SearchPlan
from orchestrator.report.caveats.notes import notes
from orchestrator.report.caveats.warning_texts import FRONT_POINTS_WARNING, warning_texts
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics, arm_tags
from orchestrator.report.results.types import Report
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.tables import screen_table
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Space
from tests.orchestrator.report.studies import with_metrics
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


def test_moderated_variances_share_a_reported_prior() -> None:
    answer = AnswerPlan(("iid/accuracy",), 0.02, 0.05, 3, moderated=True)
    report = summarise(make_study_plan(answer=answer), make_study_records())
    (prior,) = {verdict.prior for verdict in report.verdicts}
    assert 0 < prior.freedom <= 3 * 7
    assert f" {prior.freedom:.3g} " in "\n".join(notes(report))
    assert json.loads(as_json(report))["verdicts"][0]["prior"] == asdict(prior)


def test_every_comparison_shows_the_share_of_won_seeds() -> None:
    """`good` wins with every seed, `bad` with none; depth has no declared direction."""
    report = summarise(make_study_plan(), make_study_records())
    good_verdict, bad_verdict = (
        next(verdict for verdict in report.verdicts if verdict.arm == name) for name in ("good", "bad")
    )
    assert (good_verdict.wins.wins, good_verdict.wins.share, good_verdict.wins.high) == (8, 1.0, 1.0)
    assert good_verdict.wins.low == pytest.approx(0.025 ** (1 / 8)), "Clopper and Pearson"
    assert (bad_verdict.wins.wins, bad_verdict.wins.low, bad_verdict.wins.high) == (
        0,
        0.0,
        pytest.approx(1 - 0.025 ** (1 / 8)),
    )
    effects = {(effect["arm"], effect["metric"]): effect for effect in json.loads(as_json(report))["effects"]}
    assert effects["good", "iid/accuracy"]["wins"]["share"] == 1.0
    assert effects["good", "iid/depth"]["wins"]["better"] is None


def test_arm_with_only_failed_seeds_has_no_number() -> None:
    report = summarise(make_study_plan(), make_study_records(good=SEEDS))
    assert report.cell("good", "iid/accuracy") is None
    assert report.effect("good", "iid/accuracy") is None
    assert report.verdict("good").kind == "undecided"
    row = next(row for row in screen_table(report).rows if row[0] == "good")
    assert all(cell.startswith("0 of 8 ") for cell in row[1:4])
    assert arm_metrics(report)["good"] == {"seeds_finished": 0, "seeds_failed": 8}


def test_failed_seeds_do_not_make_an_arm_better() -> None:
    """The three worst seeds of an arm diverge, so the finished seeds look better."""
    worst_seeds = sorted(
        SEEDS, key=lambda seed: make_study_record("good", seed).last.metrics["iid/accuracy"]
    )[:3]  # type: ignore[union-attr]
    report = summarise(make_study_plan(), make_study_records(good=tuple(worst_seeds)))
    assert verdict_kinds(report)["good"] == "undecided"
    assert verdict_kinds(report)["bad"] == "worse", "other arms keep their verdicts"
    effect = report.effect("good", "iid/accuracy")
    assert (effect.primary, effect.p, effect.p_sign_flips) == (True, None, None)
    metrics_of_arm = arm_metrics(report)["good"]
    assert metrics_of_arm["seeds_failed"] == 3
    assert "answer/p" not in metrics_of_arm, "nothing is claimed"


def test_tracking_ui_shows_the_primary_outcome_as_the_answer() -> None:
    report = summarise(make_study_plan(), make_study_records())
    effect, metrics_of_arms = report.effect("good", "iid/accuracy"), arm_metrics(report)
    answer = {name: value for name, value in metrics_of_arms["good"].items() if name.startswith("answer")}
    assert answer["answer/p"] == pytest.approx(effect.p, rel=1e-9)
    assert answer["answer/difference"] == pytest.approx(effect.estimate.mean, rel=1e-9)
    assert answer["answer/n"] == len(SEEDS)
    assert next(iter(metrics_of_arms["good"])) == "answer/estimate"
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
    assert not any(verdict.outlooks for verdict in report.verdicts if verdict is not undecided_verdict)


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
    assert (verdict_kinds(report)["good"], report.verdict("good").waiting) == ("undecided", 2)
    assert {effect.arm for effect in report.effects if effect.primary and effect.p is None} == {"good"}
    assert verdict_kinds(report)["bad"] == "worse"


def test_arm_without_results_has_no_verdict() -> None:
    study_records = [record for record in make_study_records() if record.arm != "good"]
    planned_trials = tuple(PlannedTrial(f"good-{seed}", "good", "confirm", 0, seed, 0) for seed in SEEDS)
    report = summarise(make_study_plan(trials=planned_trials), study_records)
    verdict = report.verdict("good")
    assert (verdict.kind, verdict.is_decided, "undecided" in verdict.line) == (None, False, False)


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


def test_points_of_a_front_are_reported_separately() -> None:
    """The mean of an accurate deep point and a poor shallow point describes neither."""
    objectives = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))
    search = SearchPlan(4, {"name": "tpe"}, None, objectives, 0)
    confirm = ConfirmPlan(2, SEEDS, ("iid",))
    second_points = [
        with_metrics(
            replace(record, rank=1, trial_id=f"{record.trial_id}-1", assignment={"lr": 0.1}),
            {"iid/accuracy": record.last.metrics["iid/accuracy"] - 0.4, "iid/depth": 1.0},
        )
        for record in make_study_records()
    ]
    report = summarise(
        make_study_plan(search=search, confirm=confirm), [*make_study_records(), *second_points]
    )
    cell = report.cell("baseline", "iid/accuracy")
    assert cell.estimate.mean == pytest.approx(0.8, abs=0.01)
    means_of_points = {
        point.setting: point.estimate.mean
        for point in report.points
        if (point.arm, point.metric) == ("baseline", "iid/accuracy")
    }
    assert list(means_of_points) == ["point 1: ", "point 2: lr=0.1"]
    assert list(means_of_points.values()) == pytest.approx([0.8, 0.4], abs=0.01)
    assert FRONT_POINTS_WARNING in warning_texts(report)


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


def test_rounding_errors_make_no_arm_better() -> None:
    def value_of(record: Record) -> float:
        rounding_error = 2e-16 * (2 + record.seed % 3) if record.arm == "good" else 0.0
        return 0.5 + NOISE[SEEDS.index(record.seed)] + rounding_error

    records = [
        replace(record, last=replace(record.last, metrics={"iid/accuracy": value_of(record)}))
        for record in make_study_records()
        if record.last is not None and record.arm in ("baseline", "good")
    ]
    plan = make_study_plan(("baseline", "good"), answer=AnswerPlan(("iid/accuracy",), None, 0.05, 1))
    (verdict,) = summarise(plan, records).verdicts
    assert verdict.kind == "undecided"
    assert verdict.difference.mean == 0.0
