"""Validates the relations between the parts of a spec that need no model.

The rules read the written values, valid or not, so that a fault in one place hides none in another. Each rule
ignores values of an unexpected form, because other code reports these.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from orchestrator.errors import Fault
from orchestrator.search import space_catalog
from orchestrator.spec.document import Document, Keys
from orchestrator.spec.kinds import repetition
from orchestrator.spec.metric_splits import outcome_split
from orchestrator.spec.readings import misplaced
from orchestrator.spec.search_conflicts import conflicts_with_search
from orchestrator.spec.types import names_trainable
from search_spaces.algebra import CyclicSpace, merge
from search_spaces.dimensions import Dimension, Fixed, Space
from search_spaces.parse import parse_space
from search_spaces.paths import ROOTS, Paths, built_in_problem, leaves, path_problem
from search_spaces.wording import hint
from trainables.custom.extensions import BadName
from trainables.metrics import TRAIN, VALIDATION_SPLITS, split_and_quantity

BASELINE: Final = "baseline"
Problems = Iterator[tuple[Keys, str]]


def check(found: Document) -> list[Fault]:
    """Return every fault between the parts of the spec `found`."""
    written = _Written(found.data)
    return [found.fault(keys, message) for rule in _RULES for keys, message in rule(written)]


FEWEST_WITH_LOOKS: Final = 4  # number of seeds or repeats; the first look is after three
LEAST: Final = {"hours": 1 / 3600, "minutes": 1 / 60}
"""Smallest valid time limits; no trial could run within a shorter one."""
READING = ("train.beam_size", "train.length_penalty", "train.decode_length_max")
"""Fields of training that affect only the evaluation of a trained model."""


@dataclass(frozen=True)
class _Written:
    """Written parts of a spec; a part that is missing or has an unexpected form is empty."""

    data: Any

    def mapping(self, *keys: str) -> Mapping[str, Any]:
        found = self.at(*keys)
        return found if isinstance(found, dict) else {}

    def texts(self, *keys: str) -> list[tuple[int, str]]:
        """Return the texts of a list with their positions."""
        return [(place, one) for place, one in self._items(*keys) if isinstance(one, str)]

    def mappings(self, *keys: str) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the mappings of a list with their positions."""
        return [(place, one) for place, one in self._items(*keys) if isinstance(one, dict)]

    @property
    def axes(self) -> Mapping[str, Any]:
        """Return the fields that are crossed with every arm."""
        return {**self.mapping("contexts"), **self.mapping("grid")}

    def count(self, *keys: str) -> int | None:
        found = self.at(*keys)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def _items(self, *keys: str) -> list[tuple[int, Any]]:
        found = self.at(*keys)
        return list(enumerate(found)) if isinstance(found, list) else []

    def at(self, *keys: str) -> Any:
        found = self.data
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    @cached_property
    def spaces(self) -> list[Space]:
        """Return the named search spaces that exist."""
        names = [name for _, name in self.texts("search", "spaces")]
        return [space for name in names if isinstance(space := _ready_made(name), Space)]

    @cached_property
    def also(self) -> tuple[Dimension, ...]:
        """Return the valid ranges of `search.also`."""
        return parse_space(self.mapping("search", "also"), path_problem if self.own else built_in_problem)[0]

    @property
    def own(self) -> bool:
        """Return whether the spec names a custom trainable."""
        return names_trainable(self.data)

    @cached_property
    def searched(self) -> dict[str, Dimension | None]:
        """Return all searched paths with their dimensions; None for an invalid range."""
        found: dict[str, Dimension | None] = dict.fromkeys(self.mapping("search", "also"))
        for dimension in (*(one for space in self.spaces for one in space.dimensions), *self.also):
            found[dimension.path] = dimension
        return found

    @property
    def all_known(self) -> bool:
        """Return whether `searched` is complete, that is, every named space exists."""
        return len(self.spaces) == len(self.texts("search", "spaces"))

    def drops(self, arm: str) -> list[tuple[int, str]]:
        return self.texts("arms", arm, "drop")

    def searched_by(self, arm: str) -> dict[str, Dimension | None]:
        """Return the fields that the arm's search varies; empty if its `drop` is invalid."""
        if not isinstance(self.mapping("arms", arm).get("drop", []), list):
            return {}
        dropped = {path for _, path in self.drops(arm)}
        return {path: one for path, one in self.searched.items() if path not in dropped}


