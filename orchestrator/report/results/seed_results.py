"""Provide the results of confirm trials by arm, metric and seed; failed trials have no value.

A seed that finished without a primary outcome counts as failed, as in `conductor.rounds`, because the reason
may depend on the missing value.

If test splits are added to a sweep, their later evaluations count as results of the confirm trials.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from orchestrator.conductor.rounds import are_seeds_equal
from orchestrator.identity import canonical
from orchestrator.plan.answer import metric_splits
from orchestrator.plan.types import Plan
from orchestrator.statistics.paired import by_unit
from orchestrator.trials import OutcomeKind, Record, by_arm
from trainables.metrics import Metric, look_up, metric_name, split_and_quantity
from trainables.protocol import Measurement

ValuesBySeed = Mapping[tuple[int, int], tuple[float, str]]
"""Value and record id by (rank, seed)."""
Pairs = Sequence[tuple[str, str]]
"""Names of arm and reference, one pair for each context of a contrast."""
ValueRange = tuple[float, float]
"""Least and greatest value."""
MeasurementsByTrial = Mapping[str, Sequence[Measurement]]
"""Measurements by trial id, in the order of steps."""
NOT_MEASURED_FAILURE = "not measured"
"""Failure of a seed whose trials all finished, some of them without a primary outcome."""
TrialKey = tuple[str, int | None, int, str]
MetricsAndTexts = tuple[dict[str, float], dict[str, str]]
"""Metrics and texts of splits that were added to a sweep."""


@dataclass(frozen=True)
class SeedResults:
    """Results of ended confirm trials, or of their re-evaluations under one setting."""

    records: Sequence[Record]
    declared_metrics: Sequence[Metric]
    outcomes: Sequence[str] = ()
    """Primary outcomes, which every seed must have."""
    units: Mapping[int, int] = field(default_factory=dict)
    """Repeat of each seed if searches are repeated; else empty, and seeds are the units."""

    @cached_property
    def _by_arm(self) -> Mapping[str, Sequence[Record]]:
        return by_arm(self.records)

    def _finished(self, arm: str) -> list[Record]:
        records = self._by_arm.get(arm, ())
        return [record for record in records if record.outcome is OutcomeKind.FINISHED]

    def declaration(self, metric: str) -> Metric:
        """Return the declaration of a metric."""
        return look_up(self.declared_metrics, metric)

    def by_seed(self, arm: str, metric: str) -> ValuesBySeed:
        """Return the arm's values of seeds in which every trial finished and measured the metric.

        Other seeds are left out, because their mean over ranks would include other trials than that of the
        reference.
        """
        values = self._measured_values(arm, metric)
        failed_seeds = {seed for seed, kind in self.failed_seeds(arm).items() if kind != NOT_MEASURED_FAILURE}
        num_ranks = Counter(seed for _, seed in values)
        seeds = {seed for seed, count in num_ranks.items() if count == len(self._ranks)} - failed_seeds
        return {key: value for key, value in values.items() if key[1] in seeds}

    @cached_property
    def _ranks(self) -> set[int]:
        return {record.rank or 0 for record in self.records}

    def _measured_values(self, arm: str, metric: str) -> ValuesBySeed:
        values_by_key = {
            (record.rank or 0, record.seed): (record.last.metrics[metric], record.trial_id)
            for record in self._finished(arm)
            if record.last and metric in record.last.metrics
        }
        return dict(sorted(values_by_key.items()))

    def texts(self, arm: str, name: str) -> dict[int, frozenset[str]]:
        """Return the texts of a name that finished trials of the arm reported, by seed."""
        texts_by_seed: dict[int, frozenset[str]] = defaultdict(frozenset)
        for record in self._finished(arm):
            if name in record.attributes:
                texts_by_seed[record.seed] |= {record.attributes[name]}
        return dict(texts_by_seed)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of all metrics that trials measured."""
        return frozenset(name for record in self.records if record.last for name in record.last.metrics)

    def by_unit(self, by_seed: Mapping[int, float]) -> dict[int, float]:
        """Return one value per independent observation: per seed, or the mean of a complete repeat."""
        return by_unit(by_seed, self.units) if self.units else dict(by_seed)

    def unit_of(self, seed: int) -> int:
        """Return the independent observation that a seed belongs to."""
        return self.units.get(seed, seed)

    def complete_units(self, seeds: Collection[int]) -> set[int]:
        """Return the observations of which `seeds` contains all seeds."""
        incomplete = {unit for seed, unit in self.units.items() if seed not in seeds}
        return {self.unit_of(seed) for seed in seeds} - incomplete

    @property
    def unit(self) -> str:
        """Return the word for an independent observation."""
        return "repeat" if self.units else "seed"

    def is_equal_in_all_seeds(self, arm: str) -> bool:
        """Return whether seeds change nothing in the arm, see `are_seeds_equal`."""
        groups: dict[int, list[Mapping[str, float]]] = defaultdict(list)
        for record in self._finished(arm):
            if record.last:
                groups[record.rank or 0].append(record.last.metrics)
        return bool(groups) and all(map(are_seeds_equal, groups.values()))

    def all_values(self, metric: str, arms: Iterable[str] | None = None) -> list[float]:
        """Return the values of all seeds of `arms`; by default of all arms."""
        arm_names = self._by_arm if arms is None else arms
        return [value for arm in arm_names for value, _ in self._measured_values(arm, metric).values()]

    def finished_seeds(self, arm: str) -> set[int]:
        """Return the seeds of the arm in which every trial finished with every primary outcome."""
        return {record.seed for record in self._finished(arm)}.difference(self.failed_seeds(arm))

    def failed_seeds(self, arm: str) -> dict[int, str]:
        """Return the failure of each failed seed: `NOT_MEASURED_FAILURE` if a primary outcome is missing."""
        return self._failures.get(arm, {})

    @cached_property
    def _failures(self) -> dict[str, dict[int, str]]:
        failures: dict[str, dict[int, str]] = {}
        for arm, records in self._by_arm.items():
            outcomes = frozenset(self._outcomes_of(arm))
            missing = {
                record.seed: NOT_MEASURED_FAILURE
                for record in self._finished(arm)
                if not outcomes.issubset(record.last.metrics if record.last else ())
            }
            ended = [(record.seed, record.outcome) for record in records if record.outcome]
            failed = {seed: kind.value for seed, kind in ended if kind.is_failure}
            failures[arm] = dict(sorted((missing | failed).items()))
        return failures

    def _outcomes_of(self, arm: str) -> list[str]:
        """Return the primary outcomes that every seed of the arm must have.

        These are the outcomes that some seed of the arm has. If no seed has any, they are those of other
        arms. An outcome that no seed of the arm has does not count as a failure.
        """
        measured_outcomes = [name for name in self.outcomes if self._measured_values(arm, name)]
        return measured_outcomes or [name for name in self.outcomes if self.all_values(name)]

    def costs_of(self, outcome: str) -> tuple[str, ...]:
        """Return the declared costs on the split of the outcome, without the outcome itself."""
        split, _ = split_and_quantity(outcome)
        costs = (metric.name for metric in self.declared_metrics if metric.is_cost and not metric.split)
        return tuple(name for cost in costs if (name := metric_name(split, cost)) != outcome)

    def value_range(self, metric: str, *arms: str) -> ValueRange:
        """Return the range of the metric in these arms; its upper end may depend on the measured values."""
        declared = self.declaration(metric)
        if not declared.high_from:
            return declared.span
        bound_metric = metric_name(split_and_quantity(metric)[0], declared.high_from)
        values = [self._measured_values(arm, metric).keys() for arm in arms]
        bounds = [self._measured_values(arm, bound_metric) for arm in arms]
        if not all(
            keys and keys == arm_bounds.keys() for keys, arm_bounds in zip(values, bounds, strict=True)
        ):
            return declared.span
        return declared.span[0], max(high for arm_bounds in bounds for high, _ in arm_bounds.values())

    def span_of_difference(self, metric: str, arm: str, reference: str) -> ValueRange:
        """Return the range of differences between a value of `arm` and one of `reference`."""
        return difference_range(self.value_range(metric, arm), self.value_range(metric, reference))


