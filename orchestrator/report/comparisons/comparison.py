"""Compare two sweeps: arms with equal content, and all other differences between the sweeps.

Arms are matched by content, in three steps, independent of their names: by the digest of settings and search
ranges, then by the settings, then by the settings that were trained. Confirm results are compared seed by
seed if at least two seeds are in both sweeps, else as separate samples (Welch). Intervals are not corrected
for several comparisons: these comparisons were not planned and are exploratory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.identity import canonical
from orchestrator.plan.types import Plan
from orchestrator.report.caveats.notices import notices
from orchestrator.report.comparisons.untested import Digests, digest_of, unlike_tests
from orchestrator.report.results.origin import DATA, origin
from orchestrator.report.results.readings import Readings, difference_of, with_late_splits
from orchestrator.report.results.statistics import Estimate, estimate, mean_difference, within
from orchestrator.report.results.types import Cell, Report
from orchestrator.spec.differences import Difference, differences
from orchestrator.statistics.paired import minus
from orchestrator.trials import OutcomeKind, Record
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import amount

Same = Literal["settings and ranges", "settings", "what was trained"]
PAIRED_FROM = 2
"""Minimum number of common seeds for paired differences."""
SHOWN_ELSEWHERE = frozenset(
    {"digest of the spec", "seed of the searches", "seeds of confirm trials", "command"}
)
NOTE = (
    "Each interval is a 95% interval of this difference alone: in so many of them some leave out 0 by "
    "chance, and nobody planned them. They are exploratory."
)


@dataclass(frozen=True, slots=True)
class Side:
    """Data of one sweep that the comparison needs."""

    label: str
    plan: Plan
    report: Report
    records: Sequence[Record]
    spec: Mapping[str, Any]
    """Content of the spec of the sweep."""
    data: Mapping[str, str]
    """Digest of every stored split that the sweep reads, by name; empty if unknown."""


@dataclass(frozen=True, slots=True)
class ArmDifference:
    """The difference of one arm between the sweeps in one metric."""

    arms: tuple[str, str]
    same: Same
    metric: str
    first: Estimate
    second: Estimate
    difference: Estimate | None
    """Second minus first; None if the sweeps had different test examples."""
    how: str
    """Method and failures, e.g. `paired, 4 seeds` or `Welch, no seed in both`, and failed seeds by sweep."""
    different_tests: str = ""
    """Digests of test examples that differ between the sweeps, as text; empty if none differ."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a second sweep with a first."""

    first: str
    second: str
    arms: tuple[ArmDifference, ...]
    alone: tuple[tuple[str, ...], tuple[str, ...]]
    """Arms that only one of the sweeps has."""
    unmeasured: tuple[str, ...]
    """Arms of both sweeps without a difference, each with its numbers of finished and failed seeds."""
    assignments: tuple[str, ...]
    """Differences between the choices of searches of the same arm."""
    spec: tuple[Difference, ...]
    code: tuple[tuple[str, str, str], ...]
    """Differing provenance: name, value in the first sweep and value in the second."""
    data: tuple[tuple[str, str, str], ...]
    data_known: bool
    """Whether digests of any data are known; custom training code may read data without reporting it."""
    notices: tuple[str, ...]
    """Warnings of either report, each after the label of its sweep."""
    unchecked_tests: tuple[str, ...] = ()
    """Splits of compared metrics for which no digests verify that both sweeps had the same examples."""


