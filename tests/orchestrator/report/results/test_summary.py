"""A report computed from records whose numbers are known beforehand."""

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
from orchestrator.report.results.summary import arm_metrics, summarise
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

BASE = {1: 0.50, 2: 0.60, 3: 0.70}
OTHER = {1: 0.40, 2: 0.52, 3: 0.58}


def arm(name: str) -> Arm:
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


def plan() -> Plan:
    row = {"arm": "other", "split": "iid", "metric": "accuracy", "value": 0.75, "source": "a paper, Table 1"}
    return Plan(
        name="study",
        question="Does it?",
        spec_digest="0",
        arms=(arm("baseline"), arm("other")),
        search=None,
        confirm=ConfirmPlan(best=1, seeds=(1, 2, 3), splits=("iid",)),
        posthoc=(),
        resources=Resources(),
        wall_clock_hours=None,
        trials=(),
        published=(row,),
    )


def record(
    name: str, seed: int, accuracy: float, outcome: OutcomeKind | None = OutcomeKind.FINISHED
) -> Record:
    metrics = {
        "iid/accuracy": accuracy,
        "iid/depth": 3.0 + seed,
        "iid/floor": 0.2,
        "valid/accuracy": accuracy,
    }
    measured = Measurement(step=10, seconds=2.0, metrics=metrics)
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
        last=measured if outcome is OutcomeKind.FINISHED else None,
        best=None,
        started_at=0.0,
        ended_at=1.0,
        attempts=1,
    )


def records() -> list[Record]:
    ours = [record("baseline", seed, value) for seed, value in BASE.items()]
    return ours + [record("other", seed, value) for seed, value in OTHER.items()]


def report(extra: list[Record] | None = None) -> Report:
    return summarise(plan(), records() if extra is None else extra)


def test_means_and_paired_differences() -> None:
    found = report()
    cell, effect = found.cell("baseline", "iid/accuracy"), found.effect("other", "iid/accuracy")
    assert cell is not None
    assert effect is not None
    assert cell.estimate.mean == pytest.approx(0.6)
    assert cell.record_ids == ("baseline-1", "baseline-2", "baseline-3")
    assert effect.estimate.mean == pytest.approx(-0.1)
    assert effect.pairs[1] == ("other-2", "baseline-2")
    assert effect.p_sign_flips == pytest.approx(2 / 2**3)


def test_intervals_end_where_quantities_do() -> None:
    """Two seeds that differ a lot: Student's t alone would reach from -2.8 to 3.8."""
    accuracies = {"baseline": (1.0, 0.5), "other": (0.0, 1.0)}
    found = report([record(arm, seed, pair[seed - 1]) for arm, pair in accuracies.items() for seed in (1, 2)])
    cell, depth = found.cell("other", "iid/accuracy"), found.cell("other", "iid/depth")
    effect, same = found.effect("other", "iid/accuracy"), found.effect("other", "iid/depth")
    assert cell is not None
    assert depth is not None
    assert effect is not None
    assert same is not None
    assert (cell.estimate.low, cell.estimate.high) == (0.0, 1.0)
    assert (effect.estimate.low, effect.estimate.high) == (-1.0, 1.0)
    assert depth.estimate.low == 0.0
    assert depth.estimate.high == pytest.approx(4.5 + 12.706204736 / 2)  # t table: 97.5%, 1 degree of freedom
    assert (same.estimate.mean, same.estimate.low, same.p) == (0.0, None, None)


@pytest.mark.parametrize("expected", [True, False])
def test_depth_ends_where_nothing_would_halt(expected: bool) -> None:
    """The bound is each arm's own; where one trial does not tell it, as in earlier versions, none is."""
    depths = {"baseline": (6.0, (5.9, 0.5)), "other": (8.0, (7.9, 7.8))}

    def halted(arm: str, seed: int) -> Record:
        made, (bound, found) = record(arm, seed, 0.5), depths[arm]
        assert made.last is not None
        metrics = {**made.last.metrics, "iid/depth": found[seed - 1]}
        if expected or seed > 1:
            metrics["iid/depth_bound"] = bound
        return replace(made, last=replace(made.last, metrics=metrics))

    found = report([halted(arm, seed) for arm in depths for seed in (1, 2)])
    cell, effect = found.cell("other", "iid/depth"), found.effect("other", "iid/depth")
    assert cell is not None
    assert effect is not None
    t = 12.706204736  # t table: 97.5%, 1 degree of freedom
    assert cell.estimate.low == pytest.approx(7.85 - t * 0.05)
    assert cell.estimate.high == pytest.approx(8.0 if expected else 7.85 + t * 0.05)
    ends = (effect.estimate.low, effect.estimate.high)
    assert ends == pytest.approx((-6.0, 8.0) if expected else (4.65 - t * 2.65, 4.65 + t * 2.65))


