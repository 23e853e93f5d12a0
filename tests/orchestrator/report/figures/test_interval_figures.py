"""Marks of every figure lie where the records say, arm by arm; `drawing` reads them off the picture."""

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
from tests.orchestrator.report.halting.test_halting_maps import example, keeping, some
from tests.orchestrator.report.studies import SPACE, STEPS, THRESHOLD, study

OUTCOME = "near-iid/accuracy"
PUBLISHED = {"arm": "arm-1", "split": "near-iid", "metric": "accuracy", "value": 0.7, "source": "a paper"}


@pytest.fixture(scope="module")
def made():
    """Three arms with everything; one seed of the last crashed, one value is published."""
    found = study(
        3, fate=lambda arm, seed: OutcomeKind.CRASHED if (arm, seed) == (2, 1) else OutcomeKind.FINISHED
    )
    return replace(found, plan=replace(found.plan, published=(PUBLISHED,)))


@pytest.fixture(scope="module")
def drawn(made):
    return drawings(made)


def confirmed(made, arm, metric=OUTCOME, **overrides):
    """By seed what trials of an arm that finished measured, as trained or read again."""
    phase = "posthoc" if overrides else "confirm"
    return {
        record.seed: record.last.metrics[metric]
        for record in made.records
        if (record.arm, record.phase) == (arm, phase)
        and record.outcome is OutcomeKind.FINISHED
        and (not overrides or record.overrides == overrides)
    }


def searched(made, arm):
    """Search trials of an arm in the order in which they ended."""
    own = [record for record in made.records if (record.arm, record.phase) == (arm, "search")]
    return sorted(own, key=lambda each: (each.ended_at, each.number))


def value_of(record):
    return record.last.metrics["valid/accuracy"]


def finished(trials):
    return [trial for trial in trials if trial.outcome is OutcomeKind.FINISHED]


def hours(records, cpus=2.0):
    return sum(record.last.seconds for record in records) * cpus / 3600


def interval(values, level=0.95):
    """Student's, of a share."""
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return max(0.0, mean - half), min(1.0, mean + half)


def test_outcome_figure_has_one_row_per_arm(made, drawn):
    forest = drawn["outcome-1"]
    for row, arm in enumerate(arm.name for arm in made.plan.arms):
        values = list(confirmed(made, arm).values())
        mark = forest.whiskers[row]
        assert isinstance(mark, Whisker)
        assert mark.at == pytest.approx((statistics.fmean(values), row))
        assert (mark.low, mark.high) == pytest.approx(interval(values))
        seeds = [x for x, y in forest.points("o", colour=MUTED) if y == row + SEEDS]
        assert seeds == pytest.approx(values)
        assert forest.texts()[arm] == (0.0, row + NAMED)
    assert len(confirmed(made, "arm-2")) == 4, "a seed that crashed has no point"
    assert forest.points("D", colour=PURPLE) == [(0.7, 1)]
    assert forest.lines(":", INK) == beneath_names(0.1, 3), "the floor that METRICS declares"


def test_differences_are_paired_by_seed_with_the_interval_of_the_verdict(made, drawn):
    panel = drawn["difference-1"]
    baseline = confirmed(made, "arm-0")
    verdicts = {verdict.arm: verdict for verdict in made.report().verdicts}
    for row, arm in enumerate(("arm-1", "arm-2")):
        paired = [value - baseline[seed] for seed, value in confirmed(made, arm).items()]
        mark = panel.whiskers[row]
        assert mark.at == pytest.approx((statistics.fmean(paired), row))
        assert (mark.low, mark.high) == pytest.approx(
            (verdicts[arm].difference.low, verdicts[arm].difference.high)
        )
        assert [x for x, y in panel.points("o") if y == row + SEEDS] == pytest.approx(paired)
    assert panel.lines("-", INK) == beneath_names(0.0, 2)
    bands = [{row + end: (-0.01, 0.01) for end in LINE_ENDS} for row in range(2)]
    assert panel.upright_bands() == bands, "the margin of the study"


def beneath_names(value, rows):
    """A line at a value in so many rows, that crosses no name."""
    return [[(value, pytest.approx(row + end)) for end in LINE_ENDS] for row in range(rows)]