def compare(first: Side, second: Side) -> Comparison:
    """Return all differences between two sweeps, with the size of measured differences."""
    pairs = list(_pairs(first, second))
    known = [{names[side] for names, _ in pairs} for side in (0, 1)]
    alone = [
        tuple(arm.name for arm in each.plan.arms if arm.name not in names)
        for each, names in zip((first, second), known, strict=True)
    ]
    arms = tuple(found for names, same in pairs for found in _in_metrics(first, second, names, same))
    measured = {each.arms for each in arms}
    splits = dict.fromkeys(first.report.splits.split(each.metric) for each in arms)
    return Comparison(
        first=first.label,
        second=second.label,
        arms=arms,
        alone=(alone[0], alone[1]),
        unmeasured=tuple(_unmeasured(first, second, names) for names, _ in pairs if names not in measured),
        assignments=tuple(lines for names, _ in pairs for lines in _assignments(first, second, names)),
        spec=tuple(differences(first.spec, second.spec)),
        code=tuple(_unlike(_origin(first), _origin(second))),
        data=tuple(_unlike(first.data, second.data)),
        data_known=bool(first.data or second.data),
        notices=tuple(f"{each.label}: {words}" for each in (first, second) for words in notices(each.report)),
        unchecked_tests=tuple(
            split
            for split in splits
            if not all(
                _digests(side, name, split)
                for names in measured
                for side, name in zip((first, second), names, strict=True)
            )
        ),
    )


def _pairs(first: Side, second: Side) -> Iterator[tuple[tuple[str, str], Same]]:
    """Yield arms that are the same by content, each once, in the order of the first sweep."""
    found: dict[str, tuple[str, Same]] = {}
    ways: tuple[Same, ...] = ("settings and ranges", "settings", "what was trained")
    for way in ways:
        left, right = (_contents(each, way) for each in (first, second))
        taken = {name for name, _ in found.values()}
        for content, name in left.items():
            other = right.get(content)
            if name not in found and other is not None and other not in taken:
                found[name] = (other, way)
    for arm in first.plan.arms:
        if arm.name in found:
            name, same = found[arm.name]
            yield (arm.name, name), same


def _contents(side: Side, way: Same) -> dict[str, str]:
    """Return arm names by content; arms without a known content are left out."""
    if way == "settings and ranges":
        return {arm.digest: arm.name for arm in side.plan.arms}
    controls = {arm.name for arm in side.plan.arms if arm.control}
    if way == "settings":
        changed = (arm for arm in side.plan.arms if not arm.control)
        return {canonical([side.plan.trainable, arm.settings]): arm.name for arm in changed}
    trained = [
        each
        for each in side.records
        if each.phase == "confirm"
        and not each.rank
        and each.outcome is OutcomeKind.FINISHED
        and each.arm not in controls
    ]
    return {canonical([side.plan.trainable, each.settings]): each.arm for each in trained}


def _in_metrics(first: Side, second: Side, names: tuple[str, str], same: Same) -> Iterator[ArmDifference]:
    """Yield differences in primary outcomes, then in the first sweep's headline quantities on test splits."""
    splits = first.report.splits
    headlines = [
        name
        for name in first.report.metrics
        if not splits.is_selection(name) and splits.quantity(name) in first.report.headlines
    ]
    for metric in dict.fromkeys((*first.report.outcomes, *second.report.outcomes, *headlines)):
        cells = first.report.cell(names[0], metric), second.report.cell(names[1], metric)
        if cells[0] is not None and cells[1] is not None:
            found, how = _difference(_observed(first, cells[0]), _observed(second, cells[1]))
            how += _failures((first.label, cells[0]), (second.label, cells[1]))
            spans = (_span(side, name, metric) for side, name in zip((first, second), names, strict=True))
            found = within(found, difference_of(*reversed([*spans])))
            unlike = _different_tests(first, second, names, splits.split(metric))
            given = cells[0].estimate, cells[1].estimate, None if unlike else found
            yield ArmDifference(names, same, metric, *given, how, unlike)


def _different_tests(first: Side, second: Side, names: tuple[str, str], split: str) -> str:
    """Return in which digests of a split's examples the sweeps differ; empty if they differ in none."""
    before, after = (_digests(side, name, split) for side, name in zip((first, second), names, strict=True))
    titles = f"{names[1]} of {second.label}", f"{names[0]} of {first.label}"
    if not before.keys() & after.keys():
        before, after = _of_every_seed(before), _of_every_seed(after)
    return unlike_tests(split, titles, after, before)


def _of_every_seed(digests: Digests) -> Digests:
    """Return the digests that all seeds share, under one key; none if seeds have different examples."""
    shared = {*digests.values()}
    return {0: shared.pop()} if len(shared) == 1 else {}


