"""Describe the search of every arm, trial by trial, with values of the selection split."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isclose, log
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from orchestrator.conductor.winners import Candidate, rank_candidates
from orchestrator.identity import canonical
from orchestrator.plan.answer import metric_splits
from orchestrator.plan.display.format import domain_words, value_words
from orchestrator.plan.types import Arm, Plan
from orchestrator.report.results.types import SearchBest
from orchestrator.spec.scopes import counted_name
from orchestrator.spec.section import Objective
from orchestrator.statistics.search_quality import ExpectedBest, expected_best, hypervolume
from orchestrator.trials import OutcomeKind, Record, by_arm
from search_spaces.dimensions import Choice, Dimension, Fixed, Float, Int, Powers, Value, max_value

if TYPE_CHECKING:
    from orchestrator.search.importance import Importance

T = TypeVar("T", Record, "SearchTrial")
MAX_EDGE_SHARE = 0.02
"""A best value within this share of its range from an end counts as at the edge."""
HOUR_S = 3600.0
NUM_DRAW_COUNTS = 40
"""Numbers of draws for which the expected best is computed, evenly on a logarithmic scale."""
MIN_EXPECTED_TRIALS = 5
"""Minimum number of finished trials for an expected best; with fewer it adds little information."""
SEARCH_CLAIM_NOTE = (
    "The best trial of a search is chosen by the displayed values. Expect worse values when the same "
    "settings run again, especially after many trials: these values support no claim about arms. `confirm` "
    "in the spec retrains the best settings of every arm on new seeds and measures test splits."
)


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A trial of a search that has ended."""

    number: int
    outcome: OutcomeKind
    values: tuple[float, ...]
    """Value of every objective by its scope; empty for a trial that reported none."""
    device_hours: float
    assignment: Mapping[str, Value]
    repeat: int = 0
    """Index of the repeat of the search that the trial belongs to."""

    @property
    def is_finished(self) -> bool:
        """Return whether the trial may be chosen."""
        return self.outcome is OutcomeKind.FINISHED and bool(self.values)


