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

from orchestrator.plan.ablation_check.effective_settings import SweepFacts, changed_aspects
from orchestrator.plan.ablation_check.passes import EVALUATION_LENGTH, TRAINING_LENGTH, Pass
from orchestrator.plan.ablation_check.probe import LAYERS, Probe
from orchestrator.plan.ablation_check.weights import TestedWeights
from orchestrator.plan.space_check.spaces import enabling_params, range_ends
from orchestrator.plan.training_code.settings import ParsedSettings, validate_draw
from search_spaces.dimensions import Space, Value
from search_spaces.paths import leaves
from trainables.costs import depth_range, most_layers
from trainables.decoding.decode_config import LENGTH_MARGIN
from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.settings import limit_depth, limit_to_length

TRAINING_PASS = Pass(TestedWeights.INITIAL, TRAINING_LENGTH, trains=True)
MOVED_TRAINING_PASS = Pass(TestedWeights.RANDOM, EVALUATION_LENGTH, trains=True)
EVALUATION_PASSES = (
    Pass(TestedWeights.LATE, EVALUATION_LENGTH),
    Pass(TestedWeights.INITIAL, EVALUATION_LENGTH),
    Pass(TestedWeights.RANDOM, TRAINING_LENGTH, examples=32),
    Pass(TestedWeights.RANDOM_AGAIN, EVALUATION_LENGTH),
    Pass(TestedWeights.EARLY, EVALUATION_LENGTH),
    Pass(TestedWeights.INITIAL, 256),
    Pass(TestedWeights.INITIAL, 1024),
)
"""Evaluations: late and early halting, many examples with close halting probabilities, chunks and windows."""
MANY_EXAMPLE_EVALUATIONS = tuple(
    Pass(weights, TRAINING_LENGTH, examples=512)
    for weights in TestedWeights
    if weights >= TestedWeights.RANDOM
)
"""Evaluations of more examples, for close thresholds and for halting that differs between examples."""
MANY_EXAMPLE_TRAINING = tuple(
    replace(training_pass, trains=True) for training_pass in MANY_EXAMPLE_EVALUATIONS
)
"""Training passes on as many examples as `MANY_EXAMPLE_EVALUATIONS`, for dropout of few elements."""
MAX_SMALL_PARAMETERS = 1_000_000
"""Maximum number of parameters for passes with many examples."""
MAX_EVALUATED_TOKENS = 4096
"""Maximum number of tokens per input for comparing sizes of chunks and windows."""
INSUFFICIENT_ASPECTS = frozenset({"weights", "FLOPs"})
"""Differences that are not sufficient evidence on their own."""
BEHAVIOURAL_ASPECTS = frozenset({"loss", "gradient", "costs", "layers run", "outputs"})


