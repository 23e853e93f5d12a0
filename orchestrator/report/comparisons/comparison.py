"""Compare two sweeps: arms with equal content, and all other differences between the sweeps.

Arms are matched by content, in three steps, independent of their names: by the digest of settings and search
ranges, then by the settings, then by the settings that were trained. Confirm results are compared seed by
seed if at least two seeds are in both sweeps, else as separate samples (Welch). Intervals are not corrected
for several comparisons: these comparisons were not planned and are exploratory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from orchestrator.identity import canonical
from orchestrator.plan.types import Plan
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.untested import Digests, digest_name, test_set_difference
from orchestrator.report.results.origin import DATA_PREFIX, provenance_lines
from orchestrator.report.results.seed_results import (
    SeedResults,
    ValueRange,
    difference_range,
    merge_late_splits,
)
from orchestrator.report.results.statistics import Estimate, clip_interval, estimate, welch_difference
from orchestrator.report.results.types import ArmResult, Report
from orchestrator.spec.differences import Difference, differences
from orchestrator.statistics.paired import subtract
from orchestrator.trials import OutcomeKind, Record
from search_spaces.paths import MISSING, lookup
from search_spaces.wording import amount

MatchLevel = Literal["settings and ranges", "settings", "what was trained"]
MIN_PAIRED_SEEDS = 2
"""Minimum number of common seeds for paired differences."""
SEPARATE_ENTRIES = ("digest of the spec", "seed of the searches", "seeds of confirm trials", "command")
EXPLORATORY_NOTE = (
    "Each interval is a 95% interval of this difference alone. Some of them exclude 0 by chance, and the "
    "comparisons were not planned, so they are exploratory."
)


@dataclass(frozen=True, slots=True)
class SweepData:
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
    same: MatchLevel
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


def compare_sweeps(first: SweepData, second: SweepData) -> Comparison:
    """Return all differences between two sweeps, with the size of measured differences."""
    sweeps = (first, second)
    pairs = list(_matched_arms(*sweeps))
    matched_names = [{names[place] for names, _ in pairs} for place in (0, 1)]
    first_alone, second_alone = (
        tuple(arm.name for arm in sweep.plan.arms if arm.name not in names)
        for sweep, names in zip(sweeps, matched_names, strict=True)
    )
    arm_differences = tuple(arm for names, same in pairs for arm in _arm_differences(*sweeps, names, same))
    measured_pairs = {difference.arms for difference in arm_differences}
    splits = dict.fromkeys(first.report.splits.split(difference.metric) for difference in arm_differences)
    measured_arms = [pair for names in measured_pairs for pair in zip(sweeps, names, strict=True)]
    return Comparison(
        first=first.label,
        second=second.label,
        arms=arm_differences,
        alone=(first_alone, second_alone),
        unmeasured=tuple(
            _missing_outcome_text(*sweeps, names) for names, _ in pairs if names not in measured_pairs
        ),
        assignments=tuple(line for names, _ in pairs for line in _choice_difference_lines(*sweeps, names)),
        spec=tuple(differences(first.spec, second.spec)),
        code=tuple(_differing_entries(*map(_compared_provenance, sweeps))),
        data=tuple(_differing_entries(first.data, second.data)),
        data_known=bool(first.data or second.data),
        notices=tuple(f"{sweep.label}: {text}" for sweep in sweeps for text in warning_texts(sweep.report)),
        unchecked_tests=tuple(
            split for split in splits if not all(_digests(*arm, split) for arm in measured_arms)
        ),
    )


def _matched_arms(first: SweepData, second: SweepData) -> Iterator[tuple[tuple[str, str], MatchLevel]]:
    """Yield arms that are the same by content, each once, in the order of the first sweep."""
    matches: dict[str, tuple[str, MatchLevel]] = {}
    for level in get_args(MatchLevel):
        names, other_names = (_arms_by_content(sweep, level) for sweep in (first, second))
        matched_names = {name for name, _ in matches.values()}
        for content, name in names.items():
            other_name = other_names.get(content)
            if name not in matches and other_name is not None and other_name not in matched_names:
                matches[name] = (other_name, level)
    for arm in first.plan.arms:
        if arm.name in matches:
            name, same = matches[arm.name]
            yield (arm.name, name), same


def _arms_by_content(sweep: SweepData, level: MatchLevel) -> dict[str, str]:
    """Return arm names by content; arms without a known content are left out."""
    plan = sweep.plan
    if level == "settings and ranges":
        return {arm.digest: arm.name for arm in plan.arms}
    if level == "settings":
        return {canonical([plan.trainable, arm.settings]): arm.name for arm in plan.arms if not arm.control}
    controls = {arm.name for arm in plan.arms if arm.control}
    return {
        canonical([plan.trainable, record.settings]): record.arm
        for record in _confirm_records(sweep.records)
        if record.outcome is OutcomeKind.FINISHED and not record.rank and record.arm not in controls
    }


def _confirm_records(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.phase == "confirm"]


def _arm_differences(
    first: SweepData, second: SweepData, names: tuple[str, str], same: MatchLevel
) -> Iterator[ArmDifference]:
    """Yield differences in primary outcomes, then in the first sweep's headline quantities on test splits."""
    report, splits = first.report, first.report.splits
    headlines = [
        name
        for name in report.metrics
        if not splits.is_selection(name) and splits.quantity(name) in report.headlines
    ]
    for metric in dict.fromkeys((*report.outcomes, *second.report.outcomes, *headlines)):
        cell, other_cell = report.cell(names[0], metric), second.report.cell(names[1], metric)
        if cell is not None and other_cell is not None:
            values, other_values = _values_by_seeds(first, cell), _values_by_seeds(second, other_cell)
            difference, method = _estimate_difference(values, other_values)
            method += _failed_seeds_text((first.label, cell), (second.label, other_cell))
            span, other_span = _metric_span(first, names[0], metric), _metric_span(second, names[1], metric)
            difference = clip_interval(difference, difference_range(other_span, span))
            different_tests = _different_tests_text(first, second, names, splits.split(metric))
            estimates = cell.estimate, other_cell.estimate, None if different_tests else difference
            yield ArmDifference(names, same, metric, *estimates, method, different_tests)