def _digests(side: Side, arm: str, split: str) -> Digests:
    """Return the digests of a split's examples that the arm's trials reported, by seed."""
    confirmed = [each for each in with_late_splits(side.plan, side.records) if each.phase == "confirm"]
    return Readings(confirmed, side.report.quantities).texts(arm, digest_of(split))


def _span(side: Side, arm: str, metric: str) -> tuple[float, float]:
    confirmed = [each for each in side.records if each.phase == "confirm"]
    return Readings(confirmed, side.report.quantities).span(metric, arm)


def _observed(side: Side, cell: Cell) -> dict[tuple[int, ...], float]:
    """Return independent observations by their confirm seeds."""
    seeds = dict(side.report.unit_seeds)
    return {seeds.get(unit, (unit,)): value for unit, value in cell.by_unit}


def _difference(
    before: Mapping[tuple[int, ...], float], after: Mapping[tuple[int, ...], float]
) -> tuple[Estimate, str]:
    common = [seeds for seeds in before if seeds in after]
    if len(common) >= PAIRED_FROM:
        left = len(before) + len(after) - 2 * len(common)
        rest = f", {left} in one alone left out" if left else ""
        unit = "seed" if all(len(each) == 1 for each in common) else "repeat"
        return estimate([minus(after[seeds], before[seeds]) for seeds in common]), (
            f"paired, {amount(len(common), unit)}{rest}"
        )
    mean, low, high = mean_difference([*before.values()], [*after.values()])
    shared = "no seed" if not common else "one seed"
    return Estimate(min(len(before), len(after)), mean, low, high), f"Welch, {shared} in both"


def _failures(*sides: tuple[str, Cell]) -> str:
    """Return the number of failed seeds of each sweep as text; empty if none failed."""
    message = ", ".join(f"{amount(cell.failed, 'seed')} in {label}" for label, cell in sides if cell.failed)
    return f"; failed: {message}" if message else ""


def _unmeasured(first: Side, second: Side, names: tuple[str, str]) -> str:
    """Return why an arm of both sweeps has no difference."""
    lines = []
    for side, name in zip((first, second), names, strict=True):
        finished, failed = next((each.seeds for each in side.report.tallies if each.arm == name), (0, 0))
        lines.append(f"{side.label}: {amount(finished, 'seed')} finished, {failed} failed")
    arm = names[0] if names[0] == names[1] else " = ".join(names)
    return f"{arm}: no outcome in both sweeps to compare ({'; '.join(lines)})"


def _assignments(first: Side, second: Side, names: tuple[str, str]) -> Iterator[str]:
    sides = tuple(zip((first, second), names, strict=True))
    paths = dict.fromkeys(path for side, name in sides for path in _chosen(side, name))
    before, after = (_trained_with(side, name, paths) for side, name in sides)
    if found := "; ".join(map(str, differences(before, after))):
        yield f"{names[0]}: the searches chose otherwise: {found}"


def _chosen(side: Side, arm: str) -> Mapping[str, Any]:
    return next((each.assignment for each in side.report.tallies if each.arm == arm), {})


def _trained_with(side: Side, arm: str, paths: Iterable[str]) -> dict[str, Any]:
    """Return the values that a search chose, or the fixed values of an arm that does not search the field."""
    known = side.plan.arm(arm)
    set_to = {path: lookup(known.settings, path) for path in paths if path not in known.space.paths}
    found = set_to | dict(_chosen(side, arm))
    return {path: value for path, value in found.items() if value is not MISSING}


def _origin(side: Side) -> dict[str, str]:
    known = dict(origin(side.plan, side.records))
    return {
        what: said
        for what, said in known.items()
        if what not in SHOWN_ELSEWHERE and not what.startswith(DATA)  # reported by `Side.data`
    }


def _unlike(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for what in dict.fromkeys((*first, *second)):
        before, after = first.get(what, "unknown"), second.get(what, "unknown")
        if before != after:
            yield what, before, after
