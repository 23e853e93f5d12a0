"""Validate the relations between the parts of a spec whose single values are valid."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from orchestrator.search import space_catalog
from orchestrator.spec.document import Keys
from orchestrator.spec.metric_splits import SELECTION_SPLIT, is_named_for_test_data, outcome_split
from orchestrator.spec.published_cells import cell_problems
from orchestrator.spec.section import Objective
from orchestrator.spec.types import ArmBudget, Budget, CustomSpec, Search, Spec
from search_spaces.algebra import CyclicSpace, merge
from search_spaces.dimensions import Dimension, Fixed, Space
from search_spaces.paths import ROOTS, Paths, leaves
from search_spaces.wording import hint
from trainables.custom.extensions import BadName
from trainables.metrics import TEST, TRAIN, VALIDATION_SPLITS, metric_name, split_and_quantity

BASELINE: Final = "baseline"
MIN_SEEDS_WITH_LOOKS: Final = 4  # number of seeds or repeats; the first look is after three
MIN_TIME_LIMITS: Final = {"hours": 1 / 3600, "minutes": 1 / 60}
"""Smallest valid time limits; no trial could run within a shorter one."""
EVALUATION_FIELDS: Final = ("train.beam_size", "train.length_penalty", "train.decode_length_max")
"""Fields of training that affect only the evaluation of a trained model."""
THREADS: Final = "train.threads"
VALIDATION_ADVICE: Final = "Name a metric of validation data that trials report"
_TRAINING_SPLITS: Final = {"train", "valid"}
"""Splits that every trial reads, and that therefore cannot be test splits."""
Problems = Iterator[tuple[Keys, str]]


def find_conflicts(spec: Spec) -> list[tuple[Keys, str]]:
    """Return the keys and the message of every conflict between parts of `spec`.

    Unknown spaces are reported alone, because most other rules need the searched fields.
    """
    unknown_spaces = list(_unknown_spaces(spec))
    return unknown_spaces or [problem for rule in _RULES for problem in rule(spec)]


def _is_custom(spec: Spec) -> bool:
    return isinstance(spec, CustomSpec)


def _searched_dimensions(spec: Spec) -> dict[str, Dimension]:
    """Return all searched fields by path."""
    if spec.search is None:
        return {}
    dimensions = [dimension for space in _spaces(spec.search) for dimension in space.dimensions]
    return {dimension.path: dimension for dimension in (*dimensions, *spec.search.also)}


def _spaces(search: Search) -> list[Space]:
    return [space_catalog.load(name) for name in search.spaces]


def _unknown_spaces(spec: Spec) -> Problems:
    for place, name in enumerate(spec.search.spaces) if spec.search is not None else ():
        try:
            space_catalog.load(name)
        except BadName as error:
            yield ("search", "spaces", place), str(error)


def _phases(spec: Spec) -> Problems:
    if spec.search is None and spec.confirm is None:
        yield (), "must have a search, a confirm or both, got neither"
    if spec.search is None:
        for name, arm in spec.arms.items():
            if not arm.set:
                yield (
                    ("arms", name, "control"),
                    "requires a search; otherwise it equals the baseline",
                )
    if spec.posthoc and spec.confirm is None:
        yield ("posthoc",), "requires confirm, because confirm trials store the checkpoints"
    for path in () if _is_custom(spec) else spec.posthoc:
        if path.startswith("train.") and path not in EVALUATION_FIELDS:
            advice = f"must be a field of model or task, or one of {', '.join(EVALUATION_FIELDS)}"
            yield ("posthoc", path), f"{advice}: a stored checkpoint is evaluated without training"


def _nesting(spec: Spec) -> Problems:
    if isinstance(spec, CustomSpec):
        for path, count in Counter(path for path, _ in leaves(spec.baseline)).items():
            if count > 1:
                fields = f"two fields, the key {path!r} and one inside of a mapping"
                yield (BASELINE, path), f"names {fields}: rename one of them"
        return
    for root in ROOTS:
        for key in getattr(spec.baseline, root):
            outer, dot, inner = str(key).partition(".")
            if dot:
                yield (BASELINE, root, key), f"must be nested here, as {outer}: {{{inner}: ...}}"


def _search(spec: Spec) -> Problems:
    search = spec.search
    if search is None:
        return
    spaces, dimensions = _spaces(search), _searched_dimensions(spec).values()
    if not search.spaces and all(isinstance(dimension.domain, Fixed) for dimension in dimensions):
        yield ("search",), "must vary something: name a space under spaces or write a range under also"
    for place, (name, space) in enumerate(zip(search.spaces, spaces, strict=True)):
        later_paths = {path for space in (Space(search.also), *spaces[place + 1 :]) for path in space.paths}
        if later_paths.issuperset(space.paths) and not space.constraints:
            message = f"{name} has no effect, because later ranges replace all of its ranges: leave it out"
            yield ("search", "spaces", place), message
    try:
        merge(*spaces, Space(search.also))
    except CyclicSpace as error:
        yield ("search", "also"), str(error)
    if len(search.objectives) > 1 and search.stopper is not None:
        message = f"must be null with {len(search.objectives)} objectives: early stopping needs a single one"
        yield ("search", "stopper"), message
    for place, objective in enumerate(search.objectives):
        if objective.metric in [objective.metric for objective in search.objectives[:place]]:
            message = "must be another metric than the objectives before it"
            yield ("search", "objectives", place, "metric"), message
        yield from _objective(spec, place, objective, len(search.objectives))


def _objective(spec: Spec, index: int, objective: Objective, count: int) -> Problems:
    keys = ("search", "objectives", index)
    metric, split = objective.metric, objective.split
    tests = _true_test_splits(spec)
    if count > 1 and objective.scope == "best":
        reason = "each objective may have another best report"
        yield (*keys, "scope"), f"must be last or mean-of-last-N with {count} objectives, got best: {reason}"
    if split in tests:
        message = f"must not be a test split, got {split!r}: searches never use test data"
        yield (*keys, "split"), f"{message}. {VALIDATION_ADVICE}"
    elif _names_test_data(objective, spec):
        declare = f", or write split: {SELECTION_SPLIT} beside it if it is measured on these data"
        message = (
            f"must not be on a test split, got {metric}: searches never use test data. {VALIDATION_ADVICE}"
        )
        yield (*keys, "metric"), message + declare * (split_and_quantity(metric)[0] not in tests)


def _true_test_splits(spec: Spec) -> list[str]:
    """Return `confirm.splits` without the splits of training, which are refused there."""
    return [name for name in spec.test_splits if name not in _TRAINING_SPLITS]


def _names_test_data(objective: Objective, spec: Spec) -> bool:
    """Return whether the name of an objective begins like test data, such as `test/loss` or `test_loss`."""
    is_test_metric = split_and_quantity(objective.metric)[0] in _true_test_splits(spec)
    return is_test_metric or (objective.split is None and is_named_for_test_data(objective.metric))


def _confirm(spec: Spec) -> Problems:
    confirm, search = spec.confirm, spec.search
    if confirm is None:
        return
    if confirm.best > 1 and search is None:
        message = f"must be 1 without a search, each arm then has one assignment, got {confirm.best}"
        yield ("confirm", "best"), message
    if search is not None and confirm.best > search.trials_per_arm:
        message = f"must be at most search.trials_per_arm, {search.trials_per_arm}, got {confirm.best}"
        yield ("confirm", "best"), message
    for place, split in enumerate(confirm.splits):
        if split in _TRAINING_SPLITS:
            message = f"must be a test split, got {split!r}, which every trial reads anyway"
            yield ("confirm", "splits", place), message
    examples = confirm.halting_examples
    if examples and _is_custom(spec):
        message = f"must be 0 for a custom trainable, whose layers cannot be observed, got {examples}"
        yield ("confirm", "halting_examples"), message
    elif examples and not confirm.splits:
        message = f"requires confirm.splits (examples of its first split), got {examples} and no split"
        yield ("confirm", "halting_examples"), message
    if confirm.stop == "decided":
        yield from _stop(spec)


def _stop(spec: Spec) -> Problems:
    """Yield conflicts of `confirm.stop`: a look needs enough seeds and one set of params per arm."""
    assert spec.confirm is not None
    keys = ("confirm", "stop")
    count, unit = (spec.repeats, "repeats") if spec.repeats > 1 else (len(spec.confirm.seeds), "seeds")
    if count < MIN_SEEDS_WITH_LOOKS:
        yield keys, f"needs {MIN_SEEDS_WITH_LOOKS} {unit} or more: the first look is after 3, got {count}"
    if spec.confirm.best > 1:
        message = f"requires confirm.best: 1, got {spec.confirm.best}: a verdict compares one set of params"
        yield keys, message
    if not (spec.arms or spec.grid):
        yield keys, "requires arms, because it decides their difference to the baseline"


def _check_answer(spec: Spec) -> Problems:
    answer, confirm = spec.answer, spec.confirm
    if answer is None:
        return
    if confirm is None:
        yield ("answer",), "requires confirm, whose trials measure the primary outcome"
        return
    if answer.pool is not None and not spec.contexts:
        yield ("answer", "pool"), "requires contexts, because pooling takes the mean over contexts"
    for key in ("pool", "variance") if confirm.stop is not None else ():
        if getattr(answer, key) is not None:
            reason = "it needs all seeds, but decided arms run no further seeds"
            yield ("answer", key), f"must be left out with confirm.stop: {reason}"
    if answer.split is not None and answer.split not in (*confirm.splits, TRAIN, *VALIDATION_SPLITS):
        remedy = _split_remedy(answer.split, confirm.splits)
        yield ("answer", "split"), f"must be a split of confirm.splits, got {answer.split!r}. {remedy}"
        return
    if answer.metric is not None and (problem := _outcome_problem(answer.metric, spec)):
        yield ("answer", "metric"), problem
    for place, name in enumerate(answer.also):
        if problem := _outcome_problem(name, spec):
            yield ("answer", "also", place), problem
        if name == answer.metric:
            yield ("answer", "also", place), f"must be another than answer.metric, got {name} twice"


def _split_remedy(split: str, splits: Sequence[str]) -> str:
    add_text = f"Add it, as in confirm: {{splits: [{split}]}}"
    return f"confirm.splits is [{', '.join(splits)}]: correct the name here or there" if splits else add_text


def _outcome_problem(name: str, spec: Spec) -> str | None:
    """Return why a primary outcome cannot have the split in its name; None if it can."""
    assert spec.answer is not None
    splits, answer_split = spec.test_splits, spec.answer.split
    prefix, quantity = split_and_quantity(name)
    if prefix not in ("", TRAIN, *VALIDATION_SPLITS, *splits) and answer_split is None:
        return f"must be on a split of confirm.splits, got {name}. {_split_remedy(prefix, splits)}"
    split = outcome_split(name, answer_split, splits)
    for objective in spec.objectives:
        if objective.metric != name or prefix == split:
            continue
        if objective.split in splits or _names_test_data(objective, spec):
            return None  # the error of the objective or of confirm.splits is enough
        test = splits[0] if splits else TEST
        example = metric_name(test, name.rpartition("_")[2])
        return (
            f"must be another metric than the objective of the search, got {name} for both: report test data "
            f"as a metric of its own, such as {example}, with splits: [{test}] in confirm, and name it here"
        )
    if split == TRAIN or split in splits or spec.search is None:
        return None
    if not splits:
        remedy = f"add a test split, as in confirm: {{splits: [{TEST}]}}, and name a metric of it"
    elif prefix:
        remedy = f"name a split of confirm.splits, as in {splits[0]}/{quantity}"
    else:
        remedy = f"name the split of confirm.splits that it is measured on, as in split: {splits[0]}"
    return f"must not be measured on {split}, because the search selects by that split, got {name}: {remedy}"


def _time_limits(spec: Spec) -> Problems:
    """Yield time limits within which no trial could run, and limits that others always precede."""
    budget = spec.budget or Budget()
    each_arm = budget.each_arm or ArmBudget()
    limits: tuple[tuple[Keys, float | None, str], ...] = (
        (("resources", "minutes"), spec.resources.minutes, "minutes"),
        (("budget", "wall_clock_hours"), budget.wall_clock_hours, "hours"),
        (("budget", "device_hours"), budget.device_hours, "hours"),
        (("budget", "each_arm", "device_hours"), each_arm.device_hours, "hours"),
    )
    for keys, limit, unit in limits:
        if limit is not None and limit < MIN_TIME_LIMITS[unit]:
            yield keys, f"must be at least a second, {MIN_TIME_LIMITS[unit]:.2g} {unit}, got {limit:g}"
    silent, longest = spec.resources.silent_minutes, spec.resources.minutes
    if silent is not None and longest is not None and silent > longest:
        message = (
            f"must be at most resources.minutes, {longest:g}, which end a silent trial too, got {silent:g}"
        )
        yield ("resources", "silent_minutes"), message
    for name in sorted(ArmBudget.model_fields.keys() & Budget.model_fields.keys()):
        limit, whole = getattr(each_arm, name), getattr(budget, name)
        if limit is not None and whole is not None and limit > whole:
            message = f"can never end a search: must be at most budget.{name}, {whole:g}, got {limit:g}"
            yield ("budget", "each_arm", name), message


def _budget(spec: Spec) -> Problems:
    search, keys = spec.search, ("budget", "each_arm")
    each_arm = spec.budget.each_arm if spec.budget is not None else None
    if each_arm is None:
        return
    if search is None:
        yield keys, "requires a search; use budget.device_hours for a sweep without a search"
        return
    if not each_arm.model_dump(exclude_none=True):
        yield keys, "must limit something: device_hours, flops, target or no_improvement"
    for name in ("target", "no_improvement"):
        if getattr(each_arm, name) is not None and len(search.objectives) > 1:
            count = len(search.objectives)
            yield (*keys, name), f"must be left out with {count} objectives: it needs a single objective"
    no_improvement, trials = each_arm.no_improvement, search.trials_per_arm
    if no_improvement is not None and no_improvement >= trials:
        requirement = f"must be less than search.trials_per_arm, {trials}, got {no_improvement}"
        yield (*keys, "no_improvement"), f"can never end a search: {requirement}"


def _published(spec: Spec) -> Problems:
    """Yield faults of published rows: each belongs to one arm, one cell and one evaluation."""
    names = (BASELINE, *spec.arms)
    for place, row in enumerate(spec.published):
        keys = ("published", place)
        if row.arm is not None and row.arm not in names:
            yield (*keys, "arm"), f"no arm named {row.arm!r}. {hint(row.arm, names)}"
        if row.arm is None and row.reference is None:
            yield keys, "must have `arm`, or `reference` if no arm corresponds to the published model"
        row_fields = {"arm": row.arm, "cell": row.cell, "posthoc": row.posthoc}
        for inner, message in cell_problems(row_fields, spec.axes, spec.posthoc):
            yield (*keys, *inner), message


def _arms(spec: Spec) -> Problems:
    if BASELINE in spec.arms:
        yield ("arms", BASELINE), "must have another name: baseline is reserved for the unchanged settings"
    searched_dimensions = _searched_dimensions(spec)
    crossed = (("the grid", Paths(spec.grid)), ("contexts", Paths(spec.contexts)))
    for name, arm in spec.arms.items():
        earlier_paths = Paths()
        own_dimensions = {path: entry for path, entry in searched_dimensions.items() if path not in arm.drop}
        for path, value in arm.set.items():
            keys, remedy = ("arms", name, "set", path), "one contains the other: remove one of them"
            for other_path in earlier_paths.overlapping(path):
                yield keys, f"must not be set together with {other_path}, {remedy}"
            earlier_paths.add(path)
            for words, axes in crossed:
                for axis in axes.overlapping(path):
                    conflict = f"must not be set by an arm and by {words} ({axis})"
                    yield keys, f"{conflict}: remove it from one of them"
            for problem in _conflicts_with_search(own_dimensions, path, value):
                yield keys, problem
        for place, path in enumerate(arm.drop) if searched_dimensions else ():
            if path not in searched_dimensions:
                message = f"drops {path!r}, which no search varies. {hint(path, searched_dimensions)}"
                yield ("arms", name, "drop", place), message


def _conflicts_with_search(dimensions: Mapping[str, Dimension], path: str, value: Any) -> Iterator[str]:
    """Yield conflicts of an arm that sets `path` to `value` while its search varies `dimensions`."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _conflicts_with_search(dimensions, f"{path}.{key}", inner)
        return
    if path in dimensions:
        yield f"sets {path}, which its search varies: add {path} to the arm's drop, or do not set it"
    for other_path, dimension in dimensions.items():
        # The planner checks dimensions with conditions, because they may not exist in this arm.
        if not isinstance(value, Mapping) and other_path.startswith(f"{path}.") and not dimension.when:
            yield f"removes {other_path}, which the search varies: add {other_path} to the arm's drop"