def test_assignments_of_one_seed_are_no_sample_of_their_own() -> None:
    """Two of the best are confirmed on three seeds: that makes three pairs, not six."""
    second = [
        replace(record, trial_id=f"{record.trial_id}-second", rank=1, last=shifted(record, by=0.1))
        for record in records()
    ]
    found = report([*records(), *second])
    cell, effect = found.cell("baseline", "iid/accuracy"), found.effect("other", "iid/accuracy")
    assert cell is not None
    assert effect is not None
    assert (cell.estimate.n, effect.estimate.n, len(cell.record_ids), len(effect.pairs)) == (3, 3, 6, 6)
    assert cell.estimate.mean == pytest.approx(0.65)
    assert effect.p_sign_flips == pytest.approx(2 / 2**3)


def shifted(each: Record, by: float) -> Measurement:
    assert each.last is not None
    metrics = {name: value + by * (name == "iid/accuracy") for name, value in each.last.metrics.items()}
    return replace(each.last, metrics=metrics)


def test_report_of_an_unfinished_sweep_is_marked(tmp_path: Path) -> None:
    planned = tuple(
        PlannedTrial(record.trial_id, record.arm, record.phase, record.number, record.seed, 0)
        for record in records()
    )
    asked = replace(plan(), trials=planned)
    done, partly = summarise(asked, records()), summarise(asked, records()[:-2])
    assert (done.left, partly.left) == (0, 2)
    assert "not ended" not in write_report_folder(done, tmp_path / "done").read_text()
    assert "**2 trials have not ended: every number is of those that have.**" in (
        write_report_folder(partly, tmp_path / "partly").read_text()
    )


def test_published_values_without_a_cell_stand_beside_every_cell_of_a_grid(tmp_path: Path) -> None:
    """As they did in plans from before they named their cell."""
    named = {"baseline": "baseline[model.width=8]", "other": "other[model.width=8]"}
    asked = replace(
        plan(), arms=tuple(replace(arm, name=named[arm.name], reference="") for arm in plan().arms)
    )
    found = summarise(asked, [replace(record, arm=named[record.arm]) for record in records()])
    cell = found.cell("other[model.width=8]", "iid/accuracy")
    assert cell is not None
    assert cell.published == 0.75
    text = write_report_folder(found, tmp_path / "report").read_text()
    assert "- Published values of other[model.width=8]: a paper, Table 1" in text.replace("\\", "")


def test_a_key_with_every_kind_of_verdict_is_on_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    made = report()
    effect = made.effect("other", "iid/accuracy")
    assert effect is not None
    verdicts = [
        replace(made.verdicts[0], kind=kind, difference=replace(effect.estimate, low=low, high=high))
        for kind, low, high in (("better", -1.0, 0.0), ("worse", -1.0, 0.0), ("undecided", -1.0, 0.0))
    ]
    verdicts.append(replace(verdicts[-1], difference=replace(effect.estimate, low=None, high=None)))
    assert made.answer is not None
    shown = replace(made, verdicts=tuple(verdicts), answer=replace(made.answer, margin=0.01))
    render(
        next(
            outcome_panel for outcome_panel in outcome_panels(shown) if outcome_panel.name == "difference-1"
        ),
        "png",
    )
    (figure,) = drawn
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert len(legend.get_texts()) == 6
    assert legend.get_window_extent().y0 > 0


def test_order_of_records_does_not_matter() -> None:
    assert summarise(plan(), reversed(records())) == report()


def test_failed_trials_have_no_value() -> None:
    failing = [*records()[:-1], record("other", 3, 0.0, OutcomeKind.DIVERGED)]
    cell = report(failing).cell("other", "iid/accuracy")
    depth = report(failing).cell("other", "iid/depth")
    assert cell is not None
    assert depth is not None
    assert cell.estimate.mean == pytest.approx((0.40 + 0.52) / 2)
    assert (cell.failed, cell.estimate.n, depth.estimate.n) == (1, 2, 2)
    assert cell.failures == ((3, "diverged"),)


def test_unfinished_trials_are_left_out_but_counted() -> None:
    found = report([*records()[:-1], record("other", 3, 0.0, None)])
    cell = found.cell("other", "iid/accuracy")
    assert cell is not None
    assert cell.estimate.n == 2
    assert found.tallies[1].outcomes == {"confirm": {"finished": 2, "open": 1}}


def test_pairs_only_shared_seeds() -> None:
    effect = report(records()[1:]).effect("other", "iid/accuracy")
    assert effect is not None
    assert effect.pairs == (("other-2", "baseline-2"), ("other-3", "baseline-3"))