def _phases(written: _Written) -> Problems:
    for name, arm in written.mapping("arms").items() if written.at("search") is None else ():
        if isinstance(arm, dict) and arm.get("control") is True:
            yield ("arms", name, "control"), "needs a search, or its trials are those of the baseline"
    if isinstance(written.data, dict) and written.at("search") is None and written.at("confirm") is None:
        yield (), "must have a search, a confirm or both, got neither"
    if written.mapping("posthoc") and written.at("confirm") is None:
        yield ("posthoc",), "needs confirm, whose checkpoints it reads again"
    for path in () if written.own else written.mapping("posthoc"):
        if path.startswith("train.") and path not in READING:
            wanted = f"must be a field of model or task, or one of {', '.join(READING)}"
            yield ("posthoc", path), f"{wanted}: reading a checkpoint again trains nothing"


def _nesting(written: _Written) -> Problems:
    if written.own:
        baseline = written.mapping(BASELINE)
        for path, many in Counter(path for path, _ in leaves(baseline)).items():
            if many > 1:
                yield (
                    (BASELINE, path),
                    f"names two fields, the key {path!r} and one inside of a mapping: rename one of them",
                )
        return
    for section in [(BASELINE, root) for root in ROOTS]:
        for key in written.mapping(*section):
            outer, dot, inner = str(key).partition(".")
            if dot:
                yield (*section, key), f"must be nested here, as {outer}: {{{inner}: ...}}"


def _space_names(written: _Written) -> Problems:
    for place, name in written.texts("search", "spaces"):
        if isinstance(problem := _ready_made(name), str):
            yield ("search", "spaces", place), problem


def _overridden(written: _Written) -> Problems:
    """Yield spaces without constraints whose ranges are all replaced by later spaces and `also`."""
    if not written.all_known:
        return
    names, spaces = written.texts("search", "spaces"), written.spaces
    for number, ((place, name), space) in enumerate(zip(names, spaces, strict=True), start=1):
        later = {path for after in (Space(written.also), *spaces[number:]) for path in after.paths}
        if later.issuperset(space.paths) and not space.constraints:
            yield (
                ("search", "spaces", place),
                f"{name} decides nothing, for each of its ranges is given again after it: leave it out",
            )


def _ready_made(name: str) -> Space | str:
    """Return the space called `name`, or a message that it does not exist."""
    try:
        return space_catalog.load(name)
    except BadName as error:
        return str(error)


def _search(written: _Written) -> Problems:
    search = written.mapping("search")
    fixed = all(one is not None and isinstance(one.domain, Fixed) for one in written.searched.values())
    readable = isinstance(search.get("also", {}), dict)
    if isinstance(written.at("search"), dict) and not search.get("spaces") and fixed and readable:
        yield ("search",), "must vary something: name a space under spaces or write a range under also"
    try:
        merge(*written.spaces, Space(written.also))
    except CyclicSpace as error:
        yield ("search", "also"), str(error)
    objectives = written.mappings("search", "objectives")
    if len(objectives) > 1 and search.get("stopper") is not None:
        yield (
            ("search", "stopper"),
            f"must be null with {len(objectives)} objectives: early stopping goes by one objective",
        )
    metrics = [objective.get("metric") for _, objective in objectives]
    for place, objective in objectives:
        if objective.get("metric") in metrics[:place] and isinstance(objective.get("metric"), str):
            yield (
                ("search", "objectives", place, "metric"),
                "must be another metric than the objectives before it",
            )
        yield from _objective(written, place, objective, len(objectives))