def _axes(spec: Spec) -> Problems:
    """Yield fields that are set by two of contexts, grid, posthoc and search."""
    earlier_paths, searched_paths, posthoc = Paths(), Paths(_searched_dimensions(spec)), Paths(spec.posthoc)
    for section, axes in (("grid", spec.grid), ("contexts", spec.contexts)):
        for path in axes:
            for other_path in earlier_paths.overlapping(path):
                message = f"must not overlap {other_path}, one contains the other: remove one of them"
                if section == "contexts" and other_path in spec.grid:
                    message = f"must not be set by the grid too ({other_path}): remove it from one of them"
                yield (section, path), message
            earlier_paths.add(path)
            for other_path in searched_paths.overlapping(path):
                message = f"must not set what the search varies ({other_path}): remove it from one of them"
                yield (section, path), message
    for path in spec.contexts:
        for other_path in posthoc.overlapping(path):
            remedy = "remove it from posthoc or contexts"
            yield ("contexts", path), f"must not be evaluated with other values ({other_path}): {remedy}"


def _threads(spec: Spec) -> Problems:
    """Yield settings of the number of threads, which `resources.cpus` determines."""
    if _is_custom(spec):
        return
    places: list[tuple[Keys, Mapping[str, Any]]] = [
        (("grid",), spec.grid),
        (("contexts",), spec.contexts),
        (("search", "also"), dict.fromkeys(Space(spec.search.also if spec.search is not None else ()).paths)),
        *((("arms", name, "set"), arm.set) for name, arm in spec.arms.items()),
    ]
    keys_found: list[Keys] = [(*keys, THREADS) for keys, fields in places if THREADS in fields]
    if "threads" in spec.baseline.train:
        keys_found.append((BASELINE, "train", "threads"))
    for keys in keys_found:
        yield keys, "follows from resources.cpus, one thread for each core: remove it and set resources.cpus"


_RULES: Final[tuple[Callable[[Spec], Problems], ...]] = (
    _phases,
    _nesting,
    _search,
    _confirm,
    _check_answer,
    _time_limits,
    _budget,
    _published,
    _arms,
    _axes,
    _threads,
)