def test_metrics_of_written_answers() -> None:
    more = {"iid/exact_match": 0.4, "iid/bleu": 27.0, "iid/answer_length": 9.0, "iid/exact_match_floor": 0.1}
    more["iid/accuracy_whole"] = 0.3
    records = []
    for each in (record(name, seed, 0.5) for name in ("baseline", "other") for seed in (1, 2, 3)):
        assert each.last is not None
        metrics = {**each.last.metrics, **more}
        records.append(replace(each, last=replace(each.last, metrics=metrics)))
    overrides = {"train.beam_size": 4}
    reread = replace(records[0], trial_id="again", phase="posthoc", overrides=overrides)
    records[-1] = replace(records[-1], outcome=OutcomeKind.DIVERGED)
    found = summarise(replace(plan(), posthoc=(overrides,)), [*records, reread])
    assert found.metrics[:3] == ("iid/exact_match", "iid/bleu", "iid/accuracy")
    assert not any("answer_length" in metric or "floor" in metric for metric in found.metrics)
    cells = {(cell.arm, cell.metric): cell for cell in found.cells}
    assert cells["other", "iid/exact_match"].estimate.mean == pytest.approx(0.4)
    assert cells["other", "iid/accuracy_whole"].estimate.mean == pytest.approx(0.3)
    assert cells["other", "iid/bleu"].estimate.n == 2
    shown = screen_table(found)
    assert "iid/exact_match" in shown.headers
    assert "iid/accuracy" not in shown.headers
    assert shown.rows[-1][:3] == ("floor (most common answer)", "", "0.100")
    (written,) = [
        grid
        for grid in all_tables(found)
        if grid.title.startswith("exact_match (") and "): mean" in grid.title
    ]
    assert written.rows[2] == ("floor (most common answer)", "0.100")
    floors = {row["metric"]: row["floor"] for row in csv.DictReader(io.StringIO(as_csv(found)))}
    assert floors["iid/exact_match"] == "0.1"
    assert floors["iid/bleu"] == ""
    (again,) = [grid for grid in all_tables(found) if grid.title.startswith("re-evaluated checkpoints")]
    assert {"iid/bleu", "iid/exact_match", "iid/depth"} < set(again.headers)
    assert "iid/loss" not in again.headers


def test_headline_shows_the_floor() -> None:
    grid = screen_table(report())
    assert grid.headers == (
        *("arm", "seeds", "iid/accuracy", "iid/depth", "difference in iid/accuracy", "verdict"),
    )
    assert grid.rows[-1] == ("floor (most common label)", "", "0.200", "", "", "")
    assert grid.rows[0][:2] == ("baseline", "3")
    assert grid.rows[1][4].startswith("-0.100 [")
    assert grid.rows[1][5] == "worse"


def test_checkpoints_read_again_have_a_table_of_their_own() -> None:
    overrides = {"model.halt.threshold": 0.5}
    again = [
        replace(record("other", seed, value), phase="posthoc", overrides=overrides, trial_id=f"again-{seed}")
        for seed, value in OTHER.items()
    ]
    found = summarise(replace(plan(), posthoc=(overrides,)), [*records(), *again])
    assert found.cells == report().cells
    (grid,) = [grid for grid in all_tables(found) if "re-evaluated" in grid.title]
    assert grid.rows[0][:3] == ("other", "model.halt.threshold=0.5", "0.500 [0.272, 0.728] (3)")
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [row["record_ids"] for row in rows if row["setting"] and row["metric"] == "iid/accuracy"] == [
        "again-1 again-2 again-3"
    ]


def test_csv_agrees_with_the_report() -> None:
    rows = {(row["arm"], row["metric"]): row for row in csv.DictReader(io.StringIO(as_csv(report())))}
    row = rows["other", "iid/accuracy"]
    assert float(row["mean"]) == pytest.approx(0.5)
    assert (row["n"], row["floor"], row["published"]) == ("3", "0.2", "0.75")
    assert row["record_ids"] == "other-1 other-2 other-3"
    assert rows["baseline", "iid/accuracy"]["difference_mean"] == ""


def test_tracked_metrics_of_an_arm() -> None:
    tracked = arm_metrics(report())
    assert tracked["other"]["iid/accuracy"] == pytest.approx(0.5)
    assert tracked["other"]["iid/accuracy.n"] == 3
    assert tracked["other"]["iid/accuracy.published"] == 0.75
    assert tracked["other"]["iid/accuracy.diff"] == pytest.approx(-0.1)
    assert "iid/accuracy.diff" not in tracked["baseline"]


