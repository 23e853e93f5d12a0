"""Reports of records whose numbers are known in advance."""

import csv
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from orchestrator.plan.types import ConfirmPlan, Plan
from orchestrator.report.figures.interval_figures import metric_panels, outcome_panels
from orchestrator.report.figures.style import render_panel
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.tracked_values import arm_metrics
from orchestrator.report.results.types import Report
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.tables import all_tables, screen_table
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from tests.orchestrator.report.comparisons.test_answers import SEEDS, make_study_plan, make_study_record
from tests.orchestrator.report.studies import with_metrics
from trainables.metrics import Metric
from trainables.protocol import Measurement

BASELINE_ACCURACY = {1: 0.50, 2: 0.60, 3: 0.70}
OTHER_ACCURACY = {1: 0.40, 2: 0.52, 3: 0.58}


def build_plan() -> Plan:
    row = {"arm": "other", "split": "iid", "metric": "accuracy", "value": 0.75, "source": "a paper, Table 1"}
    return make_study_plan(
        ("baseline", "other"),
        confirm=ConfirmPlan(1, (1, 2, 3), ("iid",)),
        answer=None,
        metrics=(),
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
    return replace(
        make_study_record(name, SEEDS[0]),
        trial_id=f"{name}-{seed}",
        number=seed,
        seed=seed,
        assignment={"train.lr": 0.001},
        outcome=outcome,
        last=Measurement(10, 2.0, metrics) if outcome is OutcomeKind.FINISHED else None,
    )


def build_records() -> list[Record]:
    baseline_records = [build_record("baseline", seed, value) for seed, value in BASELINE_ACCURACY.items()]
    return baseline_records + [build_record("other", seed, value) for seed, value in OTHER_ACCURACY.items()]


def build_report(trial_records: list[Record] | None = None) -> Report:
    return summarise(build_plan(), build_records() if trial_records is None else trial_records)


def test_means_and_paired_differences() -> None:
    report = build_report()
    cell, effect = report.cell("baseline", "iid/accuracy"), report.effect("other", "iid/accuracy")
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
    assert (cell.estimate.low, cell.estimate.high) == (0.0, 1.0)
    assert (effect.estimate.low, effect.estimate.high) == (-1.0, 1.0)
    assert depth.estimate.low == 0.0
    assert depth.estimate.high == pytest.approx(4.5 + 12.706204736 / 2)  # t table: 97.5%, 1 degree of freedom
    assert (depth_effect.estimate.mean, depth_effect.estimate.low, depth_effect.p) == (0.0, None, None)


def test_depth_interval_is_clipped_to_the_bound_of_the_arm() -> None:
    depths = {"baseline": (6.0, (5.9, 0.5)), "other": (8.0, (7.9, 7.8))}

    def record_with_depth(arm: str, seed: int) -> Record:
        record, (bound, values) = build_record(arm, seed, 0.5), depths[arm]
        return with_metrics(record, {"iid/depth": values[seed - 1], "iid/depth_bound": bound})

    report = build_report([record_with_depth(arm, seed) for arm in depths for seed in (1, 2)])
    cell, effect = report.cell("other", "iid/depth"), report.effect("other", "iid/depth")
    assert cell.estimate.low == pytest.approx(7.85 - 12.706204736 * 0.05)  # t table: 97.5%, 1 degree
    assert cell.estimate.high == 8.0
    assert (effect.estimate.low, effect.estimate.high) == (-6.0, 8.0)


def test_params_with_the_same_seed_are_averaged() -> None:
    """Two best params on three seeds give three pairs, not six."""
    second_rank = [
        with_metrics(
            replace(record, trial_id=f"{record.trial_id}-second", rank=1),
            {"iid/accuracy": record.last.metrics["iid/accuracy"] + 0.1},
        )
        for record in build_records()
    ]
    report = build_report([*build_records(), *second_rank])
    cell, effect = report.cell("baseline", "iid/accuracy"), report.effect("other", "iid/accuracy")
    assert (cell.estimate.n, effect.estimate.n, len(cell.record_ids), len(effect.pairs)) == (3, 3, 6, 6)
    assert cell.estimate.mean == pytest.approx(0.65)
    assert effect.p_sign_flips == pytest.approx(2 / 2**3)


def test_report_of_an_unfinished_sweep_is_marked(tmp_path: Path) -> None:
    planned_trials = tuple(
        PlannedTrial(record.trial_id, record.arm, record.phase, record.number, record.seed, 0)
        for record in build_records()
    )
    report = summarise(replace(build_plan(), trials=planned_trials), build_records()[:-2])
    assert report.left == 2
    assert "**2 trials " in write_report_folder(report, tmp_path / "report").read_text()


@pytest.mark.parametrize("exploratory", [False, True])
def test_legend_with_every_kind_of_verdict_fits_the_figure(
    monkeypatch: pytest.MonkeyPatch, exploratory: bool
) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    base_report = build_report()
    effect = base_report.effect("other", "iid/accuracy")
    estimate = replace(effect.estimate, low=-1.0, high=0.0)
    verdicts = tuple(
        replace(
            base_report.verdicts[0],
            kind=kind,
            difference=estimate,
            exploratory=exploratory and kind != "undecided",
        )
        for kind in ("better", "worse", "undecided")
    )
    report = replace(base_report, verdicts=verdicts)
    render_panel(next(panel for panel in outcome_panels(report) if panel.name == "difference-1"), "png")
    (figure,) = figures
    figure.draw_without_rendering()
    extent = figure.axes[0].get_legend().get_window_extent()
    assert extent.y0 > 0
    assert extent.x1 <= figure.bbox.x1


def test_report_does_not_depend_on_the_order_of_records() -> None:
    assert summarise(build_plan(), reversed(build_records())) == build_report()


def test_failed_trials_have_no_value() -> None:
    trial_records = [*build_records()[:-1], build_record("other", 3, 0.0, OutcomeKind.DIVERGED)]
    cell = build_report(trial_records).cell("other", "iid/accuracy")
    depth = build_report(trial_records).cell("other", "iid/depth")
    assert cell.estimate.mean == pytest.approx((0.40 + 0.52) / 2)
    assert (cell.failed, cell.estimate.n, depth.estimate.n) == (1, 2, 2)
    assert cell.failures == ((3, "diverged"),)


def test_effect_pairs_only_shared_seeds() -> None:
    effect = build_report(build_records()[1:]).effect("other", "iid/accuracy")
    assert effect.pairs == (("other-2", "baseline-2"), ("other-3", "baseline-3"))


def test_reevaluated_checkpoints_have_separate_rows() -> None:
    overrides = {"model.halt.threshold": 0.5}
    reevaluations = [
        replace(
            build_record("other", seed, value), phase="posthoc", overrides=overrides, trial_id=f"again-{seed}"
        )
        for seed, value in OTHER_ACCURACY.items()
    ]
    report = summarise(replace(build_plan(), posthoc=(overrides,)), [*build_records(), *reevaluations])
    assert report.cells == build_report().cells
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    assert [row["record_ids"] for row in rows if row["setting"] and row["metric"] == "iid/accuracy"] == [
        "again-1 again-2 again-3"
    ]


def test_csv_has_the_documented_columns_and_the_numbers_of_the_report() -> None:
    reader = csv.DictReader(io.StringIO(as_csv(build_report())))
    rows = {(row["arm"], row["metric"]): row for row in reader}
    assert reader.fieldnames == [
        *("arm", "setting", "metric", "n", "mean", "ci_low", "ci_high", "failed", "floor", "published"),
        *("published_source", "published_std", "median", "published_median", "published_median_std"),
        *("difference_n", "difference_mean", "difference_ci_low", "difference_ci_high"),
        *("role", "p", "p_sign_flips", "verdict", "record_ids"),
    ]
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


def test_single_seed_has_no_interval_and_no_p_value() -> None:
    report = build_report([build_record("baseline", 1, 0.5), build_record("other", 1, 0.4)])
    effect = report.effect("other", "iid/accuracy")
    assert (effect.estimate.low, effect.p, effect.p_sign_flips) == (None, None, 1.0)
    assert screen_table(report).rows[1][2] == "0.400"


def test_report_without_results_draws_no_figure() -> None:
    empty_report = build_report([])
    assert not list(metric_panels(empty_report))
    assert all_tables(empty_report)[-1].rows


def test_concurrent_writers_leave_one_complete_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("orchestrator.report.writers.write.outcome_panels", lambda _: [])
    monkeypatch.setattr("orchestrator.report.writers.write.metric_panels", lambda _: [])
    monkeypatch.setattr("orchestrator.report.writers.write.html_page", lambda *_: "")
    report = build_report()
    with ThreadPoolExecutor(4) as executor:
        paths = list(executor.map(lambda _: write_report_folder(report, tmp_path / "report"), range(20)))
    assert set(paths) == {tmp_path / "report" / "report.md"}
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_report_uses_the_declarations_of_a_custom_trainable(tmp_path: Path) -> None:
    """Metric names of the built-in trainable need a declaration in a custom trainable."""
    declared_metrics = (
        Metric("error", "min", "K", low=0.0, floor=5.0),
        Metric("shift", "min", note="shift is of the whole run.", shown=("table", "figure")),
    )
    metrics = {"iid/shift": 2.0, "iid/accuracy": 51.0}
    trial_records = [
        replace(record, last=Measurement(1, 1.0, {"iid/error": 0.1 * record.seed, **metrics}))
        for record in build_records()
    ]
    plan = replace(build_plan(), trainable="mine:train", metrics=declared_metrics, published=())
    report = summarise(plan, trial_records)
    assert report.metrics == ("iid/error", "iid/shift", "iid/accuracy")
    assert report.headlines == ("error",)
    assert report.floors == {"iid/error": 5.0}
    cells = {(cell.arm, cell.metric): cell.estimate for cell in report.cells}
    assert cells["other", "iid/error"].mean == pytest.approx(0.2)
    assert cells["other", "iid/error"].low == 0.0
    text = write_report_folder(report, tmp_path / "report").read_text()
    assert "- shift is of the whole run." in text