@dataclass(frozen=True)
class SearchHistory:
    """The search of one arm, with all of its repeats."""

    arm: str
    objectives: tuple[Objective, ...]
    planned: int
    sampler: str
    dimensions: tuple[Dimension, ...]
    trials: tuple[SearchTrial, ...]
    """In the order in which they ended."""
    best: SearchTrial | None
    """The best trial in the ranking of `confirm`."""
    edges: tuple[str, ...]
    """Sentences on best values at an end of their range."""
    importance: "Importance | None"
    """None if there are too few trials."""
    front: tuple[SearchTrial, ...]
    """Pareto front of the finished trials; empty with one objective."""
    hypervolumes: tuple[tuple[int, float], ...]
    """Number of ended trials and hypervolume of their front, for several objectives.

    The reference point has the worst value of every objective among all finished trials.
    """
    repeats: int = 1

    @property
    def finished_trials(self) -> tuple[SearchTrial, ...]:
        """Return the trials that have a value."""
        return tuple(trial for trial in self.trials if trial.is_finished)

    @cached_property
    def expected_bests(self) -> tuple[ExpectedBest, ...]:
        """Return the expected best of searches with as many or fewer trials; empty with several objectives.

        Unfinished trials are drawn too, with the worst value of the finished trials.
        """
        if len(self.finished_trials) < MIN_EXPECTED_TRIALS or len(self.objectives) > 1:
            return ()
        larger = self.objectives[0].goal == "max"
        values = [trial.values[0] for trial in self.finished_trials]
        worst = min(values) if larger else max(values)
        num_drawn = sum(trial.outcome is not OutcomeKind.INFEASIBLE for trial in self.trials)
        values += [worst] * (num_drawn - len(values))
        num_trials = max(1, len(values) // self.repeats)
        draws = sorted({round(num_trials ** (step / NUM_DRAW_COUNTS)) for step in range(NUM_DRAW_COUNTS + 1)})
        return tuple(expected_best(values, draws, larger=larger))

    @property
    def best_so_far(self) -> tuple[tuple[int, float, float], ...]:
        """Return ended trials, hours and best value of the first objective so far, in the first repeat."""
        return self.best_so_far_of_repeat(0)

    def best_so_far_of_repeat(self, repeat: int) -> tuple[tuple[int, float, float], ...]:
        """Return ended trials, hours and best value of the first objective so far, in `repeat`."""
        points: list[tuple[int, float, float]] = []
        hours, best = 0.0, None
        larger = self.objectives[0].goal == "max"
        for count, trial in enumerate((trial for trial in self.trials if trial.repeat == repeat), start=1):
            hours += trial.device_hours
            if trial.is_finished:
                value = trial.values[0]
                best = value if best is None else max(best, value) if larger else min(best, value)
            if best is not None:
                points.append((count, hours, best))
        return tuple(points)


def search_courses(plan: Plan, records: Sequence[Record]) -> Iterator[SearchHistory]:
    """Yield the search of every arm that searches fields."""
    if plan.search is None:
        return
    objectives, devices = plan.search.objectives, plan.resources.gpus or plan.resources.cpus
    ended_records = by_arm(record for record in records if record.phase == "search" and _has_run(record))
    planned = Counter(trial.arm for trial in plan.trials if trial.phase == "search")
    for arm in plan.arms:
        if not arm.space.paths:
            continue
        ordered_records = sorted(
            ended_records[arm.name], key=lambda record: (record.ended_at or 0.0, record.repeat, record.number)
        )
        trials = tuple(_search_trial(record, objectives, devices) for record in ordered_records)
        finished_trials = [trial for trial in trials if trial.is_finished]
        best = next(iter(rank_trials(finished_trials, lambda trial: trial.values, objectives)), None)
        dimensions = tuple(entry for entry in arm.space.dimensions if not isinstance(entry.domain, Fixed))
        yield SearchHistory(
            arm=arm.name,
            objectives=objectives,
            planned=planned[arm.name],
            sampler=str(plan.search.sampler["name"]),
            dimensions=dimensions,
            trials=trials,
            best=best,
            edges=tuple(_edge_sentences(arm, best)) if best else (),
            importance=_field_importance(dimensions, finished_trials),
            front=tuple(_pareto_front(finished_trials, objectives)),
            hypervolumes=tuple(_hypervolumes(trials, objectives)),
            repeats=plan.repeats,
        )


def _has_run(record: Record) -> bool:
    """Return whether a trial has ended for good and was not skipped."""
    kind = record.outcome
    return kind is not None and kind.is_final and kind is not OutcomeKind.SKIPPED


def _search_trial(record: Record, objectives: Sequence[Objective], devices: float) -> SearchTrial:
    assert record.outcome is not None, "an ended trial has an outcome"
    seconds = record.last.seconds if record.last else 0.0
    return SearchTrial(
        number=record.number,
        outcome=record.outcome,
        values=record.judged_by([objective.metric for objective in objectives]),
        device_hours=seconds * devices / HOUR_S,
        assignment=record.assignment,
        repeat=record.repeat,
    )


def rank_trials(
    trials: Iterable[T], values_of: Callable[[T], tuple[float, ...]], objectives: Sequence[Objective]
) -> list[T]:
    """Return the first trial of every distinct assignment, best first, in the ranking of `confirm`.

    Args:
        trials: Finished trials of one arm, possibly of several repeats of its search.
        values_of: Returns the values of a trial, one per objective.
        objectives: Objectives of the search.
    """
    ordered = sorted(trials, key=lambda trial: (trial.repeat, trial.number))
    candidates = [Candidate(place, trial.assignment, values_of(trial)) for place, trial in enumerate(ordered)]
    return [ordered[candidate.number] for candidate in rank_candidates(candidates, objectives)]


def finished_trials(plan: Plan, records: Sequence[Record]) -> Mapping[str, Sequence[Record]]:
    """Return by arm the finished search trials that measured every objective."""
    finished_records = (record for record in records if record.outcome is OutcomeKind.FINISHED)
    return by_arm(
        trial for trial in finished_records if trial.phase == "search" and objective_values(plan, trial)
    )


def rank_records(plan: Plan, trials: Iterable[Record]) -> list[Record]:
    """Return finished search trials of an arm, best first, as `rank_trials` does."""
    assert plan.search is not None
    return rank_trials(trials, partial(objective_values, plan), plan.search.objectives)


def objective_values(plan: Plan, record: Record) -> tuple[float, ...]:
    """Return the value of every objective by its scope; empty if the trial lacks one."""
    assert plan.search is not None
    return record.judged_by([objective.metric for objective in plan.search.objectives])


def _field_importance(
    dimensions: Sequence[Dimension], finished: Sequence[SearchTrial]
) -> "Importance | None":
    """Return the importance of the searched fields for the first objective."""
    trials = sorted(finished, key=lambda trial: (trial.repeat, trial.number))
    if len(trials) < 2:
        return None
    from orchestrator.search.importance import estimate_importance

    assignments, values = [trial.assignment for trial in trials], [trial.values[0] for trial in trials]
    return estimate_importance(dimensions, assignments, values)


def _pareto_front(finished: Sequence[SearchTrial], objectives: Sequence[Objective]) -> list[SearchTrial]:
    front: list[tuple[tuple[float, ...], SearchTrial]] = []
    for trial in finished if len(objectives) > 1 else ():
        score = _signed_values(trial, objectives)
        if not any(_dominates(other, score) for other, _ in front):
            front = [entry for entry in front if not _dominates(score, entry[0])] + [(score, trial)]
    return [trial for _, trial in front]


def _hypervolumes(
    trials: Sequence[SearchTrial], objectives: Sequence[Objective]
) -> Iterator[tuple[int, float]]:
    scores = {
        count: _signed_values(trial, objectives)
        for count, trial in enumerate(trials, start=1)
        if trial.is_finished
    }
    if len(objectives) < 2 or not scores:
        return
    worst = tuple(map(min, zip(*scores.values(), strict=True)))
    front: list[tuple[float, ...]] = []
    for count, score in scores.items():
        if not any(_dominates(other, score) or other == score for other in front):
            front = [other for other in front if not _dominates(score, other)] + [score]
            yield count, hypervolume(front, worst)
    yield len(trials), hypervolume(front, worst)


def _signed_values(trial: SearchTrial, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Return the objectives with signs such that larger is better."""
    return tuple(
        value if objective.goal == "max" else -value
        for value, objective in zip(trial.values, objectives, strict=True)
    )


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    return first != second and all(a >= b for a, b in zip(first, second, strict=True))


def _edge_sentences(arm: Arm, best: SearchTrial) -> Iterator[str]:
    """Yield a sentence for each best value at an end of its range, beyond which values may be better."""
    for dimension in arm.space.dimensions:
        value = best.assignment.get(dimension.path)
        if (end := _reached_range_end(dimension, value)) and value is not None:
            yield (
                f"the best {dimension.path}, {value_words(value)}, lies at the {end} end of its "
                f"range ({domain_words(dimension.domain)}): a wider range may have a better value"
            )


def _reached_range_end(dimension: Dimension, value: Value) -> str:
    """Return `low` or `high` for a value at that end of its range; else an empty string."""
    domain = dimension.domain
    if not _is_number(value):
        return ""
    if isinstance(domain, Choice):
        ordered = sorted(filter(_is_number, domain.values))
        if len(ordered) < len(domain.values) or len(ordered) < 3:
            return ""
        return "low" if value == ordered[0] else "high" if value == ordered[-1] else ""
    if not isinstance(domain, Float | Int | Powers):
        return ""
    share = relative_position(dimension, value)
    last = relative_position(dimension, max_value(domain))
    tolerance = MAX_EDGE_SHARE if isinstance(domain, Float) and domain.step is None else 0.0
    if share <= tolerance:
        return "low"
    return "high" if share >= last - tolerance or isclose(share, last) else ""


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def relative_position(dimension: Dimension, value: float) -> float:
    """Return the position of a value in its range, from 0 to 1, on the scale that is searched."""
    domain = dimension.domain
    assert isinstance(domain, Float | Int | Powers), "only ranges have positions"
    if domain.log:
        return (log(value) - log(domain.low)) / (log(domain.high) - log(domain.low))
    return (value - domain.low) / (domain.high - domain.low)


def search_bests(plan: Plan, records: Sequence[Record]) -> tuple[SearchBest, ...]:
    """Return the best finished trial of every arm in the ranking of `confirm`; empty if the plan confirms."""
    if plan.search is None or plan.confirm is not None:
        return ()
    objectives = plan.search.objectives
    bests = []
    for arm, trials in _arms_in_order(plan, finished_trials(plan, records)):
        best = rank_records(plan, trials)[0]
        values = dict(zip(map(counted_name, objectives), objective_values(plan, best), strict=True))
        reports = max(1, best.reports) if objectives[0].scope == "best" else 1
        bests.append(SearchBest(arm, values, dict(best.assignment), best.trial_id, len(trials), reports))
    return tuple(bests)


def _arms_in_order(
    plan: Plan, trials: Mapping[str, Sequence[Record]]
) -> Iterator[tuple[str, Sequence[Record]]]:
    """Yield arms that have trials, in the order of the plan."""
    return ((arm.name, records) for arm in plan.arms if (records := trials[arm.name]))


def count_equal_searches(plan: Plan, records: Sequence[Record]) -> dict[str, int]:
    """Return the number of finished search trials of arms whose trials all had equal values.

    The confirmed params of such an arm are merely the first ones, and no better than the others.
    """
    if plan.search is None:
        return {}
    return {
        arm: len(trials)
        for arm, trials in _arms_in_order(plan, finished_trials(plan, records))
        if len({canonical(dict(trial.assignment)) for trial in trials}) > 1
        and len({objective_values(plan, trial) for trial in trials}) == 1
    }


def splits_measured_by_search(plan: Plan, records: Sequence[Record]) -> tuple[str, ...]:
    """Return the test splits that search trials measured, which is possible only in custom trainables."""
    reports = [record.last for record in records if record.phase == "search" and record.last is not None]
    splits_by_metric = metric_splits(plan.search, plan.confirm, plan.answer)
    measured_splits = {splits_by_metric.split(name) for report in reports for name in report.metrics}
    return tuple(split for split in plan.test_splits if split in measured_splits)