def test_written_whole_and_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    first = write_report_folder(report(), folder).read_text()
    assert write_report_folder(report(), folder).read_text() == first
    names = {path.name for path in folder.iterdir()}
    drawn = {f"{name}.png" for name in ("outcome-1", "difference-1", "values-1", "values-2")}
    assert names == {"report.md", "report.html", "report.csv", "report.json", "manifest.json", *drawn}
    assert not list(tmp_path.glob(".report*"))
    assert "](outcome-1.png)" in first


def test_a_single_seed_has_no_interval_and_no_evidence(tmp_path: Path) -> None:
    alone = report([record("baseline", 1, 0.5), record("other", 1, 0.4)])
    effect = alone.effect("other", "iid/accuracy")
    assert effect is not None
    assert (effect.estimate.low, effect.p, effect.p_sign_flips) == (None, None, 1.0)
    assert screen_table(alone).rows[1][2] == "0.400"
    assert write_report_folder(alone, tmp_path / "report").exists()


def test_nothing_confirmed_draws_nothing() -> None:
    empty = report([])
    assert not list(metric_panels(empty))
    assert not [
        outcome_panel for outcome_panel in outcome_panels(empty) if outcome_panel.name.startswith("outcome")
    ]
    assert all_tables(empty)[-1].rows[0][1] == "nothing ran"


def test_concurrent_writers_leave_one_complete_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("orchestrator.report.writers.write.outcome_panels", lambda _: [])
    monkeypatch.setattr("orchestrator.report.writers.write.metric_panels", lambda _: [])
    monkeypatch.setattr("orchestrator.report.writers.write.html_page", lambda *_: "")
    made = report()
    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(lambda _: write_report_folder(made, tmp_path / "report"), range(80)))
    assert set(places) == {tmp_path / "report" / "report.md"}
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "report.csv",
        "report.json",
        "report.html",
        "report.md",
        "manifest.json",
    }


def test_a_plan_from_before_metrics_were_declared_gives_the_same_report() -> None:
    asked = replace(plan(), metrics=declared_metrics())
    assert summarise(asked, records()) == report()
    back = from_json(to_json(asked))
    assert back.metrics == asked.metrics
    gone = replace(
        plan(), arms=tuple(replace(arm, settings={"task": {"name": "gone"}}) for arm in asked.arms)
    )
    assert summarise(gone, records()).cells == report().cells


def test_declarations_of_a_custom_trainable_are_used(tmp_path: Path) -> None:
    """Names that the built-in trainable measures too mean nothing here unless they are declared."""
    declared = (
        Metric("error", "min", "K", low=0.0, floor=5.0),
        Metric("shift", "min", note="shift is of the whole run.", shown=("table", "figure")),
    )
    values = [
        replace(
            record,
            outcome=OutcomeKind.DIVERGED if record.trial_id == "other-3" else record.outcome,
            last=Measurement(
                1, 1.0, {"iid/error": 0.1 * record.seed, "iid/shift": 2.0, "iid/accuracy": 51.0}
            ),
        )
        for record in records()
    ]
    asked = replace(plan(), trainable="mine:train", metrics=declared, published=())
    found = summarise(asked, values)
    assert found.metrics == ("iid/error", "iid/shift", "iid/accuracy")
    assert found.headlines == ("error",)
    assert found.floors == {"iid/error": 5.0}
    cells = {(cell.arm, cell.metric): cell.estimate for cell in found.cells}
    assert cells["other", "iid/error"].mean == pytest.approx((0.1 + 0.2) / 2)
    assert cells["other", "iid/error"].low == 0.0
    assert cells["other", "iid/accuracy"].n == 2
    titles = [grid.title.partition(":")[0] for grid in all_tables(found)]
    assert titles[:2] == ["iid/error, primary outcome", "iid/error, seed by seed"]
    assert titles[2:5] == ["error (K)", "shift", "accuracy"]
    assert screen_table(found).headers == ("arm", "seeds", "iid/error", "difference in iid/error", "verdict")
    assert screen_table(found).rows[-1] == ("floor (as declared)", "", "5.000", "", "")
    text = write_report_folder(found, tmp_path / "report").read_text()
    assert "- shift is of the whole run." in text
    assert "![iid/shift](values-1.png)" in text


def test_csv_columns() -> None:
    header, *rows = csv.reader(io.StringIO(as_csv(report())))
    assert header == [
        *("arm", "setting", "metric", "n", "mean", "ci_low", "ci_high", "failed", "floor", "published"),
        *("published_source", "published_std", "median", "published_median", "published_median_std"),
        *("difference_n", "difference_mean", "difference_ci_low", "difference_ci_high"),
        *("role", "p", "p_sign_flips", "verdict", "record_ids"),
    ]
    assert {len(row) for row in rows} == {len(header)}
