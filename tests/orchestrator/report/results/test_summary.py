"""Reports of records whose numbers are known in advance."""

import csv
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from orchestrator.plan.serialise import from_json, to_json
from orchestrator.plan.types import Arm, ConfirmPlan, Plan
from orchestrator.report.figures.interval_figures import metric_panels, outcome_panels
from orchestrator.report.figures.style import render
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics
from orchestrator.report.results.types import Report
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.tables import all_tables, screen_table
from orchestrator.report.writers.write import write_report_folder
from orchestrator.spec.section import Resources
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Space
from trainables.metrics import Metric
from trainables.protocol import Measurement
from trainables.training.measured import declared_metrics

BASELINE_ACCURACY = {1: 0.50, 2: 0.60, 3: 0.70}
OTHER_ACCURACY = {1: 0.40, 2: 0.52, 3: 0.58}


def build_arm(name: str) -> Arm:
    reference = "" if name == "baseline" else "baseline"
    return Arm(
        name=name,
        why="",
        settings={},
        changes=(),
        space=Space(),
        dropped=(),
        digest=name,
        reference=reference,
    )


def build_plan() -> Plan:
    row = {"arm": "other", "split": "iid", "metric": "accuracy", "value": 0.75, "source": "a paper, Table 1"}
    return Plan(
        name="study",
        question="Does it?",
        spec_digest="0",
        arms=(build_arm("baseline"), build_arm("other")),
        search=None,
        confirm=ConfirmPlan(best=1, seeds=(1, 2, 3), splits=("iid",)),
        posthoc=(),
        resources=Resources(),
        wall_clock_hours=None,
        trials=(),
        published=(row,),
    )


def build_record(
    name: str, seed: int, accuracy: float, outcome: OutcomeKind | None = OutcomeKind.FINISHED
) -> Record:
    metrics = {
        "iid/accuracy": accuracy,
        "iid/depth": 3.0 + seed,
        "iid/floor": 0.2,
        "valid/accuracy": accuracy,
    }
    measurement = Measurement(step=10, seconds=2.0, metrics=metrics)
    return Record(
        trial_id=f"{name}-{seed}",
        sweep="study",
        arm=name,
        phase="confirm",
        number=seed,
        seed=seed,
        rank=0,
        assignment={"train.lr": 0.001},
        overrides={},
        settings={},
        outcome=outcome,
        reason="",
        last=measurement if outcome is OutcomeKind.FINISHED else None,
        best=None,
        started_at=0.0,
        ended_at=1.0,
        attempts=1,
    )


def build_records() -> list[Record]:
    baseline_records = [build_record("baseline", seed, value) for seed, value in BASELINE_ACCURACY.items()]
    return baseline_records + [build_record("other", seed, value) for seed, value in OTHER_ACCURACY.items()]


def build_report(trial_records: list[Record] | None = None) -> Report:
    return summarise(build_plan(), build_records() if trial_records is None else trial_records)


def test_means_and_paired_differences() -> None:
    report = build_report()
    cell, effect = report.cell("baseline", "iid/accuracy"), report.effect("other", "iid/accuracy")
    assert cell is not None
    assert effect is not None
    assert cell.estimate.mean == pytest.approx(0.6)
    assert cell.record_ids == ("baseline-1", "baseline-2", "baseline-3")
    assert effect.estimate.mean == pytest.approx(-0.1)
    assert effect.pairs[1] == ("other-2", "baseline-2")
    assert effect.p_sign_flips == pytest.approx(2 / 2**3)


def test_intervals_are_clipped_to_the_range_of_the_metric() -> None:
    """Student's t alone would give the interval from -2.8 to 3.8 for two seeds."""
    accuracies = {"baseline": (1.0, 0.5), "other": (0.0, 1.0)}
    report = build_report(
        [build_record(arm, seed, pair[seed - 1]) for arm, pair in accuracies.items() for seed in (1, 2)]
    )
    cell, depth = report.cell("other", "iid/accuracy"), report.cell("other", "iid/depth")
    effect, depth_effect = report.effect("other", "iid/accuracy"), report.effect("other", "iid/depth")
    assert cell is not None
    assert depth is not None
    assert effect is not None
    assert depth_effect is not None
    assert (cell.estimate.low, cell.estimate.high) == (0.0, 1.0)
    assert (effect.estimate.low, effect.estimate.high) == (-1.0, 1.0)
    assert depth.estimate.low == 0.0
    assert depth.estimate.high == pytest.approx(4.5 + 12.706204736 / 2)  # t table: 97.5%, 1 degree of freedom
    assert (depth_effect.estimate.mean, depth_effect.estimate.low, depth_effect.p) == (0.0, None, None)


