"""The marks of every figure agree with the records; `drawing` reads the marks."""

import random
import re
import statistics
from dataclasses import replace
from itertools import pairwise

import pytest
from scipy import stats

from orchestrator.report.figures.interval_figures import LINE_ENDS, NAMED, SEEDS
from orchestrator.report.figures.style import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE
from orchestrator.report.halting.tally_figures import SHADES
from orchestrator.report.results.number_formats import format_interval
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.drawing import Whisker, drawings
from tests.orchestrator.report.halting.test_halting_maps import examples_by_arm, make_example, with_examples
from tests.orchestrator.report.studies import SPACE, STEPS, THRESHOLD, make_study

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
    return sorted(records, key=lambda each: (each.ended_at, each.number))


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
        seeds = [x for x, y in forest.points("o", colour=MUTED) if y == row + SEEDS]
        assert seeds == pytest.approx(values)
        assert forest.texts()[arm] == (0.0, row + NAMED)
    assert len(confirmed_values(figure_study, "arm-2")) == 4, "a seed that crashed has no point"
    assert forest.points("D", colour=PURPLE) == [(0.7, 1)]
    assert forest.lines(":", INK) == line_between_names(0.1, 3), "the floor that METRICS declares"


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
        assert [x for x, y in panel.points("o") if y == row + SEEDS] == pytest.approx(differences)
    assert panel.lines("-", INK) == line_between_names(0.0, 2)
    bands = [{row + end: (-0.01, 0.01) for end in LINE_ENDS} for row in range(2)]
    assert panel.vertical_bands() == bands, "the margin of the study"


def line_between_names(value, num_rows):
    """Return the segments of a vertical line that crosses no name of a row."""
    return [[(value, pytest.approx(row + end)) for end in LINE_ENDS] for row in range(num_rows)]


@pytest.mark.parametrize(("arms", "seeds"), [(2, 16), (16, 1)])
def test_numbers_of_arms_are_outside_the_axes(arms, seeds):
    figure_study = make_study(arms, seeds, 0, thresholds=())
    figures, report = drawings(figure_study), figure_study.report()
    difference_texts = {
        row: format_interval(verdict.difference, "+") for row, verdict in enumerate(report.verdicts)
    }
    assert len(difference_texts) == arms - 1
    for name, expected_texts in (
        ("difference-1", difference_texts),
        (
            "outcome-1",
            {row: format_interval(cell.estimate) for row, cell in enumerate(outcome_cells(report))},
        ),
    ):
        texts = figures[name].text_positions()
        for row, expected in expected_texts.items():
            assert [x > 1 for text, (x, y) in texts if (text, y) == (expected, row)] == [True]


def outcome_cells(report):
    return [report.cell(arm, OUTCOME) for arm in report.arms]


def test_single_seed_is_drawn_once():
    figures = drawings(make_study(3, 1, 0, thresholds=()))
    for name, num_rows in (("outcome-1", 3), ("difference-1", 2)):
        assert len(figures[name].points("s")) == num_rows
        assert not figures[name].points("o")
        assert not any("mean" in line or "interval" in line for line in figures[name].legend_labels())
        assert any("only seed" in line for line in figures[name].legend_labels())
    assert figures["outcome-1"].panel.label.startswith(f"{OUTCOME}, one seed: arm-0 0.")


def test_decided_differences_have_the_colours_of_verdicts():
    figure_study = make_study(3, 8, 0, thresholds=())
    kinds = {verdict.arm: verdict.kind for verdict in figure_study.report().verdicts}
    assert kinds == {"arm-1": "worse", "arm-2": "worse"}
    decided_panel, undecided_panel = (
        drawings(figure_study)["difference-1"],
        drawings(make_study(3, 2, 0, thresholds=()))["difference-1"],
    )
    assert len(decided_panel.points("s", colour=ORANGE)) == 2
    assert len(undecided_panel.points("s", colour=MUTED)) == 2
    assert not undecided_panel.points("s", colour=GREEN)


@pytest.mark.parametrize("axis", ["trials", "hours"])
def test_best_so_far_is_drawn_against_trials_and_device_hours(figure_study, figures, axis):
    for position, arm in enumerate((arm.name for arm in figure_study.plan.arms), start=1):
        panel, trials = figures[f"search-{position}-{axis}"], search_trials(figure_study, arm)
        xs = [
            device_hours(trials[:count]) if axis == "hours" else count for count in range(1, len(trials) + 1)
        ]
        best_points = [
            (x, max(map(valid_accuracy, finished_trials(trials[: count + 1]))))
            for count, x in enumerate(xs)
            if finished_trials(trials[: count + 1])
        ]
        (line,) = [line for line in panel.lines("-", BLUE) if len(line) > 1]
        assert line == [pytest.approx(point) for point in best_points]
        ended_points = [
            (x, valid_accuracy(trial))
            for x, trial in zip(xs, trials, strict=True)
            if finished_trials([trial])
        ]
        assert panel.points("o", colour=MUTED) == [pytest.approx(point) for point in ended_points]