def _different_tests_text(first: SweepData, second: SweepData, names: tuple[str, str], split: str) -> str:
    """Return the digests of a split's examples that differ between the sweeps, as text; empty if none do."""
    digests, other_digests = _digests(first, names[0], split), _digests(second, names[1], split)
    titles = f"{names[1]} of {second.label}", f"{names[0]} of {first.label}"
    if not digests.keys() & other_digests.keys():
        digests, other_digests = _shared_digest(digests), _shared_digest(other_digests)
    return test_set_difference(split, titles, other_digests, digests)


def _shared_digest(digests: Digests) -> Digests:
    """Return the digests that all seeds share, under one key; none if seeds have different examples."""
    shared_digests = {*digests.values()}
    return {0: shared_digests.pop()} if len(shared_digests) == 1 else {}


def _digests(sweep: SweepData, arm: str, split: str) -> Digests:
    """Return the digests of a split's examples that the arm's trials reported, by seed."""
    records = _confirm_records(merge_late_splits(sweep.plan, sweep.records))
    return SeedResults(records, sweep.report.quantities).texts(arm, digest_name(split))


def _metric_span(sweep: SweepData, arm: str, metric: str) -> ValueRange:
    return SeedResults(_confirm_records(sweep.records), sweep.report.quantities).value_range(metric, arm)


ValuesBySeedGroup = Mapping[tuple[int, ...], float]


def _values_by_seeds(sweep: SweepData, cell: ArmResult) -> ValuesBySeedGroup:
    """Return independent observations by their confirm seeds."""
    seeds = dict(sweep.report.unit_seeds)
    return {seeds.get(unit, (unit,)): value for unit, value in cell.by_unit}


