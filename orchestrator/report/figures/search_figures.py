"""Draw the search of an arm: progress, importance of fields, values of single fields, Pareto front."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.plan.display.format import value_words
from orchestrator.report.figures.interval_figures import NAME_OFFSET
from orchestrator.report.figures.style import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    SMALL_PANEL_INCHES,
    Panel,
    draw_key,
    shorten,
)
from orchestrator.report.results.searches import SearchHistory, SearchTrial
from orchestrator.statistics.search_quality import ExpectedBest
from search_spaces.dimensions import Choice, Dimension, Domain, Float, Int, Powers, are_equal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")
MAX_SLICES = 4
"""Maximum number of searched fields of an arm with a panel, the most important first."""
MAX_DRAWN_TRIALS = 200
"""Approximate maximum number of trials in a panel; of more trials, every k-th and the best are drawn."""
MAX_NAMED_CHOICES = 6
"""Maximum number of choices whose names are on an axis; more are numbered by their place in the list."""
WORST_SHARE = 0.1
"""Share of the worst trials that is outside of the axes."""


def search_panels(course: SearchHistory, arm_index: int) -> Iterator[Panel]:
    """Yield the panels of one arm; `arm_index` is its number among the arms that search."""
    if not course.finished_trials:
        return
    if len(course.objectives) > 1:
        yield from _front_panels(course, arm_index)
    else:
        yield from _progress_panels(course, arm_index)
    if course.importance is not None:
        yield _importance_panel(course, f"search-{arm_index}-importance")
    yield from _slice_panels(course, arm_index)


def _progress_panels(course: SearchHistory, arm_index: int) -> Iterator[Panel]:
    expected = course.expected_bests
    metric = course.objectives[0].metric
    best_end = _best_end([points[-1] for points in _best_so_far_curves(course)], course)
    expected_text = ""
    if expected:
        end = expected[-1]
        expected_text = (
            f"; a search with as many trials should reach {end.mean:.4g}, {end.low:.4g} to {end.high:.4g}"
        )
    repeats_text = f", the best of {course.repeats} repeats" if course.repeats > 1 else ""
    for axis, unit in enumerate(("trials", "device hours")):
        yield Panel(
            f"search-{arm_index}-{'hours' if axis else 'trials'}",
            f"Best {metric} so far of {course.arm} against {unit}: "
            f"{best_end[2]:.4g} after {best_end[axis]:.4g} {unit}{repeats_text}{expected_text}",
            partial(_paint_progress, course=course, expected=expected, axis=axis),
            title=f"best so far against {unit}",
            width=3.6,
            height=2.7,
            bottom=0.85,
        )


def _best_so_far_curves(course: SearchHistory) -> list[tuple[tuple[int, float, float], ...]]:
    """Return the curve of the best value so far of every repeat that has a finished trial."""
    return [points for repeat in range(course.repeats) if (points := course.best_so_far_of_repeat(repeat))]


def _best_end(ends: Sequence[tuple[int, float, float]], course: SearchHistory) -> tuple[int, float, float]:
    """Return the last point of the repeat with the best value."""
    return (max if course.objectives[0].goal == "max" else min)(ends, key=lambda end: end[2])


def _paint_progress(axes: "Axes", course: SearchHistory, expected: Sequence[ExpectedBest], axis: int) -> None:
    if expected:
        _paint_expected(axes, course, expected, axis)
    ends: list[tuple[float, float]] = []
    counts, hours_by_repeat = defaultdict[int, int](int), defaultdict[int, float](float)
    for trial in course.trials:
        counts[trial.repeat] += 1
        hours_by_repeat[trial.repeat] += trial.device_hours
        if trial.is_finished:
            ends.append(((hours_by_repeat if axis else counts)[trial.repeat], trial.values[0]))
    style: dict[str, Any] = {"color": MUTED, "markersize": 2.5, "alpha": 0.7, "label": "finished"}
    axes.plot(*zip(*_every_kth(ends), strict=True), "o", **style)
    for index, points in enumerate(_best_so_far_curves(course)):
        best = [(point[axis], point[2]) for point in points]
        label = "best so far" if index == 0 else None
        axes.step(*zip(*best, strict=True), where="post", color=BLUE, label=label)
    _limit_values(axes, course, [value for _, value in ends])
    axes.set_xlim(left=0)
    axes.locator_params(nbins=5)
    axes.locator_params(axis="x", nbins=5, integer=not axis)
    draw_key(axes, -0.14, columns=3, handlelength=1.2, columnspacing=0.9, fontsize=7.5)


def _paint_expected(axes: "Axes", course: SearchHistory, expected: Sequence[ExpectedBest], axis: int) -> None:
    hours = sum(trial.device_hours for trial in course.trials) / len(course.trials)
    positions = [best.draws * (hours if axis else 1) for best in expected]
    lows, highs = [best.low for best in expected], [best.high for best in expected]
    axes.fill_between(positions, lows, highs, color=ORANGE, alpha=0.18, lw=0)
    means = [best.mean for best in expected]
    axes.plot(positions, means, color=ORANGE, linestyle="--", label="expected, middle 80%")


def _limit_values(axes: "Axes", course: SearchHistory, values: Sequence[float]) -> None:
    """Cut the worst tenth of the values off the axis of values."""
    ordered = sorted(values, reverse=course.objectives[0].goal == "max")
    ends = ordered[0], ordered[min(len(ordered) - 1, int(len(ordered) * (1 - WORST_SHARE)))]
    low, high = min(ends), max(ends)
    padding = 0.08 * (high - low) or 0.05 * abs(high) or 0.5
    axes.set_ylim(low - padding, high + padding)


def _every_kth(values: Sequence[T]) -> list[T]:
    return list(values[:: -(-len(values) // MAX_DRAWN_TRIALS) or 1])


def _importance_panel(course: SearchHistory, name: str) -> Panel:
    assert course.importance is not None, "an importance panel needs importances"
    shares = list(course.importance.shares.items())
    message = ", ".join(f"{path} {share:.0%}" for path, share in shares)
    return Panel(
        name,
        f"Importance of dimensions of {course.arm} by {course.importance.method}: {message}",
        partial(_paint_importance, shares=shares),
        title=f"importance, {course.importance.method}",
        width=SMALL_PANEL_INCHES,
        height=0.85 + 0.42 * len(shares),
        left=0.14,
    )


def _paint_importance(axes: "Axes", shares: Sequence[tuple[str, float]]) -> None:
    axes.barh(range(len(shares)), [share for _, share in shares], height=0.3, color=BLUE)
    style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8}
    for row, (path, share) in enumerate(shares):
        axes.text(0.0, row + NAME_OFFSET * 1.2, shorten(path, 26), **style)
        axes.text(1.0, row + NAME_OFFSET * 1.2, f"{share:.0%}", ha="right", **style)
    axes.set_yticks([])
    axes.set_ylim(len(shares) - 0.6, -0.75)
    axes.set_xlim(0, 1)
    axes.locator_params(axis="x", nbins=4)
    axes.spines["left"].set_visible(False)


def _slice_panels(course: SearchHistory, arm_index: int) -> Iterator[Panel]:
    ranked_paths = list(course.importance.shares) if course.importance else []
    order = {path: rank for rank, path in enumerate(ranked_paths)}
    dimensions = sorted(course.dimensions, key=lambda dimension: order.get(dimension.path, len(order)))
    assert course.best is not None, "a search with panels has a finished trial"
    best, metric = course.best.assignment, course.objectives[0].metric
    for index, dimension in enumerate(dimensions[:MAX_SLICES], start=1):
        path = dimension.path
        trials = [trial for trial in course.finished_trials if path in trial.assignment]
        if not trials:
            continue
        words = value_words(best[path]) if path in best else "absent"
        yield Panel(
            f"search-{arm_index}-slice-{index}",
            f"{metric} of {course.arm} by {path}, {len(trials)} finished trials; the best has {words}",
            partial(_paint_slice, course=course, dimension=dimension, trials=trials),
            title=path,
            width=SMALL_PANEL_INCHES,
            height=2.1,
        )


def _paint_slice(
    axes: "Axes", course: SearchHistory, dimension: Dimension, trials: Sequence[SearchTrial]
) -> None:
    best = course.best
    points = [(_axis_position(dimension, trial), trial.values[0]) for trial in _every_kth(trials)]
    axes.plot(*zip(*points, strict=True), "o", color=MUTED, markersize=3, alpha=0.6)
    if best is not None and dimension.path in best.assignment:
        axes.plot(_axis_position(dimension, best), best.values[0], "D", color=BLUE, markersize=6)
    _mark_domain(axes, dimension.domain)
    axes.locator_params(axis="y", nbins=5)
    _limit_values(axes, course, [trial.values[0] for trial in trials])


def _mark_domain(axes: "Axes", domain: Domain) -> None:
    """Mark the choices, or the ends of the range, on the horizontal axis."""
    if isinstance(domain, Choice):
        words = [shorten(value_words(value), 12) for value in domain.values]
        number_labels = [str(place) for place in range(1, len(words) + 1)]
        axes.set_xticks(range(len(words)), words if len(words) <= MAX_NAMED_CHOICES else number_labels)
        axes.set_xlim(-0.5, len(words) - 0.5)
    elif isinstance(domain, Float | Int | Powers):
        low, high = domain.low, domain.high
        if domain.log:
            middle = sqrt(low * high)
            axes.set_xscale("log")
            axes.set_xticks([low, middle, high], [f"{low:g}", f"{middle:.2g}", f"{high:g}"])
            axes.set_xticks([], minor=True)
        else:
            axes.locator_params(axis="x", nbins=5, integer=isinstance(domain, Int))
        for end in (low, high):
            axes.axvline(end, color=INK, linewidth=0.8, linestyle=":")


def _axis_position(dimension: Dimension, trial: SearchTrial) -> float:
    value = trial.assignment[dimension.path]
    if isinstance(dimension.domain, Choice):
        return next(place for place, choice in enumerate(dimension.domain.values) if are_equal(choice, value))
    assert isinstance(value, int | float), "values of ranges are numbers"
    return float(value)


def _front_panels(course: SearchHistory, arm_index: int) -> Iterator[Panel]:
    first, *others = course.objectives
    for index, objective in enumerate(others, start=1):
        message = "; ".join(f"{trial.values[0]:.4g}, {trial.values[index]:.4g}" for trial in course.front)
        title = f"{first.metric} against {objective.metric}"
        yield Panel(
            f"search-{arm_index}-front-{index}",
            f"{title} of {course.arm}, the front: {message}",
            partial(_paint_front, course=course, index=index),
            title=title,
            width=3.6,
            height=2.6,
        )
    volumes = course.hypervolumes
    if volumes and isfinite(volumes[-1][1]):
        message = f"{volumes[-1][1]:.4g} after {volumes[-1][0]}"
        yield Panel(
            f"search-{arm_index}-hypervolume",
            f"Hypervolume of the front of {course.arm} against trials: {message}",
            partial(_paint_volumes, volumes=volumes),
            title="hypervolume against trials",
            width=3.6,
            height=2.6,
        )


def _paint_front(axes: "Axes", course: SearchHistory, index: int) -> None:
    points = [(trial.values[index], trial.values[0]) for trial in _every_kth(course.finished_trials)]
    axes.plot(*zip(*points, strict=True), "o", color=MUTED, markersize=3, alpha=0.6)
    front = sorted((trial.values[index], trial.values[0]) for trial in course.front)
    axes.plot(*zip(*front, strict=True), "D", color=BLUE, markersize=5)
    axes.set_xlabel(course.objectives[index].metric)
    axes.locator_params(nbins=5)


def _paint_volumes(axes: "Axes", volumes: Sequence[tuple[int, float]]) -> None:
    axes.step(*zip(*volumes, strict=True), where="post", color=BLUE)
    axes.set_xlabel("trials")
    axes.locator_params(nbins=5)
    axes.set_ylim(bottom=0)