@pytest.mark.parametrize("axis", ["trials", "hours"])
def test_expected_best_follows_dodge_et_al(figure_study, figures, axis):
    """The best of k draws is at most the i-th of n values with probability (i / n)^k."""
    trials = search_trials(figure_study, "arm-1")
    values = sorted(map(valid_accuracy, finished_trials(trials)))
    values = [values[0]] * (len(trials) - len(values)) + values  # unfinished trials count as the worst value
    count = len(values)
    panel = figures[f"search-2-{axis}"]
    (line,), (band,) = panel.lines("--", ORANGE), panel.bands()
    assert len(line) >= 5
    unit = device_hours(trials) / count if axis == "hours" else 1.0
    assert [x / unit for x, _ in line] == pytest.approx([round(x / unit) for x, _ in line])
    for x, mean in line:
        probabilities = [(rank / count) ** round(x / unit) for rank in range(count + 1)]
        assert mean == pytest.approx(
            sum(
                value * (probabilities[index + 1] - probabilities[index])
                for index, value in enumerate(values)
            )
        )
        ends = [
            next(
                value
                for value, probability in zip(values, probabilities[1:], strict=True)
                if probability >= quantile
            )
            for quantile in (0.1, 0.9)
        ]
        assert band[x] == pytest.approx(ends)
    assert line[-1][0] == pytest.approx(unit * count)


def test_importance_bars_are_ranked():
    """If layers alone determine the score, their bar is the longest in any order of trials."""
    figure_study = make_study(1, 0, 40, thresholds=())
    layers = {
        record.trial_id: random.Random(record.trial_id).randint(2, 12) for record in figure_study.records
    }
    records = tuple(
        replace(
            record,
            assignment={**record.assignment, "model.layers": layers[record.trial_id]},
            last=replace(record.last, metrics={"valid/accuracy": layers[record.trial_id] / 20}),
        )
        if record.phase == "search"
        else record
        for record in figure_study.records
    )
    panel = drawings(replace(figure_study, records=records))["search-1-importance"]
    widths = panel.bars()
    assert sum(widths) == pytest.approx(1)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.95, "the share of layers must dominate"
    assert min(y for text, (_, y) in panel.texts().items()) == panel.texts()["model.layers"][1]


def test_slices_show_finished_trials_and_range_ends(figure_study, figures):
    trials = finished_trials(search_trials(figure_study, "arm-0"))
    best_trial = max(trials, key=valid_accuracy)
    slices = {
        figure.panel.title: figure for name, figure in figures.items() if name.startswith("search-1-slice")
    }
    assert set(slices) == set(SPACE.paths)
    for path, panel in slices.items():

        def x_of(record, path=path):
            value = record.assignment[path]
            return float(not value) if isinstance(value, bool) else value  # true is the first choice

        assert panel.points("o") == [pytest.approx((x_of(trial), valid_accuracy(trial))) for trial in trials]
        assert panel.points("D", colour=BLUE) == [
            pytest.approx((x_of(best_trial), valid_accuracy(best_trial)))
        ]
    ends = {line[0][0] for line in slices["train.lr"].lines(":", INK)}
    assert ends == {1e-4, 1e-1}


def test_front_and_hypervolume_follow_the_finished_trials():
    objectives = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))
    figure_study = make_study(2, 0, 12, thresholds=(), objectives=objectives)
    figures = drawings(figure_study)
    trials = search_trials(figure_study, "arm-1")
    scores = [
        (valid_accuracy(record), record.last.metrics["valid/depth"]) for record in finished_trials(trials)
    ]

    def pareto_front(points):
        return {
            (depth, value)
            for value, depth in points
            if not any(v >= value and d <= depth and (v, d) != (value, depth) for v, d in points)
        }

    front = figures["search-2-front-1"]
    assert set(front.points("D", colour=BLUE)) == pareto_front(scores)
    printed_points = re.findall(r"([\d.]+), ([\d.]+)", front.panel.label.partition("the front: ")[2])
    assert sorted(printed_points) == sorted(
        (f"{value:.4g}", f"{depth:.4g}") for depth, value in pareto_front(scores)
    )
    assert set(front.points("o", colour=MUTED)) == {(depth, value) for value, depth in scores}
    worst_value, worst_depth = min(value for value, _ in scores), max(depth for _, depth in scores)
    (line,) = figures["search-2-hypervolume"].lines("-", BLUE)
    assert line[-1][0] == len(trials)
    for count, volume in line:
        points = [
            (valid_accuracy(record), record.last.metrics["valid/depth"])
            for record in finished_trials(trials[: int(count)])
        ]
        assert volume == pytest.approx(dominated_area(pareto_front(points), worst_value, worst_depth))


def dominated_area(front, worst_value, worst_depth):
    """Return the area between a Pareto front and the worst point as a sum of strips."""
    depths = sorted({worst_depth, *(depth for depth, _ in front)})
    return sum(
        (right_depth - left_depth)
        * (max(value for depth, value in front if depth <= left_depth) - worst_value)
        for left_depth, right_depth in pairwise(depths)
    )


