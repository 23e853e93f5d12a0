"""In what two systems differ once they are built and run.

A change that leaves every output as it is still counts if it changes the work that is done: early exit, for
one, is an arm because the layers run differ. A setting of task or training counts if a trial computes,
selects, measures or writes anything else with it (`trainables.acting`). What agrees in all that, in losses,
gradients and layers run on all the weights that were tried, on long inputs, and in counted operations, is the
same system under another name: weights that nothing reads, FLOPs that only a formula has, and sums in another
order are no effect. What makes no difference beside the baseline's own values may make one beside those that
a search draws.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from orchestrator.plan.declared import Sweep, declared_effects
from orchestrator.plan.drawn_data import MOST_MADE, MOST_MEASURED, same_data
from orchestrator.plan.moved_weights import LATE, POINTS, RANDOM
from orchestrator.plan.probe import LAYERS, Probe
from orchestrator.plan.probed_model import EXAMPLES, LENGTH, READ_LENGTH, ForwardPass, close, same_gradient
from orchestrator.plan.renamed import only_renamed, other_names
from orchestrator.plan.settings import System, checked
from orchestrator.plan.spaces import assigned, condition_values, ends
from orchestrator.plan.unmet_bounds import of_like_bounds
from search_spaces.dimensions import Domain, Float, Int, Space, Value
from search_spaces.paths import leaves
from trainables import catalog
from trainables.costs import depth_range, most_layers
from trainables.settings import shallower
from trainables.task_catalog import splits, task_name

LARGE = 10_000_000
"""Parameters of a model that is not run again for dimensions and parts of an arm whose shapes show them, nor
for weights that no gradient reaches."""
LONGER = (256, 1024)
"""Tokens of inputs that are read where shorter ones show no difference: windows and chunks may be long."""
SOME, MANY = 32, 512
"""Short examples whose halting is looked at where two show no difference; thresholds may lie close."""
FEWER = 8
"""Looked at before: most of it, and what chooses for a batch, shows in so many already."""
FEW = 1_000_000
"""Most parameters of a model that is run on so many."""
UNSHOWN = ("weights", "FLOPs", "rounding")
"""Evidence that alone proves nothing: of a weight that nothing reads, a formula, sums in another order."""
FUNCTIONAL = frozenset({"loss", "gradient", "costs", "layers run", "outputs"})


def effects(probe: Probe, before: System, after: System, sweep: Sweep) -> tuple[str, ...]:
    """Everything in which `after` differs from `before`, by a word each; see `shows`.

    Raises ValueError for what cannot be run.
    """
    shapes = before.shape, after.shape
    before, after = of_like_bounds(before, after, sweep.tests)
    # Where bounds were found to be unmet the data have been made.
    most = MOST_MADE if shapes == (before.shape, after.shape) else MOST_MEASURED
    pairs = list(quick_first(probe, before, after))
    if pairs and other_names(probe, before, after) and _only_renamed(probe, pairs):
        return ("weights",)
    # Whoever shows nothing but faults asks only whether there is a difference: losses tell it the soonest.
    # Data from outside are drawn all the same, for they may fail.
    outside = any(catalog.is_outside("tasks", task_name(each.task)) for each in (before, after))
    if probe.faults_only and not outside and pairs and _differ_soon(probe, *pairs[0]):
        return ("loss",)
    seen = _seen(probe, *pairs[0], 0) if pairs else []
    found = [
        *_structural(probe, before, after),
        *declared_effects(probe, before, after, sweep, rehearsed=not shows(seen)),
        *seen,
    ]
    if (
        shows(found)
        and not shows(word for word in found if word != "task")
        and not _other_data(before, after, sweep, most)
    ):
        found.remove("task")
    for old, new in pairs:
        for point in range(POINTS):
            if shows(found):
                return tuple(found)
            found += [word for word in _seen(probe, old, new, point) if word not in found]
        if not shows(found) and not _alike(old, new):
            found += further(probe, old, new, sweep.longest(before, after))
            found += [] if shows(found) or dropped_alike(probe, old, new) else ["loss"]
    return tuple(found)


def quick_first(probe: Probe, before: System, after: System) -> Iterator[tuple[System, System]]:
    """Both with narrow models where they are wide; then, where nothing shows in those, both as they are.

    Nothing where both have the same model and loss.
    """
    if probe.same(before, after):
        return  # whatever is run gives the same
    quick = probe.narrow_pair(before, after)
    if quick != (before, after):
        yield quick
    yield before, after


def _only_renamed(probe: Probe, pairs: Sequence[tuple[System, System]]) -> bool:
    """Whether weights have other names in these and nothing else differs; in large models, in narrow ones."""
    small = [pair for pair in pairs if not large(probe, pair[1])]
    return all(only_renamed(probe, *pair) for pair in small or pairs[:1])


def shows(found: Iterable[str]) -> bool:
    """Whether there is more than what proves nothing alone."""
    return any(word not in UNSHOWN for word in found)


def differ(probe: Probe, before: System, after: System, sweep: Sweep, *, narrow: bool = False) -> bool:
    """Whether `effects` would show anything; cheaper, for it stops at the first difference.

    `narrow` looks at wide models as they are only where narrow ones have the same settings.
    """
    before, after = of_like_bounds(before, after, sweep.tests)
    if declared_effects(probe, before, after, sweep):
        return True
    # Running a large model once more takes longer than all else of a plan.
    if large(probe, after) and not _alike(before, after) and _structural(probe, before, after):
        return True
    for old, new in quick_first(probe, before, after):
        if _differ_run(probe, old, new, sweep.longest(before, after)):
            return not (other_names(probe, before, after) and only_renamed(probe, old, new))
        if narrow and not _alike(old, new):
            break
        if _alike(old, new) and all(probe.pull_alike(old, new, point) for point in range(POINTS)):
            break  # what has no gradient at any weights has none in wider layers
    return False


def differ_at_once(probe: Probe, before: System, after: System) -> bool:
    """Whether one forward pass of each measures something else, the layers that are run left out; where none
    does, nothing is said.

    Raises ValueError for what cannot be run.
    """
    pair = next(quick_first(probe, before, after), None)
    if pair is None or _alike(*pair):
        return False
    if _costs_differ(*map(probe.inference, pair)):
        return True
    with suppress(ValueError):  # reported where nothing else shows one
        return results_differ(probe, *pair, 0, EXAMPLES)
    return False


def learn_otherwise_at_once(probe: Probe, before: System, after: System) -> bool:
    """Whether the first gradients of two trainings of one model differ; where they do not, nothing is said.

    Raises ValueError for what cannot be run.
    """
    pair = next(quick_first(probe, before, after), None)
    if pair is None or not _alike(*pair) or probe.pull_alike(*pair, 0):
        return False
    return not same_gradient(*(probe.gradient(each) for each in pair))


def results_differ(
    probe: Probe, before: System, after: System, point: int, examples: int, *, length: int = READ_LENGTH
) -> bool:
    """Whether an evaluation of so many `examples` measures something else, the layers that are run left out.

    Raises ValueError for what cannot be run.
    """
    old, new = (probe.reading(each, point, length, examples=examples) for each in (before, after))
    # After loss, hits and depth of all.
    measured = [(*each[: 3 * examples], *each[4 * examples :]) for each in (old, new)]
    return len(old) != len(new) or not all(map(close, *measured))


def _differ_run(probe: Probe, before: System, after: System, longest: int) -> bool:
    if _differ_soon(probe, before, after):
        return True
    # Point by point, for models are kept no longer than that.
    if any(_shown(probe, before, after, point) for point in range(POINTS)):
        return True
    if _alike(before, after):
        return False
    return differ_further(probe, before, after, longest) or not dropped_alike(probe, before, after)


def large(probe: Probe, system: System) -> bool:
    """Whether a model takes so long to run that it is run no more often than is needed."""
    return probe.structure(system).parameters > LARGE


def _alike(before: System, after: System) -> bool:
    """Whether both have the same model, built for the same task."""
    return before.model == after.model and before.shape == after.shape


def differ_further(probe: Probe, before: System, after: System, longest: int) -> bool:
    """Whether `further` would show anything; cheaper, for many short examples are looked at before long ones
    at all weights. Raises ValueError for what cannot be run."""
    return (
        results_differ(probe, before, after, RANDOM, FEWER, length=LENGTH)
        or not _reads_alike(probe, (before, after), 0, READ_LENGTH, longest)
        or not _halt_alike(probe, before, after)
        or bool(further(probe, before, after, longest))
    )


def further(probe: Probe, before: System, after: System, longest: int) -> list[str]:
    """What shows on inputs of up to `longest` tokens, those of tests too, or in operations that are counted.

    Raises ValueError for what cannot be run.
    """
    tried = [(point, READ_LENGTH) for point in range(POINTS)]
    tried += [(0, length) for length in _lengths(before, after, longest)]
    if not all(_reads_alike(probe, (before, after), point, length, longest) for point, length in tried):
        return ["outputs"]
    if not _halt_alike(probe, before, after):
        return ["layers run"]
    if probe.operations(before) != probe.operations(after):
        return ["operations"]
    # More layers than are run here: of them only is known how many there can be.
    deep = any(shallower(system.model, LAYERS) != system.model for system in (before, after))
    alike = shallower(before.model, LAYERS) == shallower(after.model, LAYERS)
    ranges = {_layers(system, longest) for system in (before, after)}
    return ["layers"] if deep and alike and len(ranges) > 1 else []


def _layers(system: System, length: int) -> tuple[int, int]:
    """Least and greatest number of layers that an input of `length` tokens can take."""
    least, most = depth_range(system.model, length)
    # An answer is written by a decoder that does not know how long it will be.
    most = most if system.shape.head == "sequence" else most_layers(system.model, length)
    return min(least, most), most


def _lengths(before: System, after: System, longest: int) -> list[int]:
    """Tokens of inputs long enough for windows and chunks of which both have others."""
    sizes = [each for each in _changed(before, after) if type(each) is int]
    reach = min(longest, 2 * max(sizes, default=0))
    trained = max(before.shape.length_max, after.shape.length_max)
    found = [length for length in LONGER if length // 2 < trained]
    return [*found, reach] if reach > max([READ_LENGTH, *found]) else found


def _changed(before: System, after: System) -> list[Any]:
    """Values of both in the fields of the model where they differ."""
    one, other = (dict(leaves(system.settings["model"])) for system in (before, after))
    return [each[path] for each in (one, other) for path in each if one.get(path) != other.get(path)]


def _halt_alike(probe: Probe, before: System, after: System) -> bool:
    """Whether many examples halt where they did, if anything halts and models are small."""
    known = [probe.structure(system) for system in (before, after)]
    if any(each.parameters > FEW for each in known) or all(
        each.depth_min == each.depth_max for each in known
    ):
        return True
    thresholds = any(type(value) is float for value in _changed(before, after))
    for examples in (SOME, MANY) if thresholds else (SOME,):
        layers = slice(2 * examples, 4 * examples)  # depth and layers run, after loss and hits
        for point in range(RANDOM, POINTS):
            old, new = (probe.reading(each, point, LENGTH, examples=examples) for each in (before, after))
            if old[layers] != new[layers]:
                return False
    return True


def dropped_alike(probe: Probe, before: System, after: System) -> bool:
    """Whether many examples give what they gave while elements are dropped, if models are small.

    A share of few of them, of which others are not made larger for it, shows in none of two examples.
    """
    rates = any(type(value) is float for value in _changed(before, after))
    if not rates or any(probe.structure(system).parameters > FEW for system in (before, after)):
        return True
    for examples in (SOME, MANY):
        old, new = (
            probe.reading(each, RANDOM, LENGTH, examples=examples, dropping=True) for each in (before, after)
        )
        if len(old) != len(new) or not all(map(close, old, new)):
            return False
    return True


def _differ_soon(probe: Probe, before: System, after: System) -> bool:
    """Whether two models differ where most do: in their first losses, or in evaluations of longer inputs.

    Those are at the initial weights, and where what halts does so late.

    Raises ValueError for what cannot be run.
    """
    if _alike(before, after):
        return False
    if _begin_otherwise(probe, before, after):
        return True
    with suppress(ValueError):  # reported where nothing else shows a difference
        longest = max(before.shape.length_max, after.shape.length_max)
        pair = before, after
        return any(not _reads_alike(probe, pair, point, READ_LENGTH, longest) for point in (0, LATE))
    return False


def _reads_alike(probe: Probe, pair: tuple[System, System], point: int, length: int, longest: int) -> bool:
    """Whether an evaluation of both measures the same, up to the order of sums, at weights `point`.

    Inputs have `length` tokens, but no more than `longest`. Raises ValueError for what cannot be run.
    """
    old, new = (probe.reading(each, point, length, longest=longest) for each in pair)
    return len(old) == len(new) and all(map(close, old, new))


def _structural(probe: Probe, before: System, after: System) -> list[str]:
    old, new = probe.structure(before), probe.structure(after)
    return [
        *(["weights"] if old.shapes != new.shapes else []),
        *(["FLOPs"] if (old.flops_min, old.flops_max) != (new.flops_min, new.flops_max) else []),
    ]


def _other_data(before: System, after: System, sweep: Sweep, most: int) -> bool:
    """Whether a trial reads other examples, as far as no more than `most` are made to see it."""
    read = [info.name for info in splits(before.task) if info.role != "test"]
    alike = asdict(before.shape) == asdict(after.shape)
    return not (alike and same_data(before, after, [*read, *sweep.tests], most))


def _shown(probe: Probe, before: System, after: System, point: int) -> bool:
    """Whether `_seen` finds more than what proves nothing alone, without a backward pass if it can."""
    return _forward_differs(probe, before, after, point) or shows(_seen(probe, before, after, point))


def _forward_differs(probe: Probe, before: System, after: System, point: int) -> bool:
    if _alike(before, after):
        return False  # losses alone show nothing there, see `_seen`
    return _passes_differ(probe.forward(before, point), probe.forward(after, point))


def _begin_otherwise(probe: Probe, before: System, after: System) -> bool:
    """As `_forward_differs` at the initial weights, where mostly no gradient is asked for afterwards."""
    return not _alike(before, after) and _passes_differ(probe.inference(before), probe.inference(after))


def _passes_differ(old: ForwardPass, new: ForwardPass) -> bool:
    return old.layers != new.layers or _costs_differ(old, new)


def costs_differ(probe: Probe, before: System, after: System, point: int) -> bool:
    """Whether losses differ, or what is added to them: that shows in the gradient, or else in itself."""
    return _costs_differ(probe.forward(before, point), probe.forward(after, point))


def _costs_differ(old: ForwardPass, new: ForwardPass) -> bool:
    return not close(old.loss, new.loss) or not all(map(close, old.costs, new.costs))


def _seen(probe: Probe, before: System, after: System, point: int) -> list[str]:
    if probe.pull_alike(before, after, point):
        return []  # as below, without a backward pass
    old, new = probe.forward(before, point), probe.forward(after, point)
    gradient, other = probe.gradient(before, point), probe.gradient(after, point)
    loss, turned = close(old.loss, new.loss), same_gradient(gradient, other)
    if _alike(before, after) and gradient == other:
        # What the losses of one model differ by has no gradient, like the ponder cost of its only layer.
        return []
    same = old.loss == new.loss and gradient == other
    return [
        *(["loss"] if not loss else []),
        *(["gradient"] if not turned else []),
        *(["costs"] if loss and turned and not all(map(close, old.costs, new.costs)) else []),
        *(["layers run"] if old.layers != new.layers else []),
        *(["rounding"] if loss and turned and not same else []),
    ]


def draws(space: Space, left_out: Collection[str] = ()) -> Iterator[dict[str, Value]]:
    """Every dimension of `space` at each of its ends, alone, with what it depends on."""
    for dimension in space.dimensions:
        if dimension.path not in left_out:
            for value in ends(dimension.domain):
                yield {**condition_values(dimension, space), dimension.path: value}


def effects_where_searched(
    probe: Probe, before: System, after: System, sweep: Sweep, left_out: Collection[str]
) -> tuple[str, ...]:
    """What `effects` shows of both with one of the searched fields, but those `left_out`, at one of its ends.

    Empty where nothing does, or where nothing is searched.
    """
    for draw in draws(sweep.searched, left_out):
        one, other = (_with(system.settings, draw) for system in (before, after))
        if one is None or other is None:
            continue
        with suppress(ValueError):  # what cannot be run there is reported of the search
            if shows(found := effects(probe, one, other, sweep)):
                return found
    return ()


def undone_by(
    probe: Probe, before: System, after: System, sweep: Sweep, left_out: Collection[str]
) -> tuple[str, list[Value]] | None:
    """The searched field of task or training, but those `left_out`, beside which `effects` shows nothing of
    both, and the values at which that was looked at: its ends and its middle; None where there is none."""
    for dimension in sweep.searched.dimensions:
        if dimension.path in left_out or dimension.path.startswith("model."):
            continue
        low, *others = ends(dimension.domain)
        tried = list(dict.fromkeys((low, *_middle(dimension.domain), *others)))
        met = condition_values(dimension, sweep.searched)
        pairs = [
            [_with(system.settings, {**met, dimension.path: value}) for system in (before, after)]
            for value in tried
        ]
        with suppress(ValueError):  # what cannot be run there is reported of the search
            if all(
                one is not None and other is not None and not shows(effects(probe, one, other, sweep))
                for one, other in pairs
            ):
                return dimension.path, tried
    return None


def _middle(domain: Domain) -> list[Value]:
    """A value between the ends of a range of numbers."""
    if isinstance(domain, Int):
        return [domain.low + (domain.high - domain.low) // (2 * (domain.step or 1)) * (domain.step or 1)]
    return [(domain.low + domain.high) / 2] if isinstance(domain, Float) and domain.step is None else []


def _with(settings: Mapping[str, Any], draw: Mapping[str, Value]) -> System | None:
    made = assigned(settings, draw)
    found = None if made is None else checked(made)
    return found if isinstance(found, System) else None
