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
from orchestrator.plan.space_check.spaces import assign_params, enabling_params, ends
from orchestrator.plan.training_code.settings import System, checked
from search_spaces.dimensions import Space, Value
from search_spaces.paths import leaves
from trainables.costs import depth_range, most_layers
from trainables.decoding.decode_config import LENGTH_MARGIN
from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.settings import limit_to_length, shallower

FIRST = Pass(Weights.INITIAL, LENGTH, trains=True)
LEARNS = Pass(Weights.INITIAL, LENGTH, trains=True, learns=True)
LEARNS_MOVED = Pass(Weights.RANDOM, READ_LENGTH, trains=True, learns=True)
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
UNSHOWN = ("weights", "FLOPs")
"""Differences that are not sufficient evidence on their own."""
FUNCTIONAL = frozenset({"loss", "gradient", "costs", "layers run", "outputs"})


def differences(
    probe: Probe, first_system: System, second: System, sweep: Sweep, first: Pass = FIRST
) -> Iterator[tuple[str, ...]]:
    """Yield the aspects in which `second` differs from `first_system`, the cheapest ones first.

    Args:
        probe: Cache of built models.
        first_system: The reference.
        second: The system that is compared with it.
        sweep: Properties of the spec.
        first: First pass for different models.

    Yields:
        Words of `changed_aspects`, `weights`, `FLOPs`, words of `Measurements.unlike`, `gradient`,
        `operations` and `layers`.

    Raises:
        ValueError: A system cannot be run.
    """
    settings = changed_aspects(first_system, second, sweep)
    yield tuple(word for word in settings if word != "task")
    longest = sweep.longest(first_system, second)
    first_system, second = (_within_inputs(system, longest) for system in (first_system, second))
    if probe.same_model(first_system, second):
        # A different weight of a cost changes the gradient, if the cost has one.
        if first_system.train != second.train:
            narrow, other_narrow = probe.narrow_pair(first_system, second)
            for training_pass in (LEARNS, LEARNS_MOVED):
                # Equal models give bitwise equal results, so only costs with a gradient differ.
                learn = [probe.measure(system, training_pass).gradient for system in (narrow, other_narrow)]
                if learn[0] != learn[1]:
                    yield _measure_differences(probe, narrow, other_narrow, training_pass)
    else:
        old, new = probe.structure(first_system), probe.structure(second)
        yield ("weights",) if old.shapes != new.shapes else ()
        yield ("FLOPs",) if (old.flops_min, old.flops_max) != (new.flops_min, new.flops_max) else ()
        for pair in _narrow_before_wide(probe, first_system, second):
            yield _measure_differences(probe, *pair, first)
            yield from _model_differences(probe, *pair, longest)
    if "task" in settings:
        yield ("task",)


def differ(probe: Probe, first: System, second: System, sweep: Sweep) -> bool:
    """Return whether `differences` yields sufficient evidence; raise ValueError if a system cannot be run."""
    # Other data are evidence that costs nothing; equal models would be run with every pass before it.
    return "task" in changed_aspects(first, second, sweep) or any(
        is_evidence(words) for words in differences(probe, first, second, sweep)
    )


def is_evidence(aspects: Iterable[str]) -> bool:
    """Return whether `aspects` contains more than weights and FLOPs."""
    return any(word not in UNSHOWN for word in aspects)


def evidence(probe: Probe, first: System, second: System, sweep: Sweep) -> tuple[str, ...]:
    """Return the aspects in which the systems differ, settings first; stop when they are sufficient.

    Raises:
        ValueError: A system cannot be run.
    """
    texts: dict[str, None] = {}
    for words in differences(probe, first, second, sweep, FIRST if probe.faults_only else LEARNS):
        texts.update(dict.fromkeys("layers run" if word == "depth" else word for word in words))
        if is_evidence(words) and (probe.faults_only or FUNCTIONAL & texts.keys()):
            break
    task = "task" in changed_aspects(first, second, sweep) and is_evidence(texts)
    return tuple(dict.fromkeys([*texts, *(["task"] if task else [])]))


def evaluates_alike(probe: Probe, first: System, second: System, sweep: Sweep) -> bool:
    """Return whether an evaluation of one checkpoint gives the same results with both systems.

    Raises:
        ValueError: A system cannot be run.
    """
    longest = sweep.longest(first, second)
    return probe.same_model(first, second) or not any(
        words
        for pair in _narrow_before_wide(probe, first, second)
        for words in _evaluations(probe, *pair, longest)
    )


def _narrow_before_wide(probe: Probe, first: System, second: System) -> Iterator[tuple[System, System]]:
    """Yield both systems with narrow models if their models are wide, then both systems unchanged."""
    quick = probe.narrow_pair(first, second)
    if quick[0] is not first:
        yield quick
    yield first, second


def _model_differences(
    probe: Probe, first: System, second: System, longest: int
) -> Iterator[tuple[str, ...]]:
    yield from _evaluations(probe, first, second, longest)
    yield _measure_differences(probe, first, second, LEARNS)
    yield _measure_differences(probe, first, second, LEARNS_MOVED)
    for training_pass in TRAINS_SMALL if _are_small(probe, first, second) else ():
        yield _measure_differences(probe, first, second, training_pass)


def _evaluations(probe: Probe, first: System, second: System, longest: int) -> Iterator[tuple[str, ...]]:
    reach = min(longest, LONGEST_READ, 2 * max(_changed_sizes(first, second), default=0))
    training_passes = [*READS, *([Pass(Weights.INITIAL, reach)] if reach > READ_LENGTH else [])]
    training_passes += READS_OF_SMALL if _are_small(probe, first, second) else []
    for training_pass in training_passes:
        yield _measure_differences(probe, first, second, training_pass, longest)
    yield ("operations",) if probe.operations(first) != probe.operations(second) else ()
    # Layers beyond the maximum are not run, so only their number is compared.
    is_deep = any(shallower(system.model, LAYERS) != system.model for system in (first, second))
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


def evidence_at_searched_values(
    probe: Probe, first: System, second: System, sweep: Sweep, left_out: Collection[str]
) -> tuple[str, ...]:
    """Return the `evidence` with one searched field at one of its ends; empty if there is none.

    Args:
        probe: Cache of built models.
        first: The reference.
        second: The system that is compared with it.
        sweep: Properties of the spec, including the search space.
        left_out: Paths of dimensions to skip.
    """
    for draw in draws(sweep.searched, second.settings, left_out):
        first_system, second_system = (_system_with_draw(system.settings, draw) for system in (first, second))
        if first_system is None or second_system is None:
            continue
        with suppress(ValueError):  # the check of the search reports values that cannot be run
            if is_evidence(texts := evidence(probe, first_system, second_system, sweep)):
                return texts
    return ()


def _system_with_draw(settings: Mapping[str, Any], draw: Mapping[str, Value]) -> System | None:
    assigned_settings = assign_params(settings, draw)
    checked_settings = None if assigned_settings is None else checked(assigned_settings)
    return checked_settings if isinstance(checked_settings, System) else None