@pytest.mark.parametrize(("arms", "seeds"), [(2, 16), (16, 1)])
def test_numbers_of_arms_are_outside_the_axes(arms, seeds):
    made = study(arms, seeds, 0, thresholds=())
    drawn, report = drawings(made), made.report()
    shown = {row: format_interval(each.difference, "+") for row, each in enumerate(report.verdicts)}
    assert len(shown) == arms - 1
    for name, words in (
        ("difference-1", shown),
        ("outcome-1", {row: format_interval(each.estimate) for row, each in enumerate(of_outcome(report))}),
    ):
        texts = drawn[name].places()
        for row, each in words.items():
            assert [x > 1 for text, (x, y) in texts if (text, y) == (each, row)] == [True]


def of_outcome(report):
    return [report.cell(arm, OUTCOME) for arm in report.arms]


def test_single_seed_is_drawn_once():
    drawn = drawings(study(3, 1, 0, thresholds=()))
    for name, rows in (("outcome-1", 3), ("difference-1", 2)):
        assert len(drawn[name].points("s")) == rows
        assert not drawn[name].points("o")
        assert not any("mean" in line or "interval" in line for line in drawn[name].key())
        assert any("only seed" in line for line in drawn[name].key())
    assert drawn["outcome-1"].panel.label.startswith(f"{OUTCOME}, one seed: arm-0 0.")


def test_claims_have_the_colours_of_verdicts():
    made = study(3, 8, 0, thresholds=())
    kinds = {verdict.arm: verdict.kind for verdict in made.report().verdicts}
    assert kinds == {"arm-1": "worse", "arm-2": "worse"}
    worse, nothing = drawings(made)["difference-1"], drawings(study(3, 2, 0, thresholds=()))["difference-1"]
    assert len(worse.points("s", colour=ORANGE)) == 2
    assert len(nothing.points("s", colour=MUTED)) == 2
    assert not nothing.points("s", colour=GREEN)


@pytest.mark.parametrize("axis", ["trials", "hours"])
def test_best_so_far_is_drawn_against_trials_and_device_hours(made, drawn, axis):
    for place, arm in enumerate((arm.name for arm in made.plan.arms), start=1):
        panel, trials = drawn[f"search-{place}-{axis}"], searched(made, arm)
        across = [hours(trials[:many]) if axis == "hours" else many for many in range(1, len(trials) + 1)]
        best = [
            (x, max(map(value_of, finished(trials[: many + 1]))))
            for many, x in enumerate(across)
            if finished(trials[: many + 1])
        ]
        (line,) = [line for line in panel.lines("-", BLUE) if len(line) > 1]
        assert line == [pytest.approx(each) for each in best]
        ended = [(x, value_of(each)) for x, each in zip(across, trials, strict=True) if finished([each])]
        assert panel.points("o", colour=MUTED) == [pytest.approx(each) for each in ended]


@pytest.mark.parametrize("axis", ["trials", "hours"])
def test_expected_best_follows_dodge_et_al(made, drawn, axis):
    """By the formula of Dodge et al.: the best of k draws is at most the i-th of n with (i / n)^k."""
    trials = searched(made, "arm-1")
    values = sorted(map(value_of, finished(trials)))
    values = [values[0]] * (len(trials) - len(values)) + values  # the others are no better than the worst
    count = len(values)
    panel = drawn[f"search-2-{axis}"]
    (line,), (band,) = panel.lines("--", ORANGE), panel.bands()
    assert len(line) >= 5
    unit = hours(trials) / count if axis == "hours" else 1.0
    assert [x / unit for x, _ in line] == pytest.approx([round(x / unit) for x, _ in line])
    for x, mean in line:
        below = [(place / count) ** round(x / unit) for place in range(count + 1)]
        assert mean == pytest.approx(
            sum(value * (below[at + 1] - below[at]) for at, value in enumerate(values))
        )
        ends = [
            next(value for value, reached in zip(values, below[1:], strict=True) if reached >= share)
            for share in (0.1, 0.9)
        ]
        assert band[x] == pytest.approx(ends)
    assert line[-1][0] == pytest.approx(unit * count)


def test_importance_bars_are_ranked():
    """Where layers alone decide, their bar is the longest by far, whatever the order of the trials."""
    made = study(1, 0, 40, thresholds=())
    layers = {record.trial_id: random.Random(record.trial_id).randint(2, 12) for record in made.records}
    records = tuple(
        replace(
            record,
            assignment={**record.assignment, "model.layers": layers[record.trial_id]},
            last=replace(record.last, metrics={"valid/accuracy": layers[record.trial_id] / 20}),
        )
        if record.phase == "search"
        else record
        for record in made.records
    )
    panel = drawings(replace(made, records=records))["search-1-importance"]
    widths = panel.bars()
    assert sum(widths) == pytest.approx(1)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.95, "of trials in another order 0.8"
    assert min(y for text, (_, y) in panel.texts().items()) == panel.texts()["model.layers"][1]


