"""Detect behavioural differences between two systems by building and running them.

A change counts if a trial computes, learns, selects, measures or writes anything different with it. A change
that preserves every output still counts if it changes the computation: early exit, for example, changes which
layers are run. Two systems are the same system under two names if these results agree: effective settings,
losses, gradients and layers run at several weights, evaluations of short and long inputs, and counted
operations. Unused weights, and FLOPs that differ only by formula, do not count as a difference.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orchestrator.plan.ablation_check.effective_settings import Sweep, changed_aspects
from orchestrator.plan.ablation_check.passes import LENGTH, READ_LENGTH, Pass
from orchestrator.plan.ablation_check.probe import LAYERS, Probe
from orchestrator.plan.ablation_check.weights import Weights
from orchestrator.plan.space_check.spaces import enabling_params, ends
from orchestrator.plan.training_code.settings import System, validate_draw
from search_spaces.dimensions import Space, Value
from search_spaces.paths import leaves
from trainables.costs import depth_range, most_layers
from trainables.decoding.decode_config import LENGTH_MARGIN
from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.settings import limit_depth, limit_to_length

LEARNS = Pass(Weights.INITIAL, LENGTH, trains=True)
LEARNS_MOVED = Pass(Weights.RANDOM, READ_LENGTH, trains=True)
READS = (
    Pass(Weights.LATE, READ_LENGTH),
    Pass(Weights.INITIAL, READ_LENGTH),
    Pass(Weights.RANDOM, LENGTH, examples=32),
    Pass(Weights.RANDOM_AGAIN, READ_LENGTH),
    Pass(Weights.EARLY, READ_LENGTH),
    Pass(Weights.INITIAL, 256),
    Pass(Weights.INITIAL, 1024),
)
"""Evaluations: late and early halting, many examples with close halting probabilities, chunks and windows."""
READS_OF_SMALL = tuple(
    Pass(weights, LENGTH, examples=512) for weights in Weights if weights >= Weights.RANDOM
)
"""Evaluations of more examples, for close thresholds and for halting that differs between examples."""
TRAINS_SMALL = tuple(replace(training_pass, trains=True) for training_pass in READS_OF_SMALL)
"""Training passes on as many examples as `READS_OF_SMALL`, for dropout of few elements."""
SMALL = 1_000_000
"""Maximum number of parameters for passes with many examples."""
LONGEST_READ = 4096
"""Maximum number of tokens per input for comparing sizes of chunks and windows."""
UNSHOWN = frozenset({"weights", "FLOPs"})
"""Differences that are not sufficient evidence on their own."""
FUNCTIONAL = frozenset({"loss", "gradient", "costs", "layers run", "outputs"})


def differences(
    probe: Probe, first_system: System, second: System, sweep: Sweep
) -> Iterator[tuple[str, ...]]:
    """Yield the aspects in which `second` differs from `first_system`, the cheapest ones first.

    Args:
        probe: Cache of built models.
        first_system: The reference.
        second: The system that is compared with it.
        sweep: Properties of the spec.

    Yields:
        Words of `changed_aspects`, `weights`, `FLOPs`, words of `Measurements.different_quantities`,
        `operations` and `layers`.

    Raises:
        ValueError: A system cannot be run.
    """
    yield changed_aspects(first_system, second, sweep)
    longest = sweep.longest(first_system, second)
    first_system, second = (_within_inputs(system, longest) for system in (first_system, second))
    if not probe.same_model(first_system, second):
        old, new = probe.structure(first_system), probe.structure(second)
        yield ("weights",) if old.shapes != new.shapes else ()
        yield ("FLOPs",) if (old.flops_min, old.flops_max) != (new.flops_min, new.flops_max) else ()
        # Narrow models are faster, and every difference between them is one between the systems.
        for pair in (probe.narrow_pair(first_system, second), (first_system, second)):
            yield _measure_differences(probe, *pair, LEARNS)
            yield from _evaluations(probe, *pair, longest)
            yield _measure_differences(probe, *pair, LEARNS_MOVED)
            for training_pass in TRAINS_SMALL if _are_small(probe, *pair) else ():
                yield _measure_differences(probe, *pair, training_pass)
    elif first_system.train != second.train:
        pair = probe.narrow_pair(first_system, second)
        for training_pass in (LEARNS, LEARNS_MOVED):
            # Equal models give bitwise equal results. The weight of a cost without a gradient has no effect.
            old_gradient, new_gradient = (probe.measure(each, training_pass).gradient for each in pair)
            if old_gradient != new_gradient:
                yield _measure_differences(probe, *pair, training_pass)


def differ(probe: Probe, first: System, second: System, sweep: Sweep) -> bool:
    """Return whether `differences` yields sufficient evidence; raise ValueError if a system cannot be run."""
    return any(map(is_evidence, differences(probe, first, second, sweep)))


def is_evidence(aspects: Iterable[str], idle: Collection[str] = UNSHOWN) -> bool:
    """Return whether `aspects` contains more than the `idle` ones."""
    return any(word not in idle for word in aspects)


def evidence(
    probe: Probe,
    pair: tuple[System, System],
    sweep: Sweep,
    left_out: Collection[str],
    idle: Collection[str] = UNSHOWN,
) -> tuple[str, ...]:
    """Return the aspects in which the systems differ, settings first and data last; stop when they suffice.

    If they do not suffice, compare with one searched field at one of its ends.

    Args:
        probe: Cache of built models.
        pair: The reference, and the system that is compared with it.
        sweep: Properties of the spec, including the search space.
        left_out: Paths of searched fields to skip.
        idle: Aspects that do not suffice.

    Raises:
        ValueError: A system cannot be run.
    """
    aspects = _aspects(probe, pair, sweep, idle)
    for draw in draws(sweep.searched, pair[1].settings, left_out) if not is_evidence(aspects, idle) else ():
        old, new = (validate_draw(system.settings, draw) for system in pair)
        if isinstance(old, System) and isinstance(new, System):
            with suppress(ValueError):  # the check of the search reports values that cannot be run
                if is_evidence(found := _aspects(probe, (old, new), sweep, idle), idle):
                    return found
    return aspects


def _aspects(
    probe: Probe, pair: tuple[System, System], sweep: Sweep, idle: Collection[str]
) -> tuple[str, ...]:
    aspects: dict[str, None] = {}
    for words in differences(probe, *pair, sweep):
        aspects.update(dict.fromkeys(words))
        if is_evidence(words, idle) and (probe.faults_only or FUNCTIONAL & aspects.keys()):
            break
    return tuple(sorted(aspects, key="task".__eq__))


def evaluates_alike(probe: Probe, first: System, second: System, sweep: Sweep) -> bool:
    """Return whether an evaluation of one checkpoint gives the same results with both systems.

    Raises:
        ValueError: A system cannot be run.
    """
    longest = sweep.longest(first, second)
    return probe.same_model(first, second) or not any(
        words
        for pair in (probe.narrow_pair(first, second), (first, second))
        for words in _evaluations(probe, *pair, longest)
    )


def _evaluations(probe: Probe, first: System, second: System, longest: int) -> Iterator[tuple[str, ...]]:
    reach = min(longest, LONGEST_READ, 2 * max(_changed_sizes(first, second), default=0))
    training_passes = [*READS, *([Pass(Weights.INITIAL, reach)] if reach > READ_LENGTH else [])]
    training_passes += READS_OF_SMALL if _are_small(probe, first, second) else []
    for training_pass in training_passes:
        yield _measure_differences(probe, first, second, training_pass, longest)
    yield ("operations",) if probe.operations(first) != probe.operations(second) else ()
    # Layers beyond the maximum are not run, so only their number is compared.
    is_deep = any(limit_depth(system.model, LAYERS) != system.model for system in (first, second))
    if is_deep and len({_layers(system, longest) for system in (first, second)}) > 1:
        yield ("layers",)


def _measure_differences(
    probe: Probe, first: System, second: System, requested_pass: Pass, longest: int | None = None
) -> tuple[str, ...]:
    old, new = (probe.measure(system, requested_pass, longest) for system in (first, second))
    return new.different_quantities(old)


def _are_small(probe: Probe, *systems: System) -> bool:
    return all(probe.parameters(system) <= SMALL for system in systems)


def _changed_sizes(first: System, second: System) -> list[int]:
    """Return the values of integer model fields in which the systems differ."""
    old, new = (dict(leaves(system.settings["model"])) for system in (first, second))
    changed = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    return [value for path in changed for value in (old.get(path), new.get(path)) if type(value) is int]


def _layers(system: System, length: int) -> tuple[int, int]:
    """Return the least and greatest number of layers for an input of `length` tokens."""
    fewest_layers, most = depth_range(system.model, length)
    # The decoder of an answer has no length in advance, so its greatest depth is the general maximum.
    most = most if system.shape.head == "sequence" else most_layers(system.model, length)
    return min(fewest_layers, most), most


def _within_inputs(system: System, longest: int) -> System:
    """Return `system` without weights for position offsets beyond the longest input, which are never used."""
    answers = LENGTH_MARGIN * (system.shape.answer_length_max or 0)
    length = max(longest, answers, system.train.decode_length_max or 0) + NUM_BOUNDARIES
    model = limit_to_length(system.model, length)
    if model is system.model:
        return system
    return replace(system, model=model, settings={**system.settings, "model": model.model_dump(mode="json")})


def draws(
    space: Space, settings: Mapping[str, Any], left_out: Collection[str] = ()
) -> Iterator[dict[str, Value]]:
    """Yield assignments with one dimension at an end of its range, and the dimensions it depends on.

    Args:
        space: Search space of an arm.
        settings: Settings of the arm.
        left_out: Paths of dimensions to skip.
    """
    for dimension in space.dimensions:
        params = enabling_params(dimension, space, settings)
        if dimension.path not in left_out and params is not None:
            yield from ({**params, dimension.path: value} for value in ends(dimension.domain))