@pytest.mark.parametrize("has_bound", [True, False])
def test_depth_interval_is_clipped_to_the_bound_of_the_arm(has_bound: bool) -> None:
    """Every trial must report the bound of its arm; trials of earlier versions do not."""
    depths = {"baseline": (6.0, (5.9, 0.5)), "other": (8.0, (7.9, 7.8))}

    def record_with_depth(arm: str, seed: int) -> Record:
        record, (bound, report) = build_record(arm, seed, 0.5), depths[arm]
        assert record.last is not None
        metrics = {**record.last.metrics, "iid/depth": report[seed - 1]}
        if has_bound or seed > 1:
            metrics["iid/depth_bound"] = bound
        return replace(record, last=replace(record.last, metrics=metrics))

    report = build_report([record_with_depth(arm, seed) for arm in depths for seed in (1, 2)])
    cell, effect = report.cell("other", "iid/depth"), report.effect("other", "iid/depth")
    assert cell is not None
    assert effect is not None
    t_quantile = 12.706204736  # t table: 97.5%, 1 degree of freedom
    assert cell.estimate.low == pytest.approx(7.85 - t_quantile * 0.05)
    assert cell.estimate.high == pytest.approx(8.0 if has_bound else 7.85 + t_quantile * 0.05)
    ends = (effect.estimate.low, effect.estimate.high)
    assert ends == pytest.approx(
        (-6.0, 8.0) if has_bound else (4.65 - t_quantile * 2.65, 4.65 + t_quantile * 2.65)
    )


def test_params_with_the_same_seed_are_averaged() -> None:
    """Two best params on three seeds give three pairs, not six."""
    second_rank = [
        replace(record, trial_id=f"{record.trial_id}-second", rank=1, last=shift_accuracy(record, shift=0.1))
        for record in build_records()
    ]
    report = build_report([*build_records(), *second_rank])
    cell, effect = report.cell("baseline", "iid/accuracy"), report.effect("other", "iid/accuracy")
    assert cell is not None
    assert effect is not None
    assert (cell.estimate.n, effect.estimate.n, len(cell.record_ids), len(effect.pairs)) == (3, 3, 6, 6)
    assert cell.estimate.mean == pytest.approx(0.65)
    assert effect.p_sign_flips == pytest.approx(2 / 2**3)


def shift_accuracy(record: Record, shift: float) -> Measurement:
    assert record.last is not None
    metrics = {name: value + shift * (name == "iid/accuracy") for name, value in record.last.metrics.items()}
    return replace(record.last, metrics=metrics)


def test_report_of_an_unfinished_sweep_is_marked(tmp_path: Path) -> None:
    planned_trials = tuple(
        PlannedTrial(record.trial_id, record.arm, record.phase, record.number, record.seed, 0)
        for record in build_records()
    )
    plan = replace(build_plan(), trials=planned_trials)
    finished_report, unfinished_report = (
        summarise(plan, build_records()),
        summarise(plan, build_records()[:-2]),
    )
    assert (finished_report.left, unfinished_report.left) == (0, 2)
    assert "not ended" not in write_report_folder(finished_report, tmp_path / "done").read_text()
    assert "**2 trials have not ended: every number is of those that have.**" in (
        write_report_folder(unfinished_report, tmp_path / "partly").read_text()
    )


def test_published_value_without_a_cell_appears_at_every_cell(tmp_path: Path) -> None:
    """Plans of earlier versions do not name the cell of a published value."""
    cell_names = {"baseline": "baseline[model.width=8]", "other": "other[model.width=8]"}
    plan = replace(
        build_plan(),
        arms=tuple(replace(arm, name=cell_names[arm.name], reference="") for arm in build_plan().arms),
    )
    report = summarise(plan, [replace(record, arm=cell_names[record.arm]) for record in build_records()])
    cell = report.cell("other[model.width=8]", "iid/accuracy")
    assert cell is not None
    assert cell.published == 0.75
    text = write_report_folder(report, tmp_path / "report").read_text()
    assert "- Published values of other[model.width=8]: a paper, Table 1" in text.replace("\\", "")