def difference_range(first: ValueRange, second: ValueRange) -> ValueRange:
    """Return the range of differences between a value in `first` and one in `second`."""
    return first[0] - second[1], first[1] - second[0]


def mean_by_seed(values: ValuesBySeed) -> dict[int, float]:
    """Return one value per seed: params trained on one seed are averaged, as they are not independent."""
    values_by_seed: dict[int, list[float]] = defaultdict(list)
    for (_, seed), (value, _) in values.items():
        values_by_seed[seed].append(value)
    return {seed: fmean(seed_values) for seed, seed_values in sorted(values_by_seed.items())}


def merge_late_splits(plan: Plan, records: Sequence[Record]) -> list[Record]:
    """Return the records with the values of splits that were evaluated later.

    The records of these later evaluations are left out. In the other records only `last.metrics` and
    `attributes` change.
    """
    late_splits = {trial.trial_id: trial.late_splits for trial in plan.trials if trial.late_splits}
    if not late_splits:
        return list(records)
    names = metric_splits(plan.search, plan.confirm, plan.answer)
    late_values: dict[TrialKey, MetricsAndTexts] = {}
    for record in records:
        splits = late_splits.get(record.trial_id)
        if splits and record.outcome is OutcomeKind.FINISHED and record.last is not None:
            values, texts = late_values.setdefault(_trial_key(record), ({}, {}))
            values |= {k: v for k, v in record.last.metrics.items() if names.split(k) in splits}
            texts |= {k: v for k, v in record.attributes.items() if names.split(k) in splits}
    return [_add_late_values(record, late_values) for record in records if record.trial_id not in late_splits]


def _add_late_values(record: Record, late_values: Mapping[TrialKey, MetricsAndTexts]) -> Record:
    trial_values = late_values.get(_trial_key(record)) if record.phase != "search" else None
    if not trial_values or record.last is None:
        return record
    values, texts = trial_values
    last = replace(record.last, metrics={**record.last.metrics, **values})
    return replace(record, last=last, attributes={**record.attributes, **texts})


def _trial_key(record: Record) -> TrialKey:
    """Return the key of a confirm trial, or of one re-evaluation of it."""
    return record.arm, record.rank, record.seed, canonical(dict(record.overrides))


def pending_splits(plan: Plan, records: Sequence[Record]) -> frozenset[str]:
    """Return the splits for which some checkpoint is not evaluated yet."""
    ended_ids = {
        record.trial_id for record in records if record.outcome is not None and record.outcome.is_final
    }
    trials = (trial for trial in plan.trials if trial.trial_id not in ended_ids)
    return frozenset(split for trial in trials for split in trial.late_splits)