def test_slices_show_finished_trials_and_range_ends(made, drawn):
    trials = finished(searched(made, "arm-0"))
    best = max(trials, key=value_of)
    slices = {each.panel.title: each for name, each in drawn.items() if name.startswith("search-1-slice")}
    assert set(slices) == set(SPACE.paths)
    for path, panel in slices.items():

        def across(record, path=path):
            value = record.assignment[path]
            return float(not value) if isinstance(value, bool) else value  # true is the first choice

        assert panel.points("o") == [pytest.approx((across(trial), value_of(trial))) for trial in trials]
        assert panel.points("D", colour=BLUE) == [pytest.approx((across(best), value_of(best)))]
    ends = {line[0][0] for line in slices["train.lr"].lines(":", INK)}
    assert ends == {1e-4, 1e-1}


def test_front_and_hypervolume():
    aims = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))
    made = study(2, 0, 12, thresholds=(), objectives=aims)
    drawn = drawings(made)
    trials = searched(made, "arm-1")
    scores = [(value_of(record), record.last.metrics["valid/depth"]) for record in finished(trials)]

    def of_front(points):
        return {
            (depth, value)
            for value, depth in points
            if not any(v >= value and d <= depth and (v, d) != (value, depth) for v, d in points)
        }

    front = drawn["search-2-front-1"]
    assert set(front.points("D", colour=BLUE)) == of_front(scores)
    shown = re.findall(r"([\d.]+), ([\d.]+)", front.panel.label.partition("the front: ")[2])
    assert sorted(shown) == sorted((f"{value:.4g}", f"{depth:.4g}") for depth, value in of_front(scores))
    assert set(front.points("o", colour=MUTED)) == {(depth, value) for value, depth in scores}
    least, deepest = min(value for value, _ in scores), max(depth for _, depth in scores)
    (line,) = drawn["search-2-hypervolume"].lines("-", BLUE)
    assert line[-1][0] == len(trials)
    for count, volume in line:
        points = [
            (value_of(record), record.last.metrics["valid/depth"])
            for record in finished(trials[: int(count)])
        ]
        assert volume == pytest.approx(area(of_front(points), least, deepest))


def area(front, least, deepest):
    """Of the union of the boxes between the points of a front and the worst, by strips of depth."""
    depths = sorted({deepest, *(depth for depth, _ in front)})
    return sum(
        (after - before) * (max(value for depth, value in front if depth <= before) - least)
        for before, after in pairwise(depths)
    )


def test_cost_figure_shows_trained_and_reevaluated_points(made, drawn):
    every = drawn["cost-1"]
    for place, arm in enumerate(arm.name for arm in made.plan.arms):
        trained = tuple(
            statistics.fmean(confirmed(made, arm, f"near-iid/{name}").values())
            for name in ("depth", "accuracy")
        )
        assert every.texts()[str(place + 1)] == pytest.approx(trained)
        assert f"{place + 1}. {arm} {trained[0]:.4g}, {trained[1]:.4g}" in every.panel.label
        panel = drawn[f"cost-1-{place + 1}"]
        assert panel.points("s", colour=INK) == [pytest.approx(trained)]
        again = [
            tuple(
                statistics.fmean(confirmed(made, arm, f"near-iid/{name}", **{THRESHOLD: value}).values())
                for name in ("depth", "accuracy")
            )
            for value in (0.3, 0.6, 0.9)
        ]
        assert panel.points("o", colour=BLUE) == [pytest.approx(each) for each in sorted([trained, *again])]


def test_learning_curves_are_mean_and_range_over_seeds_that_finished(made, drawn):
    for place, arm in enumerate((arm.name for arm in made.plan.arms), start=1):
        own = [record for record in made.records if (record.arm, record.phase) == (arm, "confirm")]
        columns = [
            [
                one.metrics["valid/accuracy"]
                for trial in finished(own)
                for one in made.measured[trial.trial_id]
                if one.step == step
            ]
            for step in STEPS
        ]
        panel = drawn[f"curve-1-{place}"]
        (line,), (band,) = panel.lines("-", BLUE), panel.bands()
        assert line == [
            pytest.approx((step, statistics.fmean(each))) for step, each in zip(STEPS, columns, strict=True)
        ]
        assert band == {
            step: pytest.approx((min(each), max(each))) for step, each in zip(STEPS, columns, strict=True)
        }
        reference = panel.lines("--", MUTED)
        assert reference == ([] if place == 1 else [drawn["curve-1-1"].lines("-", BLUE)[0]])
    (failed,) = [
        record
        for record in made.records
        if (record.arm, record.phase, record.seed) == ("arm-2", "confirm", 102)
    ]
    ended = [(one.step, one.metrics["valid/accuracy"]) for one in made.measured[failed.trial_id]]
    assert drawn["curve-1-3"].lines("-", ORANGE) == [[pytest.approx(each) for each in ended]]