def test_legend_with_every_kind_of_verdict_fits_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    base_report = build_report()
    effect = base_report.effect("other", "iid/accuracy")
    assert effect is not None
    verdicts = [
        replace(base_report.verdicts[0], kind=kind, difference=replace(effect.estimate, low=low, high=high))
        for kind, low, high in (("better", -1.0, 0.0), ("worse", -1.0, 0.0), ("undecided", -1.0, 0.0))
    ]
    verdicts.append(replace(verdicts[-1], difference=replace(effect.estimate, low=None, high=None)))
    assert base_report.answer is not None
    report = replace(base_report, verdicts=tuple(verdicts), answer=replace(base_report.answer, margin=0.01))
    render(
        next(panel for panel in outcome_panels(report) if panel.name == "difference-1"),
        "png",
    )
    (figure,) = figures
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert len(legend.get_texts()) == 6
    assert legend.get_window_extent().y0 > 0


def test_report_does_not_depend_on_the_order_of_records() -> None:
    assert summarise(build_plan(), reversed(build_records())) == build_report()


def test_failed_trials_have_no_value() -> None:
    trial_records = [*build_records()[:-1], build_record("other", 3, 0.0, OutcomeKind.DIVERGED)]
    cell = build_report(trial_records).cell("other", "iid/accuracy")
    depth = build_report(trial_records).cell("other", "iid/depth")
    assert cell is not None
    assert depth is not None
    assert cell.estimate.mean == pytest.approx((0.40 + 0.52) / 2)
    assert (cell.failed, cell.estimate.n, depth.estimate.n) == (1, 2, 2)
    assert cell.failures == ((3, "diverged"),)


def test_unfinished_trials_are_counted_without_a_value() -> None:
    report = build_report([*build_records()[:-1], build_record("other", 3, 0.0, None)])
    cell = report.cell("other", "iid/accuracy")
    assert cell is not None
    assert cell.estimate.n == 2
    assert report.tallies[1].outcomes == {"confirm": {"finished": 2, "open": 1}}


def test_effect_pairs_only_shared_seeds() -> None:
    effect = build_report(build_records()[1:]).effect("other", "iid/accuracy")
    assert effect is not None
    assert effect.pairs == (("other-2", "baseline-2"), ("other-3", "baseline-3"))


def test_report_shows_metrics_of_sequence_answers() -> None:
    answer_metrics = {
        "iid/exact_match": 0.4,
        "iid/bleu": 27.0,
        "iid/answer_length": 9.0,
        "iid/exact_match_floor": 0.1,
    }
    answer_metrics["iid/accuracy_whole"] = 0.3
    trial_records = []
    for record in (build_record(name, seed, 0.5) for name in ("baseline", "other") for seed in (1, 2, 3)):
        assert record.last is not None
        metrics = {**record.last.metrics, **answer_metrics}
        trial_records.append(replace(record, last=replace(record.last, metrics=metrics)))
    overrides = {"train.beam_size": 4}
    reevaluation = replace(trial_records[0], trial_id="reevaluation", phase="posthoc", overrides=overrides)
    trial_records[-1] = replace(trial_records[-1], outcome=OutcomeKind.DIVERGED)
    report = summarise(replace(build_plan(), posthoc=(overrides,)), [*trial_records, reevaluation])
    assert report.metrics[:3] == ("iid/exact_match", "iid/bleu", "iid/accuracy")
    assert not any("answer_length" in metric or "floor" in metric for metric in report.metrics)
    cells = {(cell.arm, cell.metric): cell for cell in report.cells}
    assert cells["other", "iid/exact_match"].estimate.mean == pytest.approx(0.4)
    assert cells["other", "iid/accuracy_whole"].estimate.mean == pytest.approx(0.3)
    assert cells["other", "iid/bleu"].estimate.n == 2
    summary_table = screen_table(report)
    assert "iid/exact_match" in summary_table.headers
    assert "iid/accuracy" not in summary_table.headers
    assert summary_table.rows[-1][:3] == ("floor (most common answer)", "", "0.100")
    (match_table,) = [
        table
        for table in all_tables(report)
        if table.title.startswith("exact_match (") and "): mean" in table.title
    ]
    assert match_table.rows[2] == ("floor (most common answer)", "0.100")
    floors = {row["metric"]: row["floor"] for row in csv.DictReader(io.StringIO(as_csv(report)))}
    assert floors["iid/exact_match"] == "0.1"
    assert floors["iid/bleu"] == ""
    (reevaluation_table,) = [
        table for table in all_tables(report) if table.title.startswith("re-evaluated checkpoints")
    ]
    assert {"iid/bleu", "iid/exact_match", "iid/depth"} < set(reevaluation_table.headers)
    assert "iid/loss" not in reevaluation_table.headers