def _estimate_difference(first: ValuesBySeedGroup, second: ValuesBySeedGroup) -> tuple[Estimate, str]:
    common_seeds = [seeds for seeds in first if seeds in second]
    if len(common_seeds) >= MIN_PAIRED_SEEDS:
        num_unpaired = len(first) + len(second) - 2 * len(common_seeds)
        unpaired_text = f", {num_unpaired} in only one sweep excluded" if num_unpaired else ""
        unit = "seed" if all(len(seeds) == 1 for seeds in common_seeds) else "repeat"
        method = f"paired, {amount(len(common_seeds), unit)}{unpaired_text}"
        return estimate([subtract(second[seeds], first[seeds]) for seeds in common_seeds]), method
    mean, low, high = welch_difference([*first.values()], [*second.values()])
    shared_text = "no seed" if not common_seeds else "one seed"
    return Estimate(min(len(first), len(second)), mean, low, high), f"Welch, {shared_text} in both"


def _failed_seeds_text(*labelled_cells: tuple[str, ArmResult]) -> str:
    """Return the number of failed seeds of each sweep as text; empty if none failed."""
    message = ", ".join(
        f"{amount(cell.failed, 'seed')} in {label}" for label, cell in labelled_cells if cell.failed
    )
    return f"; failed: {message}" if message else ""


def _missing_outcome_text(first: SweepData, second: SweepData, names: tuple[str, str]) -> str:
    """Return why an arm of both sweeps has no difference."""
    lines = []
    for sweep, name in zip((first, second), names, strict=True):
        seeds = {tally.arm: tally.seeds for tally in sweep.report.tallies}
        num_finished, num_failed = seeds.get(name, (0, 0))
        lines.append(f"{sweep.label}: {amount(num_finished, 'seed')} finished, {num_failed} failed")
    arm = names[0] if names[0] == names[1] else " = ".join(names)
    return f"{arm}: no outcome in both sweeps to compare ({'; '.join(lines)})"


def _choice_difference_lines(first: SweepData, second: SweepData, names: tuple[str, str]) -> Iterator[str]:
    sweeps_with_arms = tuple(zip((first, second), names, strict=True))
    paths = dict.fromkeys(path for sweep, name in sweeps_with_arms for path in _chosen_values(sweep, name))
    first_values, second_values = (
        _values_trained_with(sweep, name, paths) for sweep, name in sweeps_with_arms
    )
    if text := "; ".join(map(str, differences(first_values, second_values))):
        yield f"{names[0]}: the searches chose different values: {text}"


def _chosen_values(sweep: SweepData, arm: str) -> Mapping[str, Any]:
    return next((tally.assignment for tally in sweep.report.tallies if tally.arm == arm), {})


def _values_trained_with(sweep: SweepData, arm: str, paths: Iterable[str]) -> dict[str, Any]:
    """Return the values that a search chose, or the fixed values of an arm that does not search the field."""
    sweep_arm = sweep.plan.arm(arm)
    fixed_values = {
        path: lookup(sweep_arm.settings, path) for path in paths if path not in sweep_arm.space.paths
    }
    values = fixed_values | dict(_chosen_values(sweep, arm))
    return {path: value for path, value in values.items() if value is not MISSING}


def _compared_provenance(sweep: SweepData) -> dict[str, str]:
    entries = dict(provenance_lines(sweep.plan, sweep.records))
    for label in [*entries]:
        if label in SEPARATE_ENTRIES or label.startswith(DATA_PREFIX):  # `Comparison.data` has the data
            del entries[label]
    return entries


def _differing_entries(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for label in dict.fromkeys((*first, *second)):
        first_text, second_text = first.get(label, "unknown"), second.get(label, "unknown")
        if first_text != second_text:
            yield label, first_text, second_text
