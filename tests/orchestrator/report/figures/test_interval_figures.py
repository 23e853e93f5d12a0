"""The marks of every figure agree with the records; `drawing` reads the marks."""

import statistics
from dataclasses import replace

import pytest
from scipy import stats

from orchestrator.report.figures.interval_figures import SEEDS_OFFSET
from orchestrator.report.figures.style import BLUE, INK, MUTED, ORANGE, PURPLE
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.drawing import Whisker, drawings
from tests.orchestrator.report.studies import STEPS, THRESHOLD, make_study

OUTCOME = "near-iid/accuracy"
PUBLISHED_ROW = {"arm": "arm-1", "split": "near-iid", "metric": "accuracy", "value": 0.7, "source": "a paper"}


@pytest.fixture(scope="module")
def figure_study():
    """Return three arms with one crashed seed and one published value."""
    base_study = make_study(
        3, outcome_of=lambda arm, seed: OutcomeKind.CRASHED if (arm, seed) == (2, 1) else OutcomeKind.FINISHED
    )
    return replace(base_study, plan=replace(base_study.plan, published=(PUBLISHED_ROW,)))


@pytest.fixture(scope="module")
def figures(figure_study):
    return drawings(figure_study)


def confirmed_values(figure_study, arm, metric=OUTCOME, **overrides):
    """Return the values of finished trials of an arm by seed, as trained or re-evaluated."""
    phase = "posthoc" if overrides else "confirm"
    return {
        record.seed: record.last.metrics[metric]
        for record in figure_study.records
        if (record.arm, record.phase) == (arm, phase)
        and record.outcome is OutcomeKind.FINISHED
        and (not overrides or record.overrides == overrides)
    }


def search_trials(figure_study, arm):
    """Return the search trials of an arm in the order of their ends."""
    records = [record for record in figure_study.records if (record.arm, record.phase) == (arm, "search")]
    return sorted(records, key=lambda record: (record.ended_at, record.number))


def valid_accuracy(record):
    return record.last.metrics["valid/accuracy"]


def finished_trials(trials):
    return [trial for trial in trials if trial.outcome is OutcomeKind.FINISHED]


def device_hours(records, cpus=2.0):
    return sum(record.last.seconds for record in records) * cpus / 3600


def t_interval(values, level=0.95):
    """Return the t interval of a share, clipped to 0 and 1."""
    half_width = stats.t.ppf((1 + level) / 2, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return max(0.0, mean - half_width), min(1.0, mean + half_width)


def test_outcome_figure_has_one_row_per_arm(figure_study, figures):
    forest = figures["outcome-1"]
    for row, arm in enumerate(arm.name for arm in figure_study.plan.arms):
        values = list(confirmed_values(figure_study, arm).values())
        mark = forest.whiskers[row]
        assert isinstance(mark, Whisker)
        assert mark.position == pytest.approx((statistics.fmean(values), row))
        assert (mark.low, mark.high) == pytest.approx(t_interval(values))
        seeds = [x for x, y in forest.points("o", colour=MUTED) if y == row + SEEDS_OFFSET]
        assert seeds == pytest.approx(values)
    assert len(confirmed_values(figure_study, "arm-2")) == 4, "a seed that crashed has no point"
    assert forest.points("D", colour=PURPLE) == [(0.7, 1)]


def test_differences_are_paired_by_seed_with_the_interval_of_the_verdict(figure_study, figures):
    panel = figures["difference-1"]
    baseline = confirmed_values(figure_study, "arm-0")
    verdicts = {verdict.arm: verdict for verdict in figure_study.report().verdicts}
    for row, arm in enumerate(("arm-1", "arm-2")):
        differences = [value - baseline[seed] for seed, value in confirmed_values(figure_study, arm).items()]
        mark = panel.whiskers[row]
        assert mark.position == pytest.approx((statistics.fmean(differences), row))
        assert (mark.low, mark.high) == pytest.approx(
            (verdicts[arm].difference.low, verdicts[arm].difference.high)
        )
        assert [x for x, y in panel.points("o") if y == row + SEEDS_OFFSET] == pytest.approx(differences)
    assert len(panel.points("s", colour=ORANGE)) == 1, "arm-1 is worse, and a failed seed leaves arm-2 open"


def test_best_so_far_is_drawn_against_device_hours(figure_study, figures):
    for position, arm in enumerate((arm.name for arm in figure_study.plan.arms), start=1):
        panel, trials = figures[f"search-{position}-hours"], search_trials(figure_study, arm)
        best_points = [
            (device_hours(trials[:count]), max(map(valid_accuracy, finished_trials(trials[:count]))))
            for count in range(1, len(trials) + 1)
            if finished_trials(trials[:count])
        ]
        (line,) = [line for line in panel.lines("-", BLUE) if len(line) > 1]
        assert line == [pytest.approx(point) for point in best_points]


def test_cost_figure_shows_trained_and_reevaluated_points(figure_study, figures):
    overview = figures["cost-1"]
    for index, arm in enumerate(arm.name for arm in figure_study.plan.arms):
        trained_point = tuple(
            statistics.fmean(confirmed_values(figure_study, arm, f"near-iid/{name}").values())
            for name in ("depth", "accuracy")
        )
        assert overview.texts()[str(index + 1)] == pytest.approx(trained_point)
        panel = figures[f"cost-1-{index + 1}"]
        assert panel.points("s", colour=INK) == [pytest.approx(trained_point)]
        reevaluated_points = [
            tuple(
                statistics.fmean(
                    confirmed_values(figure_study, arm, f"near-iid/{name}", **{THRESHOLD: value}).values()
                )
                for name in ("depth", "accuracy")
            )
            for value in (0.3, 0.6, 0.9)
        ]
        assert panel.points("o", colour=BLUE) == [
            pytest.approx(point) for point in sorted([trained_point, *reevaluated_points])
        ]


def test_learning_curves_show_mean_and_range_over_finished_seeds(figure_study, figures):
    for position, arm in enumerate((arm.name for arm in figure_study.plan.arms), start=1):
        confirm_records = [
            record for record in figure_study.records if (record.arm, record.phase) == (arm, "confirm")
        ]
        columns = [
            [
                measurement.metrics["valid/accuracy"]
                for trial in finished_trials(confirm_records)
                for measurement in figure_study.measured[trial.trial_id]
                if measurement.step == step
            ]
            for step in STEPS
        ]
        panel = figures[f"curve-1-{position}"]
        (line,), (band,) = panel.lines("-", BLUE), panel.bands()
        assert line == [
            pytest.approx((step, statistics.fmean(values)))
            for step, values in zip(STEPS, columns, strict=True)
        ]
        assert band == {
            step: pytest.approx((min(values), max(values)))
            for step, values in zip(STEPS, columns, strict=True)
        }
    (failed_record,) = [
        record
        for record in figure_study.records
        if (record.arm, record.phase, record.seed) == ("arm-2", "confirm", 102)
    ]
    failed_curve = [
        (measurement.step, measurement.metrics["valid/accuracy"])
        for measurement in figure_study.measured[failed_record.trial_id]
    ]
    assert figures["curve-1-3"].lines("-", ORANGE) == [[pytest.approx(point) for point in failed_curve]]