def _objective(written: _Written, place: int, objective: Mapping[str, Any], several: int) -> Problems:
    keys = ("search", "objectives", place)
    metric, given = objective.get("metric"), objective.get("split")
    tests = [split for _, split in written.texts("confirm", "splits")]
    if several > 1 and objective.get("scope") == "best":
        why = "the best report may be another one for each"
        yield (*keys, "scope"), f"must be last or mean-of-last-N with {several} objectives, got best: {why}"
    if isinstance(given, str) and given in tests:
        yield (*keys, "split"), f"must not be a test split, got {given!r}: no search chooses by test data"
    elif isinstance(metric, str):
        prefix, _ = split_and_quantity(metric)
        undeclared = prefix == "test" and given is None
        if prefix in tests or undeclared:
            declare = ". If it is validation data, write split: valid beside it" * (prefix not in tests)
            yield (
                (*keys, "metric"),
                f"must not be on a test split, got {metric}: no search chooses by test data{declare}",
            )


def _confirm(written: _Written) -> Problems:
    best, trials = written.count("confirm", "best"), written.count("search", "trials_per_arm")
    if best is not None and best > 1 and written.at("search") is None:
        yield ("confirm", "best"), f"must be 1 without a search, each arm then has one assignment, got {best}"
    if best is not None and trials is not None and best > trials >= 1:
        yield ("confirm", "best"), f"must be at most search.trials_per_arm, {trials}, got {best}"
    for place, split in written.texts("confirm", "splits"):
        if split in {"train", "valid"}:
            yield (
                ("confirm", "splits", place),
                f"must be a test split, got {split!r}, which every trial reads anyway",
            )
    kept = written.count("confirm", "halting_examples")
    if kept and not written.own and not written.at("confirm", "splits"):
        yield (
            ("confirm", "halting_examples"),
            f"needs confirm.splits, of whose first one the examples are, got {kept} and no split",
        )
    if written.own and kept:
        yield (
            ("confirm", "halting_examples"),
            f"must be 0 for a trainable of your own, whose layers nobody can look into, got {kept}",
        )


def _repeated(written: _Written) -> Problems:
    """Yield lists that contain a value twice, even if the values have other faults."""
    places: list[tuple[str, ...]] = [
        ("search", "spaces"),
        ("search", "constraints"),
        ("confirm", "seeds"),
        ("confirm", "splits"),
        ("answer", "also"),
        ("combine", "of"),
    ]
    places += [("arms", arm, "drop") for arm in map(str, written.mapping("arms"))]
    places += [
        (axes, path) for axes in ("grid", "contexts", "posthoc") for path in map(str, written.mapping(axes))
    ]
    for keys in places:
        values = written.at(*keys)
        if isinstance(values, list) and (problem := repetition(values)) is not None:
            yield keys, problem


def _stop(written: _Written) -> Problems:
    """Yield conflicts of `confirm.stop`: a look needs enough seeds and one assignment per arm."""
    if written.at("confirm", "stop") != "decided":
        return
    keys = ("confirm", "stop")
    seeds, best = written.at("confirm", "seeds"), written.count("confirm", "best")
    number, units = len(seeds) if isinstance(seeds, list) else seeds, "seeds"
    if (repeats := written.count("search", "repeats") or 1) > 1:
        number, units = repeats, "repeats"
    if isinstance(number, int) and number < FEWEST_WITH_LOOKS:
        yield keys, f"needs {FEWEST_WITH_LOOKS} {units} or more: the first look is after 3, got {number}"
    if best is not None and best > 1:
        yield keys, f"needs confirm.best of 1, got {best}: several assignments of an arm have no one verdict"
    if isinstance(written.data, dict) and not any(written.at(each) for each in ("arms", "grid", "combine")):
        yield keys, "needs arms, whose difference to the baseline is decided"