def test_headline_shows_the_floor() -> None:
    table = screen_table(build_report())
    assert table.headers == (
        *("arm", "seeds", "iid/accuracy", "iid/depth", "difference in iid/accuracy", "verdict"),
    )
    assert table.rows[-1] == ("floor (most common label)", "", "0.200", "", "", "")
    assert table.rows[0][:2] == ("baseline", "3")
    assert table.rows[1][4].startswith("-0.100 [")
    assert table.rows[1][5] == "worse"


def test_reevaluated_checkpoints_have_a_table() -> None:
    overrides = {"model.halt.threshold": 0.5}
    reevaluations = [
        replace(
            build_record("other", seed, value), phase="posthoc", overrides=overrides, trial_id=f"again-{seed}"
        )
        for seed, value in OTHER_ACCURACY.items()
    ]
    report = summarise(replace(build_plan(), posthoc=(overrides,)), [*build_records(), *reevaluations])
    assert report.cells == build_report().cells
    (table,) = [table for table in all_tables(report) if "re-evaluated" in table.title]
    assert table.rows[0][:3] == ("other", "model.halt.threshold=0.5", "0.500 [0.272, 0.728] (3)")
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert [row["record_ids"] for row in rows if row["setting"] and row["metric"] == "iid/accuracy"] == [
        "again-1 again-2 again-3"
    ]


def test_csv_agrees_with_the_report() -> None:
    rows = {(row["arm"], row["metric"]): row for row in csv.DictReader(io.StringIO(as_csv(build_report())))}
    row = rows["other", "iid/accuracy"]
    assert float(row["mean"]) == pytest.approx(0.5)
    assert (row["n"], row["floor"], row["published"]) == ("3", "0.2", "0.75")
    assert row["record_ids"] == "other-1 other-2 other-3"
    assert rows["baseline", "iid/accuracy"]["difference_mean"] == ""


def test_arm_metrics_match_the_report() -> None:
    metrics_of_arm = arm_metrics(build_report())
    assert metrics_of_arm["other"]["iid/accuracy"] == pytest.approx(0.5)
    assert metrics_of_arm["other"]["iid/accuracy.n"] == 3
    assert metrics_of_arm["other"]["iid/accuracy.published"] == 0.75
    assert metrics_of_arm["other"]["iid/accuracy.diff"] == pytest.approx(-0.1)
    assert "iid/accuracy.diff" not in metrics_of_arm["baseline"]