def differences(
    probe: Probe, first_system: ParsedSettings, second: ParsedSettings, sweep: SweepFacts
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
            yield _measure_differences(probe, *pair, TRAINING_PASS)
            yield from _evaluations(probe, *pair, longest)
            yield _measure_differences(probe, *pair, MOVED_TRAINING_PASS)
            for training_pass in MANY_EXAMPLE_TRAINING if _are_small(probe, *pair) else ():
                yield _measure_differences(probe, *pair, training_pass)
    elif first_system.train != second.train:
        pair = probe.narrow_pair(first_system, second)
        for training_pass in (TRAINING_PASS, MOVED_TRAINING_PASS):
            # Equal models give bitwise equal results. The weight of a cost without a gradient has no effect.
            old_gradient, new_gradient = (probe.measure(each, training_pass).gradient for each in pair)
            if old_gradient != new_gradient:
                yield _measure_differences(probe, *pair, training_pass)


def differ(probe: Probe, first: ParsedSettings, second: ParsedSettings, sweep: SweepFacts) -> bool:
    """Return whether `differences` yields sufficient evidence; raise ValueError if a system cannot be run."""
    return any(map(is_evidence, differences(probe, first, second, sweep)))


def is_evidence(aspects: Iterable[str], idle: Collection[str] = INSUFFICIENT_ASPECTS) -> bool:
    """Return whether `aspects` contains more than the `idle` ones."""
    return any(word not in idle for word in aspects)


def evidence(
    probe: Probe,
    pair: tuple[ParsedSettings, ParsedSettings],
    sweep: SweepFacts,
    left_out: Collection[str],
    idle: Collection[str] = INSUFFICIENT_ASPECTS,
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
    for draw in (
        draws(sweep.search_space, pair[1].settings, left_out) if not is_evidence(aspects, idle) else ()
    ):
        old, new = (validate_draw(system.settings, draw) for system in pair)
        if isinstance(old, ParsedSettings) and isinstance(new, ParsedSettings):
            with suppress(ValueError):  # the check of the search reports values that cannot be run
                if is_evidence(found := _aspects(probe, (old, new), sweep, idle), idle):
                    return found
    return aspects


def _aspects(
    probe: Probe, pair: tuple[ParsedSettings, ParsedSettings], sweep: SweepFacts, idle: Collection[str]
) -> tuple[str, ...]:
    aspects: dict[str, None] = {}
    for words in differences(probe, *pair, sweep):
        aspects.update(dict.fromkeys(words))
        if is_evidence(words, idle) and (probe.faults_only or BEHAVIOURAL_ASPECTS & aspects.keys()):
            break
    return tuple(sorted(aspects, key="task".__eq__))


def evaluates_alike(probe: Probe, first: ParsedSettings, second: ParsedSettings, sweep: SweepFacts) -> bool:
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


def _evaluations(
    probe: Probe, first: ParsedSettings, second: ParsedSettings, longest: int
) -> Iterator[tuple[str, ...]]:
    reach = min(longest, MAX_EVALUATED_TOKENS, 2 * max(_changed_sizes(first, second), default=0))
    training_passes = [
        *EVALUATION_PASSES,
        *([Pass(TestedWeights.INITIAL, reach)] if reach > EVALUATION_LENGTH else []),
    ]
    training_passes += MANY_EXAMPLE_EVALUATIONS if _are_small(probe, first, second) else []
    for training_pass in training_passes:
        yield _measure_differences(probe, first, second, training_pass, longest)
    yield ("operations",) if probe.operations(first) != probe.operations(second) else ()
    # Layers beyond the maximum are not run, so only their number is compared.
    is_deep = any(limit_depth(system.model, LAYERS) != system.model for system in (first, second))
    if is_deep and len({_layers(system, longest) for system in (first, second)}) > 1:
        yield ("layers",)


def _measure_differences(
    probe: Probe,
    first: ParsedSettings,
    second: ParsedSettings,
    requested_pass: Pass,
    longest: int | None = None,
) -> tuple[str, ...]:
    old, new = (probe.measure(system, requested_pass, longest) for system in (first, second))
    return new.different_quantities(old)


def _are_small(probe: Probe, *systems: ParsedSettings) -> bool:
    return all(probe.parameters(system) <= MAX_SMALL_PARAMETERS for system in systems)


def _changed_sizes(first: ParsedSettings, second: ParsedSettings) -> list[int]:
    """Return the values of integer model fields in which the systems differ."""
    old, new = (dict(leaves(system.settings["model"])) for system in (first, second))
    changed = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    return [value for path in changed for value in (old.get(path), new.get(path)) if type(value) is int]


def _layers(system: ParsedSettings, length: int) -> tuple[int, int]:
    """Return the least and greatest number of layers for an input of `length` tokens."""
    fewest_layers, most = depth_range(system.model, length)
    # The decoder of an answer has no length in advance, so its greatest depth is the general maximum.
    most = most if system.shape.head == "sequence" else most_layers(system.model, length)
    return min(fewest_layers, most), most


def _within_inputs(system: ParsedSettings, longest: int) -> ParsedSettings:
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
            yield from ({**params, dimension.path: value} for value in range_ends(dimension.domain))
