"""Bounds that no input meets: two systems that differ in nothing else are made one.

A bound on files that are read must admit all that they hold, so that any two that can be trained do the same.
That of a generator may lie beyond all that it draws. A table of a model may tell apart offsets that no input
has: it only makes more weights, which are drawn and never read.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.plan.drawn_data import MOST_MEASURED, longest_input, same_data
from orchestrator.plan.settings import System
from trainables.acting import in_splits
from trainables.decoding.config import LENGTH_MARGIN
from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.settings import within
from trainables.task_catalog import splits
from trainables.types import TaskShape


def of_like_bounds(before: System, after: System, tests: Sequence[str]) -> tuple[System, System]:
    """Both with the lesser of two bounds where no input meets any, those of the splits `tests` among them.

    Of steps always: examples that are made up keep to their bound, real ones say their own.
    """
    one, other = _of_like_steps(before, after)
    if one.task != other.task and _unmet(one, other, tests):
        shapes = _least(one.shape, other.shape), _least(other.shape, one.shape)
        one, other = replace(one, shape=shapes[0]), replace(other, shape=shapes[1])
    trained = max(one.shape.length_max, other.shape.length_max)
    if one.model == other.model or _within(one, trained).model != _within(other, trained).model:
        return one, other  # they differ in more than in what lies beyond
    read = [info.name for each in (one, other) for info in splits(each.task) if info.role != "test"]
    longest = max(longest_input(each, [*read, *tests], trained) for each in (one, other))
    longest = max(longest, trained, *map(_answer_length, (one, other)))
    return _within(one, longest), _within(other, longest)


def _of_like_steps(before: System, after: System) -> tuple[System, System]:
    bounds = [system.shape.steps_max for system in (before, after)]
    if None in bounds or bounds[0] == bounds[1]:
        return before, after
    least = min(bound for bound in bounds if bound is not None)
    one, other = (replace(each, shape=replace(each.shape, steps_max=least)) for each in (before, after))
    return one, other


def _unmet(before: System, after: System, tests: Sequence[str]) -> bool:
    """Whether the bounds of two tasks differ and the examples that are read do not."""
    if before.shape == after.shape or before.task.__class__ is not after.task.__class__:
        return False
    changed = [
        name
        for name in type(after.task).model_fields
        if getattr(before.task, name) != getattr(after.task, name)
    ]
    marks = [in_splits(type(after.task), name) for name in changed]
    if all(mark is not None and not mark.patterns for mark in marks):
        return True
    if _least(before.shape, after.shape) != _least(after.shape, before.shape):
        return False  # they differ in more than bounds
    read = [info.name for info in splits(before.task) if info.role != "test"]
    # Most bounds are met: the longer inputs alone say so.
    less, more = sorted((before, after), key=lambda each: each.shape.length_max)
    if longest_input(more, ["train"], less.shape.length_max) > less.shape.length_max:
        return False
    return same_data(before, after, [*read, *tests], MOST_MEASURED)


def _least(shape: TaskShape, other: TaskShape) -> TaskShape:
    """`shape` with the lesser bounds of both; ids that are predicted are more than a bound."""
    bounds: dict[str, Any] = {"length_max": min(shape.length_max, other.length_max)}
    if shape.answer_length_max is not None and other.answer_length_max is not None:
        bounds["answer_length_max"] = min(shape.answer_length_max, other.answer_length_max)
    if not shape.shared_vocabulary and not other.shared_vocabulary:
        bounds["vocabulary_size"] = min(shape.vocabulary_size, other.vocabulary_size)
    return replace(shape, **bounds)


def _answer_length(system: System) -> int:
    """Tokens of the longest answer that is read or written."""
    longest = system.shape.answer_length_max or 0
    return max(LENGTH_MARGIN * longest, system.train.decode_length_max or 0)


def _within(system: System, longest: int) -> System:
    """`system` without weights for what lies beyond inputs of `longest` tokens, START and END not counted."""
    model = within(system.model, longest + NUM_BOUNDARIES)
    if model is system.model:
        return system
    settings = {**system.settings, "model": model.model_dump(mode="json")}
    return replace(system, model=model, settings=settings)