def _answer(written: _Written) -> Problems:
    if written.at("answer") is None:
        return
    if written.at("confirm") is None:
        yield ("answer",), "needs confirm, whose seeds give it"
        return
    if not isinstance(written.at("confirm"), dict) or not isinstance(
        written.at("confirm", "splits"), list | None
    ):
        return  # the splits are unknown
    if written.at("answer", "pool") is not None and not written.mapping("contexts"):
        yield ("answer", "pool"), "needs contexts, over which it takes the mean"
    for key in ("pool", "variance") if written.at("confirm", "stop") is not None else ():
        if written.at("answer", key) is not None:
            reason = "it needs all seeds, and decided arms run no more"
            yield ("answer", key), f"must be left out with confirm.stop: {reason}"
    splits = [split for _, split in written.texts("confirm", "splits")]
    primary = written.at("answer", "metric")
    named: list[tuple[Keys, Any]] = [(("answer", "metric"), primary)]
    named += [(("answer", "also", place), name) for place, name in written.texts("answer", "also")]
    given = written.at("answer", "split")
    if isinstance(given, str) and given not in (*splits, TRAIN, *VALIDATION_SPLITS):
        yield ("answer", "split"), f"must be a split of confirm.splits, got {given!r}. {hint(given, splits)}"
        return
    for keys, name in named:
        if isinstance(name, str) and (problem := _outcome_problem(name, splits, written)):
            yield keys, problem
        if keys[1] == "also" and name == primary:
            yield keys, f"must be another than answer.metric, got {name} twice"


def _outcome_problem(name: str, splits: list[str], written: _Written) -> str | None:
    """Return why a primary outcome cannot be on the split that it names; None if it can."""
    given = written.at("answer", "split")
    prefix, quantity = split_and_quantity(name)
    if prefix not in ("", TRAIN, *VALIDATION_SPLITS, *splits) and given is None:
        return f"must be on a split of confirm.splits, got {name}. {hint(prefix, splits)}"
    split = outcome_split(name, given, splits)
    searched_for = [each.get("metric") for _, each in written.mappings("search", "objectives")]
    if name in searched_for and prefix != split and given is not None:
        return f"must not be an objective of the search, whose data are not those of {split}, got {name}"
    if split == TRAIN or split in splits or written.at("search") is None:
        return None
    first = splits[0] if splits else "<split>"
    if prefix:
        return (
            f"must not be on {split}, by which the search has chosen, got {name}: name a split of "
            f"confirm.splits, as in {first}/{quantity}"
        )
    return (
        f"must not be on {split}, by which the search has chosen, got {name}: name the split of "
        f"confirm.splits that it is measured on, as in split: {first}"
    )


def _budget(written: _Written) -> Problems:
    each = written.mapping("budget", "each_arm")
    keys, objectives = ("budget", "each_arm"), written.mappings("search", "objectives")
    if isinstance(written.at(*keys), dict) and written.at("search") is None:
        yield keys, "needs a search, whose trials it limits; budget.device_hours limits a sweep without one"
    if isinstance(written.at(*keys), dict) and not any(value is not None for value in each.values()):
        yield keys, "must limit something: device_hours, flops, target or no_improvement"
    limits: dict[tuple[str, ...], str] = {
        ("budget", "wall_clock_hours"): "hours",
        ("budget", "device_hours"): "hours",
        (*keys, "device_hours"): "hours",
        ("resources", "minutes"): "minutes",
    }
    for where, unit in limits.items():
        given, least = written.at(*where), LEAST[unit]
        if isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < least:
            yield (
                where,
                f"must be at least a second, {least:.2g} {unit}, which no trial fits in, got {given:g}",
            )
    for name in ("target", "no_improvement"):
        if each.get(name) is not None and len(objectives) > 1:
            yield (
                (*keys, name),
                f"must be left out with {len(objectives)} objectives: none of them says alone what is better",
            )
    stale, trials = written.count(*keys, "no_improvement"), written.count("search", "trials_per_arm")
    if stale is not None and trials is not None and stale >= trials >= 1:
        yield (
            (*keys, "no_improvement"),
            f"can never end a search: must be less than search.trials_per_arm, {trials}, got {stale}",
        )


def _arm_names(written: _Written) -> Problems:
    if BASELINE in written.mapping("arms"):
        yield ("arms", BASELINE), "must have another name: baseline is the system without changes"
    names = (BASELINE, *written.mapping("arms"))
    for place, row in written.mappings("published"):
        arm = row.get("arm")
        if isinstance(arm, str) and arm not in names:
            yield ("published", place, "arm"), f"no arm named {arm!r}. {hint(arm, names)}"