def test_depth_figure_shows_mean_and_percentiles(made, drawn):
    for place, arm in enumerate((arm.name for arm in made.plan.arms), start=1):
        for at, split in enumerate(("near-iid", "length-20-40")):
            mean, low, high = (
                statistics.fmean(confirmed(made, arm, f"{split}/depth{part}").values())
                for part in ("", "_p10", "_p90")
            )
            mark = drawn[f"depth-{place}"].whiskers[at]
            assert mark.at == pytest.approx((at, mean))
            assert (mark.low, mark.high) == pytest.approx((low, high))


def test_depth_by_length_is_drawn_in_the_middle_of_its_bins():
    rows = [[1, 3, 40, 3.0, 2.0, 4.0, 20, 40], [13, 16, 9, 5.0, 4.5, 6.0, 3, 9]]
    kept = [{"kind": "lengths", "split": "near-iid", "bins": rows}]
    panel = drawings(keeping(study(1, seeds=2, trials=0), lambda *_: kept))["tokens-1"]
    assert panel.points("o", colour=BLUE) == [(2.0, 3.0), (14.5, 5.0)]
    assert panel.bands() == [{2.0: (2.0, 4.0), 14.5: (4.5, 6.0)}]


def test_halting_map_shades_open_words():
    made = keeping(study(1, seeds=2, trials=0, thresholds=()), some({0: [example()]}))
    panel = drawings(made)["map-1-1"]
    (part,) = example()["parts"]
    names = panel.texts()
    (((_, floor), _),) = panel.lines("-", MUTED)
    inks = {100: 1.0, 80: 1.0, 40: 0.62, 30: 0.62, -1: 0.0}
    for column, (word, running) in enumerate(zip(part["words"], part["running"], strict=True)):
        assert names[word][0] == column + 0.5
        for layer, percent in enumerate(running):
            assert panel.ink((column + 0.5, floor + layer + 0.5)) == inks[percent], (word, layer)


def test_expert_figure_has_rows_by_class_and_layer():
    mixture = {
        "name": "attention",
        "classes": ["digit", "operator"],
        "uses": [[6, 2, 0], [0, 0, 5]],
        "layers": [[1, [6, 2, 5]], [2, [0, 0, 1]]],
    }
    kept = [{"kind": "experts", "examples": 49, "mixtures": [mixture]}]
    other = [{**kept[0], "mixtures": [{**mixture, "uses": [[1, 1, 2], [0, 5, 5]], "layers": []}]}]
    drawn = drawings(keeping(study(2, seeds=2, trials=0, thresholds=()), some({0: kept, 1: other})))
    of_other = {(0, 0): 0.5, (1, 0): 0.5, (2, 0): 1, (1, 1): 1, (2, 1): 1}
    assert drawn["experts-2"].cells() == pytest.approx(of_other)
    assert drawn["experts-2"].panel.title.startswith("arm-1, ")
    classes, layers = drawn["experts-1"], drawn["experts-1-layers"]
    shares = {(0, 0): 0.75, (1, 0): 0.25, (2, 1): 1}
    assert classes.cells() == pytest.approx(shares), "how full, of the fullest"
    assert classes.rows() == ["digit", "operator"]
    of_layer = {(0, 0): 6 / 13, (1, 0): 2 / 13, (2, 0): 5 / 13, (2, 1): 1}
    assert layers.cells() == pytest.approx(of_layer, abs=0.5 / SHADES)
    assert layers.rows() == ["layer 1", "layer 2"]


def test_differences_that_are_all_rounding_errors_are_drawn_at_zero():
    made = study(2, 4, 0, thresholds=())
    records = tuple(
        replace(each, last=replace(each.last, metrics={**each.last.metrics, OUTCOME: 0.1 + at * 1e-17}))
        for at, each in enumerate(made.records)
    )
    plan = replace(made.plan, answer=replace(made.plan.answer, margin=None))
    left, right = drawings(replace(made, records=records, plan=plan))["difference-1"].limits
    assert (left, right) == pytest.approx((-0.5, 0.5))