def test_rewritten_report_has_the_same_files(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    first_text = write_report_folder(build_report(), folder).read_text()
    assert write_report_folder(build_report(), folder).read_text() == first_text
    names = {path.name for path in folder.iterdir()}
    figure_names = {f"{name}.png" for name in ("outcome-1", "difference-1", "values-1", "values-2")}
    assert names == {"report.md", "report.html", "report.csv", "report.json", "manifest.json", *figure_names}
    assert not list(tmp_path.glob(".report*"))
    assert "](outcome-1.png)" in first_text


def test_single_seed_has_no_interval_and_no_p_value(tmp_path: Path) -> None:
    report = build_report([build_record("baseline", 1, 0.5), build_record("other", 1, 0.4)])
    effect = report.effect("other", "iid/accuracy")
    assert effect is not None
    assert (effect.estimate.low, effect.p, effect.p_sign_flips) == (None, None, 1.0)
    assert screen_table(report).rows[1][2] == "0.400"
    assert write_report_folder(report, tmp_path / "report").exists()


def test_report_without_results_draws_no_figure() -> None:
    empty_report = build_report([])
    assert not list(metric_panels(empty_report))
    assert not [panel for panel in outcome_panels(empty_report) if panel.name.startswith("outcome")]
    assert all_tables(empty_report)[-1].rows[0][1] == "nothing ran"


def test_concurrent_writers_leave_one_complete_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("orchestrator.report.writers.write.outcome_panels", lambda _: [])
    monkeypatch.setattr("orchestrator.report.writers.write.metric_panels", lambda _: [])
    monkeypatch.setattr("orchestrator.report.writers.write.html_page", lambda *_: "")
    report = build_report()
    with ThreadPoolExecutor(4) as executor:
        paths = list(executor.map(lambda _: write_report_folder(report, tmp_path / "report"), range(80)))
    assert set(paths) == {tmp_path / "report" / "report.md"}
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "report.csv",
        "report.json",
        "report.html",
        "report.md",
        "manifest.json",
    }


def test_plan_without_declared_metrics_gives_the_same_report() -> None:
    plan = replace(build_plan(), metrics=declared_metrics())
    assert summarise(plan, build_records()) == build_report()
    restored_plan = from_json(to_json(plan))
    assert restored_plan.metrics == plan.metrics
    plan_without_task = replace(
        build_plan(), arms=tuple(replace(arm, settings={"task": {"name": "gone"}}) for arm in plan.arms)
    )
    assert summarise(plan_without_task, build_records()).cells == build_report().cells


def test_report_uses_the_declarations_of_a_custom_trainable(tmp_path: Path) -> None:
    """Metric names of the built-in trainable need a declaration in a custom trainable."""
    declared_metrics = (
        Metric("error", "min", "K", low=0.0, floor=5.0),
        Metric("shift", "min", note="shift is of the whole run.", shown=("table", "figure")),
    )
    trial_records = [
        replace(
            record,
            outcome=OutcomeKind.DIVERGED if record.trial_id == "other-3" else record.outcome,
            last=Measurement(
                1, 1.0, {"iid/error": 0.1 * record.seed, "iid/shift": 2.0, "iid/accuracy": 51.0}
            ),
        )
        for record in build_records()
    ]
    plan = replace(build_plan(), trainable="mine:train", metrics=declared_metrics, published=())
    report = summarise(plan, trial_records)
    assert report.metrics == ("iid/error", "iid/shift", "iid/accuracy")
    assert report.headlines == ("error",)
    assert report.floors == {"iid/error": 5.0}
    cells = {(cell.arm, cell.metric): cell.estimate for cell in report.cells}
    assert cells["other", "iid/error"].mean == pytest.approx((0.1 + 0.2) / 2)
    assert cells["other", "iid/error"].low == 0.0
    assert cells["other", "iid/accuracy"].n == 2
    titles = [table.title.partition(":")[0] for table in all_tables(report)]
    assert titles[:2] == ["iid/error, primary outcome", "iid/error, seed by seed"]
    assert titles[2:5] == ["error (K)", "shift", "accuracy"]
    assert screen_table(report).headers == ("arm", "seeds", "iid/error", "difference in iid/error", "verdict")
    assert screen_table(report).rows[-1] == ("floor (as declared)", "", "5.000", "", "")
    text = write_report_folder(report, tmp_path / "report").read_text()
    assert "- shift is of the whole run." in text
    assert "![iid/shift](values-1.png)" in text


def test_csv_has_the_documented_columns() -> None:
    header, *rows = csv.reader(io.StringIO(as_csv(build_report())))
    assert header == [
        *("arm", "setting", "metric", "n", "mean", "ci_low", "ci_high", "failed", "floor", "published"),
        *("published_source", "published_std", "median", "published_median", "published_median_std"),
        *("difference_n", "difference_mean", "difference_ci_low", "difference_ci_high"),
        *("role", "p", "p_sign_flips", "verdict", "record_ids"),
    ]
    assert {len(row) for row in rows} == {len(header)}