def _published(written: _Written) -> Problems:
    """Yield faults of published rows: each belongs to one cell of contexts and grid, and one evaluation."""
    readable = all(isinstance(written.at(axes), dict | None) for axes in ("grid", "contexts", "posthoc"))
    for place, row in written.mappings("published"):
        keys = ("published", place)
        if row.get("arm") is None and row.get("reference") is None:
            yield keys, "must name its arm, or a reference where no arm is the published system"
        for inner, message in misplaced(row, written.axes, written.mapping("posthoc")) if readable else ():
            yield (*keys, *inner), message


def _arm_changes(written: _Written) -> Problems:
    crossed = {
        words: Paths(map(str, written.mapping(section)))
        for section, words in (("grid", "the grid"), ("contexts", "contexts"))
    }
    for arm in written.mapping("arms"):
        before = Paths()
        for path in map(str, written.mapping("arms", arm, "set")):
            keys = ("arms", arm, "set", path)
            for other in before.touching(path):
                yield (
                    keys,
                    f"must not be set together with {other}, one contains the other: write one of them",
                )
            for words, axes in crossed.items():
                for axis in axes.touching(path):
                    yield (
                        keys,
                        f"must not be set by an arm and by {words} ({axis}): take it out of one of them",
                    )
            before.add(path)


def _arm_searches(written: _Written) -> Problems:
    for arm in written.mapping("arms"):
        kept = written.searched_by(arm)
        for path, value in written.mapping("arms", arm, "set").items():
            for problem in conflicts_with_search(kept, path, value):
                yield ("arms", arm, "set", path), problem
        for place, path in written.drops(arm):
            if not written.own and built_in_problem(path) is not None:
                continue  # reported as an invalid path
            if written.mapping("search") and written.all_known and path not in written.searched:
                yield (
                    ("arms", arm, "drop", place),
                    f"drops {path!r}, which no search varies. {hint(path, written.searched)}",
                )


def _axes(written: _Written) -> Problems:
    """Yield fields that are set by two of contexts, grid, posthoc and search."""
    grid = written.mapping("grid")
    before, varied = Paths(), Paths(map(str, written.searched))
    for section in ("grid", "contexts"):
        for path in map(str, written.mapping(section)):
            for other in before.touching(path):
                if section == "contexts" and other in grid:
                    message = f"must not be set by the grid too ({other}): take it out of one of them"
                else:
                    message = f"must not overlap {other}, one contains the other: write one of them"
                yield (section, path), message
            for searched in varied.touching(path):
                yield (
                    (section, path),
                    f"must not set what the search varies ({searched}): take it out of one of them",
                )
            before.add(path)
    reread = Paths(map(str, written.mapping("posthoc")))
    for path in map(str, written.mapping("contexts")):
        for other in reread.touching(path):
            yield (
                ("contexts", path),
                f"must not be read again under other values ({other}): take it out of posthoc or of contexts",
            )


def _threads(written: _Written) -> Problems:
    """Yield settings of the number of threads, which `resources.cpus` determines."""
    path = "train.threads"
    places: list[Keys] = [
        ("grid", path),
        ("contexts", path),
        ("search", "also", path),
        (BASELINE, *path.split(".")),
    ]
    places += [("arms", arm, "set", path) for arm in map(str, written.mapping("arms"))]
    for keys in () if written.own else places:
        *section, name = map(str, keys)
        if name in written.mapping(*section):
            yield keys, "is what resources.cpus says, one thread for each core: leave it out and set that"


_RULES: Final[tuple[Callable[[_Written], Problems], ...]] = (
    _phases,
    _nesting,
    _space_names,
    _overridden,
    _search,
    _confirm,
    _repeated,
    _stop,
    _answer,
    _budget,
    _arm_names,
    _published,
    _arm_changes,
    _arm_searches,
    _axes,
    _threads,
)