def test_cost_figure_shows_trained_and_reevaluated_points(figure_study, figures):
    overview = figures["cost-1"]
    for index, arm in enumerate(arm.name for arm in figure_study.plan.arms):
        trained_point = tuple(
            statistics.fmean(confirmed_values(figure_study, arm, f"near-iid/{name}").values())
            for name in ("depth", "accuracy")
        )
        assert overview.texts()[str(index + 1)] == pytest.approx(trained_point)
        assert f"{index + 1}. {arm} {trained_point[0]:.4g}, {trained_point[1]:.4g}" in overview.panel.label
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
        reference = panel.lines("--", MUTED)
        assert reference == ([] if position == 1 else [figures["curve-1-1"].lines("-", BLUE)[0]])
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


def test_depth_figure_shows_mean_and_percentiles(figure_study, figures):
    for arm_number, arm in enumerate((arm.name for arm in figure_study.plan.arms), start=1):
        for column, split in enumerate(("near-iid", "length-20-40")):
            mean, low, high = (
                statistics.fmean(confirmed_values(figure_study, arm, f"{split}/depth{suffix}").values())
                for suffix in ("", "_p10", "_p90")
            )
            mark = figures[f"depth-{arm_number}"].whiskers[column]
            assert mark.position == pytest.approx((column, mean))
            assert (mark.low, mark.high) == pytest.approx((low, high))


def test_depth_by_length_is_drawn_in_the_middle_of_its_bins():
    bins = [[1, 3, 40, 3.0, 2.0, 4.0, 20, 40], [13, 16, 9, 5.0, 4.5, 6.0, 3, 9]]
    examples = [{"kind": "lengths", "split": "near-iid", "bins": bins}]
    panel = drawings(with_examples(make_study(1, seeds=2, trials=0), lambda *_: examples))["tokens-1"]
    assert panel.points("o", colour=BLUE) == [(2.0, 3.0), (14.5, 5.0)]
    assert panel.bands() == [{2.0: (2.0, 4.0), 14.5: (4.5, 6.0)}]


def test_halting_map_shades_open_words():
    figure_study = with_examples(
        make_study(1, seeds=2, trials=0, thresholds=()), examples_by_arm({0: [make_example()]})
    )
    panel = drawings(figure_study)["map-1-1"]
    (example_part,) = make_example()["parts"]
    names = panel.texts()
    (((_, floor), _),) = panel.lines("-", MUTED)
    opacities = {100: 1.0, 80: 1.0, 40: 0.62, 30: 0.62, -1: 0.0}
    for column, (word, running) in enumerate(
        zip(example_part["words"], example_part["running"], strict=True)
    ):
        assert names[word][0] == column + 0.5
        for layer, percent in enumerate(running):
            assert panel.opacity_at((column + 0.5, floor + layer + 0.5)) == opacities[percent], (word, layer)


def test_expert_figure_has_rows_by_class_and_layer():
    mixture = {
        "name": "attention",
        "classes": ["digit", "operator"],
        "uses": [[6, 2, 0], [0, 0, 5]],
        "layers": [[1, [6, 2, 5]], [2, [0, 0, 1]]],
    }
    first_examples = [{"kind": "experts", "examples": 49, "mixtures": [mixture]}]
    second_examples = [
        {**first_examples[0], "mixtures": [{**mixture, "uses": [[1, 1, 2], [0, 5, 5]], "layers": []}]}
    ]
    figures = drawings(
        with_examples(
            make_study(2, seeds=2, trials=0, thresholds=()),
            examples_by_arm({0: first_examples, 1: second_examples}),
        )
    )
    second_cells = {(0, 0): 0.5, (1, 0): 0.5, (2, 0): 1, (1, 1): 1, (2, 1): 1}
    assert figures["experts-2"].cells() == pytest.approx(second_cells)
    assert figures["experts-2"].panel.title.startswith("arm-1, ")
    classes, layers = figures["experts-1"], figures["experts-1-layers"]
    shares = {(0, 0): 0.75, (1, 0): 0.25, (2, 1): 1}
    assert classes.cells() == pytest.approx(shares), "relative to the most used expert"
    assert classes.row_labels() == ["digit", "operator"]
    layer_cells = {(0, 0): 6 / 13, (1, 0): 2 / 13, (2, 0): 5 / 13, (2, 1): 1}
    assert layers.cells() == pytest.approx(layer_cells, abs=0.5 / SHADES)
    assert layers.row_labels() == ["layer 1", "layer 2"]


def test_rounding_errors_are_drawn_as_zero_differences():
    figure_study = make_study(2, 4, 0, thresholds=())
    records = tuple(
        replace(
            record,
            last=replace(record.last, metrics={**record.last.metrics, OUTCOME: 0.1 + index * 1e-17}),
        )
        for index, record in enumerate(figure_study.records)
    )
    plan = replace(figure_study.plan, answer=replace(figure_study.plan.answer, margin=None))
    low, high = drawings(replace(figure_study, records=records, plan=plan))["difference-1"].limits
    assert (low, high) == pytest.approx((-0.5, 0.5))
